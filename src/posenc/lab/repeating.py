"""The command that a report states: with what the machine chose written out, so that it gives the same elsewhere."""

from __future__ import annotations

import shlex

from posenc.lab.tasks.task import Numbers

_CHOSEN = ("precision", "device")  # what "auto" leaves to a probe and to the machine


def repeatable(command: str, asked: Numbers, settled: Numbers) -> str:
    """A command line as it was typed, with the precision and device that were chosen for it, under its launcher.

    >>> from posenc.lab.text.profiles import Settings
    >>> repeatable("posenc compare rope --precision auto", Settings(), Settings(precision="float32", device="cpu"))
    'posenc compare rope --precision float32 --device cpu'
    """
    words = shlex.split(command)
    for name in _CHOSEN:
        if getattr(asked, name) == "auto":
            words = [*_without(words, f"--{name}"), f"--{name}", getattr(settled, name)]
    if settled.processes > 1:
        words = ["torchrun", "--nproc-per-node", str(settled.processes), "-m", *words]
    return shlex.join(words)


def _without(words: list[str], option: str) -> list[str]:
    """The words but for an option and its value, in either spelling."""
    kept, skip = list[str](), False
    for word in words:
        if not skip and word != option and not word.startswith(f"{option}="):
            kept.append(word)
        skip = not skip and word == option
    return kept
