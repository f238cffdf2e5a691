"""Stages all pages for the site generator: copied or generated, with formulas, pictures and rewritten links."""

from __future__ import annotations

import os
import re
import shutil
from html import escape
from pathlib import Path
from posixpath import normpath
from typing import Any

import yaml

from guide.decision import KNOWN, RULES, models_script, rules_script
from guide.formulas import with_mathml
from guide.lists import bibliography, reference_pages
from guide.methods import PLACES, file_of, page_of, pictured, short_title
from guide.pages import committed_pages
from guide.records import RESULTS, ROOT, RUN, report_page, runs
from posenc import __version__
from posenc.catalogue import CATALOGUE
from posenc.explorer import page as explorer_page
from posenc.published import REPOSITORY, SITE

EXPLORER = "assets/explorer.html"

# A link, whose words may have code in them; or code, in which there are no links.
_LINK = re.compile(r"`[^`\n]+`|(!?)\[([^\]\n]*(?:\n[^\]\n]+)?)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")
TABLE = "table.md"  # the page of a recorded run
WIDE = ("index.md", "table.md", "models.md")  # pages that take the width of the list of headings
_TRY = re.compile(r"^\[Try it: ([^\]]+)\]\((\S+#view=\S+)\)$", re.M)
_WIDE = "---\nhide: [toc]\n---\n\n"
HOOK_POINTS = {
    "none": "No encoding", "embedding": "On token embeddings", "rotary": "On queries and keys",
    "bias": "Bias on attention logits", "score": "On attention logits", "weight": "On attention weights",
}  # fmt: skip
_FENCED = re.compile(r"(^```.*?^```[ ]*$)", re.M | re.S)


def stage(into: Path) -> None:
    """Write the configuration and all pages of the site into an empty folder."""
    docs = into / "docs"
    texts = {source: source.read_text(encoding="utf-8") for source in _written()}
    generated = {**committed_pages(), "bibliography.md": bibliography()}
    generated |= {f"results/{name}/{TABLE}": report_page(name) for name in runs()}
    texts |= {ROOT / "docs" / name: text for name, text in generated.items()}
    for source, text in texts.items():
        page = _page_of(source)
        _write(docs / page, f"{_WIDE if page in WIDE else ''}{_fitted(text, source, docs)}")
    for source in (ROOT / "examples").glob("*.py"):
        text = f"# {source.name}\n\n```python\n{source.read_text(encoding='utf-8')}```\n"
        _write(docs / _page_of(source), text)
    for entry in CATALOGUE.values():
        method = ROOT / "docs" / "methods" / file_of(entry)
        _write(docs / "methods" / method.name, _fitted(page_of(entry), method, docs))
    for name, text in reference_pages().items():
        _write(docs / "reference" / name, text)
    shutil.copytree(ROOT / "docs" / "assets", docs / "assets", dirs_exist_ok=True)  # pages may have brought some
    _write(docs / EXPLORER, explorer_page([], home="../explorer.html"))
    _write(docs / "assets" / RULES, rules_script())
    _write(docs / "assets" / KNOWN, models_script())
    (into / "mkdocs.yml").write_text(yaml.safe_dump(configuration(), sort_keys=False), encoding="utf-8")


def configuration() -> dict[str, Any]:
    """mkdocs.yml with the generated pages in its navigation."""
    config: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    methods: list[Any] = []
    for place in PLACES:
        entries = [e for e in CATALOGUE.values() if e.hook_point == place]
        methods.append({HOOK_POINTS[place]: [{short_title(e): f"methods/{file_of(e)}"} for e in entries]})
    generated = {"methods": methods, "reference": [{name[:-3]: f"reference/{name}"} for name in reference_pages()]}
    config["nav"] = _filled(config["nav"], generated)
    config["site_name"] = f"posenc {__version__}"
    config |= {"site_url": SITE} if SITE else {}
    config |= {"repo_url": REPOSITORY, "repo_name": "code"} if REPOSITORY else {}
    return config


def _filled(nav: list[dict[str, Any]], generated: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """A navigation with lists of generated pages in the place of their names."""
    return [
        {title: _filled(pages, generated) if isinstance(pages, list) else generated.get(pages, pages)}
        for part in nav
        for title, pages in part.items()
    ]


def _written() -> list[Path]:
    """Markdown that is written by hand, or by the laboratory, and is a page of its own."""
    docs = [path for path in (ROOT / "docs").rglob("*.md") if path.parent != ROOT / "docs" / "methods"]
    return [
        *docs,
        *(ROOT / "benchmarks").rglob("*.md"),
        *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    ]


def _page_of(source: Path) -> str:
    """Where a file of the repository stands among the pages; nothing where it does not."""
    path = source.relative_to(ROOT).as_posix()
    if (source / RUN).is_file() and source.parent == RESULTS:  # a code host shows the folder
        return f"results/{source.name}/{TABLE}"
    if path == "README.md":
        return "readme.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if re.fullmatch(r"benchmarks/.*\.md|CHANGELOG\.md|CONTRIBUTING\.md", path):
        return path
    if re.fullmatch(r"examples/\w+\.py", path):
        return f"{path[:-3]}.md"
    return ""


def _fitted(text: str, source: Path, docs: Path) -> str:
    """A page with links as the site has them, pictures and formulas."""
    parts = _FENCED.split(text)
    linked = "".join(
        part if i % 2 else _LINK.sub(lambda match: _link(match, source, docs), part) for i, part in enumerate(parts)
    )
    return with_mathml(pictured(_TRY.sub(_framed, linked)))


def _framed(match: re.Match[str]) -> str:
    """A view of the explorer where a page links one in a paragraph of its own."""
    title, address = match[1], match[2]
    return (
        f'<figure class="frame">\n<iframe class="view" loading="lazy" title="{escape(title)}" '
        f'src="{escape(address)}"></iframe>\n<figcaption>Try it: {escape(title)}. '
        f'<a href="{escape(address)}">Open it in the explorer</a>.</figcaption>\n</figure>'
    )


def _link(match: re.Match[str], source: Path, docs: Path) -> str:
    """A link as the site has it; the words alone where what it leads to is no part of the site."""
    image, words, target, anchor = match.groups()
    if target is None:
        return match[0]
    path = ROOT / normpath((source.parent.relative_to(ROOT) / target).as_posix())
    page = _page_of(path)
    if not page or (path.is_dir() and not page.endswith(TABLE)):
        return str(words)
    if path.is_file() and path.suffix != ".md" and page.endswith(path.suffix):  # not an example, which is a page
        (docs / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, docs / page)
    if page == "explorer.md" and anchor and anchor.startswith("#view="):  # a view, not a heading of the page about it
        page = EXPLORER
    start = Path(_page_of(source)).parent
    return f"{image}[{words}]({os.path.relpath(page, start)}{anchor or ''})"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
