"""``posenc extend``: a longer text for a checkpoint, and what that is worth."""

from __future__ import annotations

import sys
from typing import Any

from posenc.search import Settings


def run(*, path: str, length: int, search: int | None, generations: int, as_json: bool, **given: Any) -> int:
    """Extend the model of a folder or a GGUF file, and print what was measured."""
    try:
        from posenc.hf.extend import Recipe, extend
    except ModuleNotFoundError as error:
        raise ValueError(f"extend needs {error.name}: pip install 'posenc[hf]'") from error
    recipe = Recipe(**{name: given.pop(name) for name in Recipe.__dataclass_fields__})
    sizes = None
    if search is not None:
        quarter, half = max(1, search // 4), max(1, search // 2)
        sizes = Settings(
            population=search, mutations=quarter, crossovers=quarter, parents=half, generations=generations
        )
    found = extend(path, length, recipe=recipe, search=sizes, progress=_tell, **given)
    if as_json:
        import json

        sys.stdout.write(json.dumps(found.record(), indent=1) + "\n")
    else:
        sys.stdout.write(f"{found}\n")
    return 0


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
