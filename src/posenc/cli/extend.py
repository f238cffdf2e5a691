"""``posenc extend``: a checkpoint with a longer context, and its evaluation."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from posenc.input_files import naming

if TYPE_CHECKING:
    from posenc.search import Settings


def run(*, path: str, config_only: bool, in_place: bool, **options: Any) -> int:
    """Extend a model and print what was measured; with ``config_only`` its config alone, without torch.

    Raises:
        ValueError: as `posenc.hf.extend.extend` and `extend_config`.
    """
    if config_only:
        return _extend_config(path, in_place=in_place, **options)
    if in_place:
        raise ValueError("--in-place needs --config-only: an extension that is measured is written to a new folder")
    return _extend(path=path, **options)


def _extend_config(
    path: str, *, length: int, method: str, out: str | None, in_place: bool, original_length: int | None,
    as_json: bool, overwrite: bool, **measured: Any,
) -> int:  # fmt: skip
    from posenc.hf.extend.config_only import extend_config

    option = next(
        (name for name in ("text", "last", "lengths", "search", "tokens") if measured[name] is not None), None
    )
    if overwrite or option:
        raise ValueError(f"--{option or 'overwrite'} is not for --config-only, which measures and overwrites nothing")
    with naming(path):
        extension = extend_config(path, length, method, original_length=original_length, out=out, in_place=in_place)
    sys.stdout.write(f"{json.dumps(extension.record(), indent=1) if as_json else extension}\n")
    return 0


def _extend(
    *, path: str, length: int, method: str, out: str | None, overwrite: bool, text: str | None, windows: int,
    last: int | None, lengths: list[int] | None, original_length: int | None, dtype: str, device: str, as_json: bool,
    search: int | None, generations: int, pieces: int, intermediate: int | None, tokens: int | None, steps: int,
    batch: int, warmup: int, rank: int, save_every: int, seed: int, lr: float, trust_remote_code: bool,
) -> int:  # fmt: skip
    """Extend the model of a folder or a GGUF file, and print what was measured.

    Raises:
        ValueError: where the package transformers is not installed, and as `posenc.hf.extend.extend`.
    """
    try:
        from posenc.hf.extend import Recipe, extend
    except ModuleNotFoundError as error:
        raise ValueError(f"extend needs {error.name}: pip install 'posenc[hf]', in a clone '.[hf]'") from error
    recipe = Recipe(
        intermediate=intermediate, steps=steps, batch=batch, tokens=tokens, lr=lr, warmup=warmup, rank=rank,
        save_every=save_every, seed=seed,
    )  # fmt: skip
    kept = None if out is None else f"the measurements are saved in {out}.work; the same command continues"
    with naming(path), resumable(kept):
        extension = extend(
            path, length, method, out=out, text=text, original_length=original_length, lengths=lengths, windows=windows,
            last=last, search=search_settings(search, generations), pieces=pieces, recipe=recipe, overwrite=overwrite,
            dtype=dtype, device=device, progress=print_progress, trust_remote_code=trust_remote_code,
        )  # fmt: skip
    sys.stdout.write(f"{json.dumps(extension.record(), indent=1) if as_json else extension}\n")
    return 0


@contextmanager
def resumable(kept: str | None) -> Iterator[None]:
    """On Ctrl-C print what is kept and how to continue; None: nothing is."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write(f"\nstopped: {kept or 'nothing is saved without --out'}\n")
        raise


def search_settings(population: int | None, generations: int) -> Settings | None:
    """Settings of a search with half as many new candidates per generation as it starts with."""
    if population is None:
        return None
    from posenc.search import Settings

    quarter, half = max(1, population // 4), max(1, population // 2)
    return Settings(population=population, mutations=quarter, crossovers=quarter, parents=half, generations=generations)


def print_progress(text: str) -> None:
    """A line of progress, on stderr."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
