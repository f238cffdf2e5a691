"""``posenc extend``: a checkpoint with a longer context, and its evaluation."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
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

    names = ("text", "last", "lengths", "search", "device_map")
    option = next(
        (name for name in names if measured[name] is not None), "retrieval" if measured["retrieval"] else None
    )
    if overwrite or option:
        option = (option or "overwrite").replace("_", "-")
        raise ValueError(f"--{option} is not for --config-only, which measures and overwrites nothing")
    with naming(path):
        extension = extend_config(path, length, method, original_length=original_length, out=out, in_place=in_place)
    sys.stdout.write(f"{json.dumps(extension.record(), indent=1) if as_json else extension}\n")
    return 0


def _extend(
    *, path: str, length: int, method: str, out: str | None, as_json: bool, search: int | None, generations: int,
    **options: Any,
) -> int:  # fmt: skip
    """Extend the model of a folder or a GGUF file, and print what was measured.

    Raises:
        ValueError: where the package transformers is not installed, and as `posenc.hf.extend.extend`.
    """
    try:
        from posenc.hf.extend import extend
    except ModuleNotFoundError as error:
        raise ValueError(f"extend needs {error.name}: pip install 'posenc[hf]', in a clone '.[hf]'") from error
    with naming(path), resumable(None if out is None else lambda: saved_state(out)):
        extension = extend(
            path, length, method, out=out, search=search_settings(search, generations), progress=print_progress,
            **options,
        )  # fmt: skip
    sys.stdout.write(f"{json.dumps(extension.record(), indent=1) if as_json else extension}\n")
    return 0


def saved_state(out: str) -> str:
    """What a stopped extension has saved, and the command that continues it."""
    readings = Path(f"{out}.work") / "readings.jsonl"
    count = readings.read_bytes().count(b"\n") if readings.exists() else 0
    return f"{count} readings saved in {readings.parent}; to continue: {command_line()}"


def command_line() -> str:
    """The command that is running, to be pasted into a shell."""
    return shlex.join(["posenc", *sys.argv[1:]])


@contextmanager
def resumable(describe_state: Callable[[], str] | None) -> Iterator[None]:
    """On Ctrl-C print what is kept and how to continue; None: nothing is."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write(
            f"\nstopped: {'nothing is saved without --out' if describe_state is None else describe_state()}\n"
        )
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
