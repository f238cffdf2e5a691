"""Builds the site: stages pages, renders HTML with warnings as errors, removes network requests, and checks links."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from guide.check import problems_of
from guide.numbers import problems_of_pages
from guide.records import ROOT
from guide.stage import committed_pages, stage

# A page on disk may start no worker, and the search is one; the generator would fetch a stand-in from a server.
_FETCHED = re.compile(r'<script src="https://unpkg\.com/iframe-worker/shim"[^>]*></script>')
_WORKER = "assets/worker.js"
_SCRIPT = "var __index = "  # the index once more, for pages that were opened from disk
# Long tables of numbers repeat the names of encodings in every line, and would hide the pages about them.
_BY_TITLE = re.compile(r"(benchmarks|results|examples)/|(CHANGELOG|CONTRIBUTING|layout|readme)\.")
_METHOD = re.compile(r"methods/([a-z0-9-]+)\.html")  # not the variants, such as rope_pp
FONT = ROOT / "docs" / "assets" / "stix-two-math.woff2"  # a subset with the letters and signs of formulas


def build(out: Path) -> None:
    """Write the site into a folder, which is replaced.

    Raises:
        RuntimeError: with what differs from the records, the generator's words, or all that the check found.
    """
    if stale := [*(f"docs/{name}" for name in outdated()), *problems_of_pages()]:
        raise RuntimeError("python docs/build.py --pages rewrites what is older than its records:\n" + "\n".join(stale))
    with tempfile.TemporaryDirectory() as folder:
        stage(Path(folder))
        paths = os.pathsep.join([str(ROOT), str(ROOT / "docs"), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        ran = subprocess.run(
            [str(Path(sys.executable).with_name("zensical")), "build", "--strict"],
            cwd=folder, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True,
        )  # fmt: skip
        if ran.returncode:
            raise RuntimeError(f"the pages have problems:\n{ran.stdout}\n{ran.stderr}")
        site = Path(folder) / "site"
        for page in site.rglob("*.html"):
            depth = len(page.relative_to(site).parts) - 1
            script = f'<script src="{"../" * depth}{_WORKER}"></script>'
            page.write_text(_FETCHED.sub(script, page.read_text(encoding="utf-8")), encoding="utf-8")
        (site / "404.html").unlink()  # for servers alone
        _inline_font(site / "assets" / "guide.css")
        trim(site)
        problems = problems_of(site)
        if problems:
            raise RuntimeError("the site has problems:\n" + "\n".join(problems))
        if out.exists():
            shutil.rmtree(out)
        shutil.copytree(site, out)


def outdated() -> dict[str, str]:
    """The generated files of a clone that differ from what would be generated, by name below docs."""
    from guide import embedded  # it reads every recorded run

    generated = {**committed_pages(), "assets/measured.svg": embedded.picture()}
    generated["../src/posenc/catalogue/studies.json"] = embedded.embedded()
    docs = ROOT / "docs"
    return {
        name: text
        for name, text in generated.items()
        if not (docs / name).is_file() or (docs / name).read_text(encoding="utf-8") != text
    }


def write() -> list[str]:
    """Rewrite what is outdated, and the numbers of pages; what was changed, or cannot be."""
    files = outdated()
    for name, text in files.items():
        (ROOT / "docs" / name).write_text(text, encoding="utf-8")
    return [*(f"docs/{name}" for name in files), *problems_of_pages(write=True)]


def _inline_font(style: Path) -> None:
    """Put the font into the style sheet: Firefox loads no font file of a page that was opened from disk."""
    data = base64.b64encode(FONT.read_bytes()).decode()
    text = style.read_text(encoding="utf-8")
    style.write_text(text.replace(FONT.name, f"data:font/woff2;base64,{data}", 1), encoding="utf-8")


def trim(site: Path) -> None:
    """Put pages that answer first in searches; methods are found by name, pages of `_BY_TITLE` by title alone."""
    index = json.loads((site / "search.json").read_text(encoding="utf-8"))
    for item in index["items"]:
        if method := _METHOD.match(item["location"]):  # a long path would rank "rope" behind every title with that word
            item["path"] = [method[1]]
    answering = [item for item in index["items"] if not _BY_TITLE.match(item["location"])]
    by_title = [
        {**item, "text": ""}
        for item in index["items"]
        if _BY_TITLE.match(item["location"]) and "#" not in item["location"]
    ]
    index["items"] = [*answering, *by_title]
    text = json.dumps(index, ensure_ascii=False, separators=(",", ":"))
    (site / "search.json").write_text(text, encoding="utf-8")
    (site / "search.js").write_text(f"{_SCRIPT}{text};", encoding="utf-8")
