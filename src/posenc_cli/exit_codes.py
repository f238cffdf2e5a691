"""The exit codes of ``posenc``, one meaning each in every command.

A command that judges (``doctor``, ``explain --live``) ends with the `code_of` its findings' levels. A command that
cannot read its input or its arguments ends with `BAD_INPUT`, prints the reason on stderr, and has judged nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

OK = 0  # no findings, or notes only
FAULT = 1  # at least one fault; in the laboratory: a job failed
BAD_INPUT = 2  # usage, or an input that cannot be read
SUSPICION = 3  # at least one suspicion and no fault, or a rotation that was not read
INTERRUPTED = 130  # Ctrl-C
BROKEN_PIPE = 141  # the reader of stdout has gone


def code_of(levels: Iterable[str], *, strict: bool = False) -> int:
    """The exit code of findings of these levels ("fault", "suspicion", "note").

    Args:
        levels: of all findings, in any order.
        strict: whether a suspicion counts as a fault, as a CI job may want it.

    >>> code_of(["note", "suspicion"]), code_of(["note", "suspicion"], strict=True), code_of(["note"])
    (3, 1, 0)
    """
    levels = set(levels)
    if "fault" in levels or (strict and "suspicion" in levels):
        return FAULT
    return SUSPICION if "suspicion" in levels else OK
