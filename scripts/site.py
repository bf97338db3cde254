"""What mkdocs is told beside mkdocs.yml: the site is whole by itself, without the repository around it.

Pages link to files that are not in docs (`../src/merit/…`, `../CONTRIBUTING.md`), which a reader of the repository can
open. On the site such a file is a copy in plain text; a folder is only named. The changelog is a page.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
COPIES = "source"
LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]+)\]\((?P<place>(?:\.\./)+[^)#\s]+)(?:#[^)]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the changelog, and a copy of every file elsewhere that a page links to."""
    told = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").replace("](docs/", "](")
    files.append(File.generated(config, "changelog.md", content=told))
    linked = {
        place
        for page in files.documentation_pages()
        if page.abs_src_path
        for link in LINK.finditer(Path(page.abs_src_path).read_text(encoding="utf-8"))
        if (place := elsewhere(page.src_uri, link["place"])) and (ROOT / place).is_file()
    }
    for place in sorted(linked):
        files.append(File.generated(config, f"{COPIES}/{place}.txt", abs_src_path=str(ROOT / place)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links that leave docs to the copies."""
    return LINK.sub(lambda link: _led(link, page.file.src_uri), markdown)


def _led(link: re.Match[str], page: str) -> str:
    place = elsewhere(page, link["place"])
    if place is None:
        return link[0]
    if not (ROOT / place).is_file():
        return link["text"]
    up = "../" * (len(PurePosixPath(page).parts) - 1)
    return f"[{link['text']}]({up}{COPIES}/{place}.txt)"


def elsewhere(page: str, link: str) -> str | None:
    """A link of a page as a path from the root of the repository, if it leaves docs and is there."""
    target = Path(os.path.normpath(DOCS / Path(page).parent / link))
    if target.is_relative_to(DOCS) or not target.is_relative_to(ROOT) or not target.exists():
        return None
    return target.relative_to(ROOT).as_posix()
