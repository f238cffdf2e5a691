"""Checks a built site: broken links and anchors, and requests to a network."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_FETCHING = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "link": "href",
    "source": "src",
    "video": "src",
    "object": "data",
}


class _Page(HTMLParser):
    """Ids, links and what a page loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids, self.links, self.loads = set[str](), list[str](), list[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note one element."""
        attributes = {name: value for name, value in attrs if value is not None}
        self.ids |= {attributes[name] for name in ("id", "name") if name in attributes}
        if tag == "a" and "href" in attributes:
            self.links.append(attributes["href"])
        if tag in _FETCHING and _FETCHING[tag] in attributes:
            self.loads.append(attributes[_FETCHING[tag]])


def problems_of(site: Path) -> list[str]:
    """A line for each link, anchor or file that is missing, and for each request to a network."""
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    problems = []
    for path, page in pages.items():
        name = path.relative_to(site).as_posix()
        problems += [f"{name}: loads {url} from a network" for url in page.loads if _outside(url)]
        for url in [*page.links, *(url for url in page.loads if not _outside(url))]:
            word = _missing(url, path, pages)
            problems += [] if word is None else [f"{name}: {url}: {word}"]
    for path in sorted(site.rglob("*.css")):
        fetched = re.findall(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')]+)", path.read_text(encoding="utf-8"))
        problems += [f"{path.relative_to(site)}: loads {url} from a network" for url in fetched]
    return problems


def _outside(url: str) -> bool:
    return bool(urlsplit(url).netloc)


def _missing(url: str, path: Path, pages: dict[Path, _Page]) -> str | None:
    parts = urlsplit(url)
    if parts.scheme or parts.netloc:
        return None
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.is_file():
        return "no such file"
    anchor = unquote(parts.fragment)
    if anchor and target in pages and anchor not in pages[target].ids and not anchor.startswith(("__", "view=")):
        return "no such anchor"
    return None
