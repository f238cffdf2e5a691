"""Pages generated from the whole catalogue or package: the property table and the reference."""

from __future__ import annotations

import importlib
import inspect

from guide.methods import PLACES, escaped, file_of, linked
from guide.records import tables_of
from posenc.catalogue import CATALOGUE, Entry

_HEADS = (
    "method", "acts on", "kind", "learned", "parameters", "cost", "beyond the training length",
    "extends trained models", "used in", "when not to use it", "measured in",
)  # fmt: skip

MODULES = {
    "posenc": "Attention, encodings, catalogue",
    "posenc.positions": "Positions",
    "posenc.layers": "Layers and caches",
    "posenc.hf": "Hugging Face",
    "posenc.search": "Search for factors",
    "posenc.testing": "Testing",
}


def table() -> str:
    """Every method by what it needs, costs and guarantees, which models use it, and where it was measured."""
    rows = "\n".join(f"| {' | '.join(_row(entry))} |" for entry in CATALOGUE.values())
    return f"""# All methods in one table

Which encodings are relative, which have parameters, which extend a trained model, and which models use each: the facts
of the catalogue, which `posenc info NAME` prints too. On the site, type into the box to filter the rows, and click a
heading to sort them. *Kind* is what an encoding reads: distances (relative), positions (absolute),
token content (by content), the number of keys (by length). *Extends trained models*: made for models that were trained
without it.

*Measured in*: the recorded comparisons that have it among their rows, each with its own scope and conditions.

<div class="properties" markdown="1">

| {" | ".join(_HEADS)} |
|{" --- |" * len(_HEADS)}
{rows}

</div>
"""


def _row(entry: Entry) -> list[str]:
    return [
        f"[{entry.name}](methods/{file_of(entry)})",
        PLACES[entry.hook_point].split(" (")[0].split(":")[0].split(",")[0],
        entry.kind, "learned" if entry.learned else "fixed", escaped(entry.parameters), escaped(entry.cost),
        escaped(entry.past_training), "yes" if entry.extends_context else "no", linked(escaped(entry.used_in)),
        linked(escaped(entry.avoid)),
        ", ".join(f"[{name}](results/{name})" for name in tables_of(entry.name)),
    ]  # fmt: skip


def reference_pages() -> dict[str, str]:
    """Markdown by file name: each public module's contents but encodings, which have pages among the methods."""
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
