"""The search index: pages that answer come first, and tables of measurements are found by their titles alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

_SCRIPT = "var __index = "  # the index once more, for pages that were opened from disk
# Long tables of numbers repeat the names of encodings in every line, and would hide the pages about them.
_BY_TITLE = re.compile(r"(benchmarks|results|examples)/|(CHANGELOG|CONTRIBUTING|layout|bibliography|readme)\.")

_METHOD = re.compile(r"methods/([a-z0-9-]+)\.html")  # not the variants, such as rope_pp


def trim(site: Path) -> None:
    """Keep one entry, without text, for each page of `_BY_TITLE`; a method is found by its name first."""
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
