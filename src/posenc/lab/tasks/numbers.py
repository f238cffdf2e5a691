"""The numbers of every training: what the command line overrides, and what they must fulfil."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Mapping
from typing import Any, TypeVar

from posenc.lab.tasks import task_of
from posenc.lab.tasks.task import Numbers, Profile

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
    if seeds < 1:
        raise ValueError(f"--seeds {seeds}: at least 1 is needed")
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
    for name, least in at_least.items():
        if getattr(s, name) < least:
            raise ValueError(f"{option(name)} {getattr(s, name)}: at least {least} is needed")
    for name in ("lr", "clip"):
        if not 0 < getattr(s, name) < math.inf:
            raise ValueError(f"{option(name)} {getattr(s, name)}: a positive number is needed")
    if s.weight_decay < 0 or s.warmup < 0 or not 0 <= s.decay <= 1:
        raise ValueError("--weight-decay and --warmup must not be negative, and --decay lies between 0 and 1")
    if s.precision not in ("auto", "float32", "bfloat16"):
        raise ValueError(f"--precision {s.precision}: auto, float32 or bfloat16 is needed")
    if s.batch_size % s.processes:
        raise ValueError(f"--batch-size {s.batch_size}: it must be a multiple of the {s.processes} processes")


def check_heads(dim: int, heads: int) -> None:
    """Raise a ValueError unless heads share the width evenly."""
    if dim % heads:
        raise ValueError(f"--dim {dim}: it must be a multiple of --heads {heads}")


def option(field: str) -> str:
    """How a field of settings is called on the command line."""
    return "--" + field.replace("_", "-")
