"""The numbers of every training: what the command line overrides, and what they must fulfil."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from posenc.lab.foreign import MOST_SEEDS
from posenc.lab.tasks import task_of
from posenc.lab.tasks.task import Numbers, Profile

# Beyond any model that could be compared here, and below what would hang a machine before it fails.
_MOST = {
    "train_length": 2**20, "steps": 10**9, "batch_size": 2**20, "windows": 2**20, "dim": 2**14, "layers": 2**10,
    "heads": 2**10, "threads": 2**12, "checkpoint_every": 10**9, "max_epochs": 10**9, "warmup": 10**9, "epochs": 10**6,
    "image_size": 2**12, "train_images": 10**9, "fine_tune_steps": 10**9, "seeds": MOST_SEEDS, "workers": 2**12,
    "trials": 10**4, "slurm_timeout": 10**6,
}  # fmt: skip
_MOST_OTHERWISE = 2**16
MOST_LENGTHS = 64
LONGEST = 2**24  # tokens of a test
MOST_TOKENS = 2**36  # of all tests of a length together, and of a training batch
PROFILES = ("quick", "standard", "full")
S = TypeVar("S", bound=Numbers)


def override(chosen: Profile[S], encodings: list[str], numbers: dict[str, Any]) -> Profile[S]:
    """Replace whatever was given on the command line; ``numbers`` holds fields of settings and ``seeds``, or None."""
    given = {name: value for name, value in numbers.items() if value is not None}
    seeds = int(given.pop("seeds", chosen.seeds))
    fields = {field.name for field in dataclasses.fields(chosen.settings)}
    for name in given:
        if name not in fields:
            raise ValueError(f"{option(name)}: --task {chosen.settings.task} has no such number")
    settings = dataclasses.replace(chosen.settings, **given)
    check_count("seeds", seeds, 1)
    task_of(settings).check(settings)
    return dataclasses.replace(chosen, encodings=tuple(encodings) or chosen.encodings, seeds=seeds, settings=settings)


def unknown_profile(name: str) -> ValueError:
    """The error for a profile that no task has."""
    near = difflib.get_close_matches(name, PROFILES, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return ValueError(f"profile: no profile {name!r}{hint} (quick, standard or full)")


def check_training(settings: Numbers, at_least: Mapping[str, int]) -> None:
    """Raise a ValueError that names the option and what it needs; ``at_least`` holds fields of the task's own too."""
    s = settings
    for field in dataclasses.fields(s):
        value = getattr(s, field.name)
        if isinstance(value, int):
            check_count(field.name, value, at_least.get(field.name))
        elif isinstance(value, tuple):
            check_lengths(field.name, value, getattr(s, "train_length", 1))
    length, longest = getattr(s, "train_length", 1), max(getattr(s, "lengths", (1,)), default=1)
    for name, tokens in (("batch_size", length), ("windows", length * longest)):
        together = getattr(s, name, 1) * tokens
        if together > MOST_TOKENS:
            raise ValueError(
                f"{option(name)} {getattr(s, name)}: {together:,} tokens; at most {MOST_TOKENS:,} are taken"
            )
    for name in ("lr", "clip"):
        if not 0 < getattr(s, name) < math.inf:
            raise ValueError(f"{option(name)} {getattr(s, name)}: a positive number is needed")
    if s.weight_decay < 0 or s.warmup < 0 or not 0 <= s.decay <= 1:
        raise ValueError("--weight-decay and --warmup must not be negative, and --decay lies between 0 and 1")
    if s.precision not in ("auto", "float32", "bfloat16"):
        raise ValueError(f"--precision {s.precision}: auto, float32 or bfloat16 is needed")
    if s.batch_size % s.processes:
        raise ValueError(f"--batch-size {s.batch_size}: it must be a multiple of the {s.processes} processes")


def check_count(name: str, value: int, least: int | None = None) -> None:
    """Raise a ValueError that names the option unless a number lies between its bounds."""
    most = _MOST.get(name, _MOST_OTHERWISE)
    if least is not None and value < least:
        raise ValueError(f"{option(name)} {_short(value)}: at least {least} is needed")
    if value > most:
        raise ValueError(f"{option(name)} {_short(value)}: at most {most:,} is taken")


def check_lengths(name: str, lengths: Sequence[int], unit: int) -> None:
    """Raise a ValueError unless test lengths, in ``unit`` tokens, are so few and so short that they can be read."""
    if len(lengths) > MOST_LENGTHS:
        raise ValueError(f"{option(name)}: {len(lengths)} of them; at most {MOST_LENGTHS} are taken")
    for length in lengths:
        if length * unit > LONGEST:
            raise ValueError(f"{option(name)} {_short(length)}: tests of at most {LONGEST:,} tokens are taken")


def _short(number: int) -> str:
    return str(number) if abs(number) < 10**30 else "of more than 30 digits"


def check_heads(dim: int, heads: int) -> None:
    """Raise a ValueError unless heads share the width evenly."""
    if dim % heads:
        raise ValueError(f"--dim {dim}: it must be a multiple of --heads {heads}")


def option(field: str) -> str:
    """How a field of settings is called on the command line."""
    return "--" + field.replace("_", "-")
