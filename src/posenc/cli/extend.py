"""``posenc extend``: a checkpoint for longer texts, and what that is worth."""

from __future__ import annotations

import json
import sys
from typing import Any

from posenc.search import Settings


def run(*, path: str, length: int, search: int | None, generations: int, as_json: bool, **given: Any) -> int:
    """Extend the model of a folder or a GGUF file, and print what was measured.

    Raises:
        ValueError: where the package transformers is not installed, and as `posenc.hf.extend.extend`.
    """
    try:
        from posenc.hf.extend import Recipe, extend
    except ModuleNotFoundError as error:
        raise ValueError(f"extend needs {error.name}: pip install 'posenc[hf]'") from error
    recipe = Recipe(**{name: given.pop(name) for name in Recipe.__dataclass_fields__})
    found = extend(path, length, recipe=recipe, search=_sizes(search, generations), progress=_tell, **given)
    sys.stdout.write(f"{json.dumps(found.record(), indent=1) if as_json else found}\n")
    return 0


def _sizes(population: int | None, generations: int) -> Settings | None:
    """Of a search, with as many new candidates a generation as half of those that it begins with."""
    if population is None:
        return None
    quarter, half = max(1, population // 4), max(1, population // 2)
    return Settings(population=population, mutations=quarter, crossovers=quarter, parents=half, generations=generations)


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
