"""A real multi-label text set that every Debian machine has: descriptions of packages → their tags (debtags).

    python -m benchmarks.debtags --out FOLDER [--data PATH] [--share 1.0]

PATH is a Packages file (plain, .gz, .xz, .lz4, .zst) or a folder of them; without it, what `apt-get update` left here.
Long descriptions are in Translation-en files beside them, where apt was told to fetch those; otherwise texts are the
one-line descriptions. FOLDER gets trn.json, tst.json and lbl.json, as the Extreme Classification Repository has them.

Packages of one source share most of their description, so the split goes by a stable hash of the source's name: a test
document has no sister in training.
"""

from __future__ import annotations

import gzip
import json
import lzma
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path

import pyarrow as pa

from benchmarks import harness
from merit.core.errors import DataError
from merit.core.seeds import stable_hash, unit_interval

APT = Path("/var/lib/apt/lists")
PACKAGES, TRANSLATION = re.compile(r"(^|_)Packages(\.\w+)?$"), re.compile(r"(^|_)Translation-en(\.\w+)?$")
SALT = "debtags"
TESTED = 0.2  # of the sources
BY_ARROW = {".lz4": "lz4", ".zst": "zstd"}


@dataclass(frozen=True)
class Package:
    name: str
    source: str
    title: str
    """The description's first line."""
    content: str
    """The rest of it, in one line; often empty."""
    tags: tuple[str, ...]


def find(place: Path | None) -> list[Path]:
    """The Packages and Translation-en files of a place, or of this machine's apt."""
    if place and place.is_file():
        return [place]
    folder = place or APT
    inside = sorted(folder.iterdir()) if folder.is_dir() else []
    files = [file for file in inside if PACKAGES.search(file.name) or TRANSLATION.search(file.name)]
    if not any(PACKAGES.search(file.name) for file in files):
        raise DataError(
            f"{folder} holds no Packages file of Debian. Run `apt-get update` on a Debian machine, or name a Packages "
            "file (plain, .gz, .xz, .lz4, .zst) or a folder of them with --data PATH."
        )
    return files


def packages(files: Sequence[Path]) -> Iterator[Package]:
    """Every tagged package once, by name; of several versions the first."""
    longer = _long_descriptions([file for file in files if TRANSLATION.search(file.name)])
    seen: set[str] = set()
    for file in files:
        if TRANSLATION.search(file.name):
            continue
        for stanza in stanzas(file):
            name, tags = stanza.get("package", ""), _tags(stanza.get("tag", ""))
            if not name or not tags or name in seen:
                continue
            seen.add(name)
            title, _, rest = stanza.get("description", "").partition("\n")
            rest = rest or longer.get(stanza.get("description-md5", ""), "")
            yield Package(name, stanza.get("source", name).split(" ")[0], title.strip(), _one_line(rest), tags)


def stanzas(file: Path) -> Iterator[dict[str, str]]:
    """The paragraphs of a control file: field names in lower case → values, with their continuation lines."""
    stanza: dict[str, str] = {}
    field = ""
    with _opened(file) as lines:
        for line in lines:
            if not line.strip():
                if stanza:
                    yield stanza
                stanza, field = {}, ""
            elif line[0] in " \t":
                if field:
                    stanza[field] += "\n" + line.strip()
            else:
                field, _, value = line.partition(":")
                field = field.strip().lower()
                stanza[field] = value.strip()
    if stanza:
        yield stanza


def readable(tag: str) -> str:
    """`implemented-in::python` → "implemented in: python"."""
    return re.sub(":+", ": ", tag).replace("-", " ")


