"""A report of findings on one source, as text, as JSON and as an exit code."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from posenc.hf.findings import Finding, Level
from posenc.input_files import printable
from posenc_cli.exit_codes import code_of

_ORDER: dict[Level, int] = {"fault": 0, "suspicion": 1, "note": 2}


class Report(NamedTuple):
    """What was found in one source, the worst first. Print it.

    Attributes:
        source: what was examined.
        findings: each of them.
        checked: what was looked at: files with what was read of them, modules of a live model.
        not_checked: what was not, and could hold a fault of positions; "healthy" says nothing of these.
    """

    source: str
    findings: tuple[Finding, ...]
    checked: tuple[str, ...] = ()
    not_checked: tuple[str, ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether there is nothing but notes."""
        return not any(one.alarms for one in self.findings)

    def exit_code(self, *, strict: bool = False) -> int:
        """The code with which a command ends that reports this, as `posenc_cli.exit_codes` has them."""
        return code_of((one.level for one in self.findings), strict=strict)

    def names(self) -> set[str]:
        """The names of what is a suspicion or a fault."""
        return {one.name for one in self.findings if one.alarms}

    def accepting(self, names: set[str]) -> Report:
        """The same without the findings of these names."""
        return self._replace(findings=tuple(one for one in self.findings if one.name not in names))

    def as_json(self) -> str:
        """All of it as JSON."""
        known: dict[str, Any] = {"source": self.source, "healthy": self.healthy}
        known |= {"checked": list(self.checked), "not_checked": list(self.not_checked)}
        known["findings"] = [one.as_dict() for one in self.findings]
        return json.dumps(_finite(known), indent=2, default=str, allow_nan=False)

    def __str__(self) -> str:
        faults, suspicions = (sum(one.level == level for one in self.findings) for level in ("fault", "suspicion"))
        lines = [printable(self.source)]
        lines += [f"checked       {', '.join(self.checked)}"] if self.checked else []
        lines += [f"not checked   {', '.join(self.not_checked)}"] if self.not_checked else []
        lines += ["", *map(str, self.findings)] if self.findings else []
        if self.healthy:
            return "\n".join([*lines, "", "healthy in what was checked"])
        return "\n".join([*lines, "", f"{_several(faults, 'fault')}, {_several(suspicions, 'suspicion')}"])


def _several(count: int, name: str) -> str:
    return f"{count} {name}{'' if count == 1 else 's'}"


def _finite(value: Any) -> Any:
    """The same with NaN and infinities as text, since JSON has no such numbers and a config in Python's JSON may."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def report_of(
    source: str, findings: list[Finding], checked: Iterable[str] = (), not_checked: Iterable[str] = ()
) -> Report:
    """A report of these, each once, the worst first, with what was looked at and what was not."""
    once: dict[tuple[str, str, str], Finding] = {}
    for one in findings:
        once.setdefault((one.name, one.key, one.text), one)
    ordered = tuple(sorted(once.values(), key=lambda one: _ORDER[one.level]))
    return Report(source, ordered, tuple(checked), tuple(not_checked))
