"""Reference pages: the contents of each public module, except encodings, which have pages among the methods."""

from __future__ import annotations

import importlib
import inspect

from posenc.catalogue import CATALOGUE

MODULES = {
    "posenc": "Attention, encodings, catalogue",
    "posenc.positions": "Positions",
    "posenc.layers": "Layers and caches",
    "posenc.hf": "Hugging Face",
    "posenc.search": "Search for factors",
    "posenc.testing": "Testing",
}


def reference_pages() -> dict[str, str]:
    """Markdown by file name."""
    paged = {cls for entry in CATALOGUE.values() for cls in (entry.scaling or entry.encoding,)}
    pages = {}
    for module, title in MODULES.items():
        imported = importlib.import_module(module)
        names = {
            f"{value.__module__}.{value.__qualname__}"
            for name, value in vars(imported).items()
            if not name.startswith("_")
            and (inspect.isclass(value) or inspect.isfunction(value))
            and value.__module__.startswith("posenc.")
            and value not in paged
        }
        listed = "\n\n".join(f"::: {name}" for name in sorted(names, key=lambda name: name.rsplit(".", 1)[1].lower()))
        pages[f"{module}.md"] = (
            f"# {module}: {title[0].lower() if title[1].islower() else title[0]}{title[1:]}\n\n{listed}\n"
        )
    return pages
