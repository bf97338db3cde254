"use strict";

async function ask(path) {
  const response = await fetch(path, { headers: { Accept: "application/json" } });
  if (!response.ok) throw new Error(`${path} answers ${response.status}`);
  return response.json();
}

async function tell(id, path, words) {
  const place = document.getElementById(id);
  try {
    place.textContent = words(await ask(path));
  } catch (error) {
    place.textContent = `Not reachable: ${error.message}. Is \`merit serve\` still running?`;
  }
}

tell("health", "/health", (told) => `${told.status}, merit ${told.merit}`);
tell("model", "/ready", (told) => `${told.name}, version ${told.version}, label space ${told.label_version}`);