def write(found: Sequence[Package], folder: Path) -> dict[str, int]:
    """The three files of the repository's raw text format, and how much is in them."""
    tags = sorted({tag for each in found for tag in each.tags})
    number = {tag: place for place, tag in enumerate(tags)}
    tested = unit_interval(stable_hash([each.source for each in found], SALT)) < TESTED
    parts: dict[str, list[Package]] = {"trn": [], "tst": []}
    for each, held_out in zip(found, tested.tolist(), strict=True):
        parts["tst" if held_out else "trn"].append(each)
    folder.mkdir(parents=True, exist_ok=True)
    for part, members in parts.items():
        _write_lines(folder / f"{part}.json", [_document(each, number) for each in members])
    _write_lines(folder / "lbl.json", [{"uid": tag, "title": readable(tag)} for tag in tags])
    return {"train": len(parts["trn"]), "test": len(parts["tst"]), "labels": len(tags)}


def make(place: Path | None, folder: Path, share: float = 1.0) -> dict[str, int]:
    """Find, read, write. `share` of the sources, by a hash of their names that is not the split's."""
    found = sorted(packages(find(place)), key=lambda each: each.name)
    described = [each for each in found if each.title or each.content]
    lots = unit_interval(stable_hash([each.source for each in described], f"{SALT}.share"))
    kept = [each for each, lot in zip(described, lots.tolist(), strict=True) if lot < share]
    if not kept:
        raise DataError(f"{place or APT} names no package with tags. Name a Packages file of Debian with --data PATH.")
    return write(kept, folder) | {"without_text": len(found) - len(described)}


def _document(package: Package, number: dict[str, int]) -> dict[str, object]:
    labels = [number[tag] for tag in package.tags]
    texts = {"uid": package.name, "title": package.title, "content": package.content}
    return texts | {"target_ind": labels, "target_rel": [1.0] * len(labels)}


def _tags(field: str) -> tuple[str, ...]:
    """Each once. `a::{b,c}` is short for a::b and a::c; `a::TODO` is a note of the taggers and no tag."""
    whole = re.sub(r"([\w:+.-]+)\{([^}]*)\}", lambda found: _spelt(found[1], found[2]), field)
    named = (part.strip() for part in whole.split(","))
    return tuple(dict.fromkeys(tag for tag in named if "::" in tag and not tag.endswith("TODO")))


def _spelt(facet: str, names: str) -> str:
    return ", ".join(f"{facet}{name.strip()}" for name in names.split(","))


def _long_descriptions(files: Sequence[Path]) -> dict[str, str]:
    """By the sum that Packages files name it by: what follows the first line."""
    return {
        stanza["description-md5"]: stanza.get("description-en", "").partition("\n")[2]
        for file in files
        for stanza in stanzas(file)
        if "description-md5" in stanza
    }


def _one_line(text: str) -> str:
    """A lone dot stands for an empty line."""
    return " ".join(line for line in text.splitlines() if line != ".").strip()


def _write_lines(file: Path, rows: Sequence[object]) -> None:
    """A file that would not change keeps its time, and so all that was made from it is kept."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    if not file.exists() or file.read_bytes() != text:
        file.write_bytes(text)


@contextmanager
def _opened(file: Path) -> Iterator[TextIOWrapper]:
    """Its lines as text, whatever packed it."""
    try:
        if file.suffix in BY_ARROW:
            packed = pa.input_stream(str(file), compression=BY_ARROW[file.suffix])
        else:
            packed = {".gz": gzip.open, ".xz": lzma.open}.get(file.suffix, open)(file, "rb")  # type: ignore[operator]
        with packed, TextIOWrapper(packed, encoding="utf-8", errors="replace") as lines:
            yield lines
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise DataError(f"{file} cannot be read ({error}). Fetch it again with `apt-get update`.") from None


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/xmc/debtags"))
    parser.add_argument("--share", type=float, default=1.0)
    arguments = parser.parse_args()
    figures = make(arguments.data, arguments.out, 0.1 if arguments.quick else arguments.share)
    harness.finish("debtags", figures, arguments.seed, {"without_text": "tagged packages without a description"})


if __name__ == "__main__":
    harness.run(main)
