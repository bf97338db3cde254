"""The documentation as a site: every link leads somewhere, every page is in the menu, nothing is fetched."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_asks_nobody_else(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="pip install 'merit-interests[docs]'")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 25
    fetched = re.compile(r'(?:<script[^>]*src|<link[^>]*rel="stylesheet"[^>]*href|<img[^>]*src)="(?:https?:)?//')
    assert not [page for page in pages if fetched.search(page.read_text(encoding="utf-8"))]
    assert broken(tmp_path / "site", pages) == []
    assert "## 0." not in (changes := (tmp_path / "site/changelog/index.html").read_text(encoding="utf-8"))
    assert "<h2" in changes


def broken(site: Path, pages: list[Path]) -> list[str]:
    """Links that lead nowhere without the repository beside the site."""
    found = []
    for page in pages:
        if page.name == "404.html":  # served at any address, so its links begin at the top
            continue
        for link in Links.of(page):
            place = (page.parent / unquote(urldefrag(link).url)).resolve()
            if not (place.is_relative_to(site.resolve()) and place.exists()):
                found.append(f"{page.relative_to(site)}: {link}")
    return found


class Links(HTMLParser):
    """Addresses within the site that a page leads to or shows."""

    @classmethod
    def of(cls, page: Path) -> list[str]:
        parser = cls()
        parser.found = []
        parser.feed(page.read_text(encoding="utf-8"))
        return parser.found

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found += [
            value
            for name, value in attributes
            if name in ("href", "src") and value and not re.match(r"[a-z]+:|#", value)
        ]


def test_every_page_is_in_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if f": {page}\n" not in menu] == []
