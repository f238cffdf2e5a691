"""``posenc extend``, ``evaluate`` and ``attach``: a checkpoint with a longer context or other encodings, measured."""

from __future__ import annotations

import json
import shlex
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posenc.input_files import naming

if TYPE_CHECKING:
    from posenc.search import Settings


def extend(options: Namespace) -> int:
    """Extend a model and print what was measured; with ``--config-only`` its config alone, without torch.

    Raises:
        ValueError: as `posenc.hf.extend.extend` and `extend_config`.
    """
    if options.config_only:
        from posenc.hf.extend.config_only import extend_config

        for name in ("text", "last", "lengths", "search", "device_map", "overwrite"):
            if getattr(options, name):
                option = f"--{name.replace('_', '-')}"
                raise ValueError(f"{option} is not for --config-only, which measures and overwrites nothing")
        given = {name: getattr(options, name) for name in ("original_length", "out", "in_place")}
        with naming(options.path):
            extension: Any = extend_config(options.path, options.length, options.method, **given)
    elif options.in_place:
        raise ValueError("--in-place needs --config-only: an extension that is measured is written to a new folder")
    else:
        extension = _extended(options)
    sys.stdout.write(f"{json.dumps(extension.record(), indent=1) if options.as_json else extension}\n")
    return 0


def _extended(options: Namespace) -> Any:
    from posenc.hf.extend import extend as extend_checkpoint  # transformers

    left = ("path", "length", "method", "config_only", "in_place", "as_json", "search", "generations")
    rest = {name: value for name, value in vars(options).items() if name not in left}
    with naming(options.path), resumable(None if options.out is None else lambda: saved_state(options.out)):
        return extend_checkpoint(
            options.path, options.length, options.method, progress=print_progress,
            search=search_settings(options.search, options.generations), **rest,
        )  # fmt: skip


def evaluate(options: Namespace) -> int:
    """Evaluate the checkpoint of a folder or a GGUF file, and print the tables.

    Raises:
        ValueError: as `posenc.hf.evaluate.evaluate`.
    """
    from posenc.hf.evaluate import evaluate as evaluate_checkpoint  # transformers

    state = f"every reading that was made is saved in {options.out}; to continue: {command_line()}"
    left = ("path", "as_json", "search", "generations")
    rest = {name: value for name, value in vars(options).items() if name not in left}
    with naming(options.path), resumable(None if options.out is None else lambda: state):
        result = evaluate_checkpoint(
            options.path, search=search_settings(options.search, options.generations), progress=print_progress, **rest
        )
    sys.stdout.write(f"{json.dumps(result.record(), indent=1) if options.as_json else result}\n")
    return 0


def attach(options: Namespace) -> int:
    """Write the folder, and print how to load it and, if it was measured, what it costs.

    Raises:
        ValueError: as `posenc.hf.attach.loading.attach_to_folder`.
    """
    from posenc.hf.attach.loading import attach_to_folder

    where = (Path(options.path), options.encodings, Path(options.out), options.layers)
    if options.measure:
        from posenc.hf.evaluate.attachment import attach_and_measure

        evaluation = attach_and_measure(
            *where, text=options.text, windows=options.windows, trust_remote_code=options.trust_remote_code,
            progress=print_progress,
        )  # fmt: skip
        sys.stdout.write(f"{evaluation}\n\n")
    else:
        attach_to_folder(*where, trust_remote_code=options.trust_remote_code)
    sys.stdout.write(f"written to {options.out}; load it with posenc.hf.attach.load\n")
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
