"""A report of findings on one source, as text, as JSON and as an exit code."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from posenc.hf.findings import Finding, Level, labelled
from posenc.input_files import printable
from posenc_cli.exit_codes import code_of

NOT_READ = "not-read"  # the finding on a rotation that posenc does not read
_ORDER: dict[Level, int] = {"fault": 0, "suspicion": 1, "note": 2}


class Report(NamedTuple):
    """The findings on one source, the worst first. Print it.

    Attributes:
        source: what was examined.
        findings: all of them.
        checked: what was checked: files with what was read of them, modules of a live model.
        not_checked: what was not checked and could hold a mistake; "healthy" says nothing about these.
        subject: the model type and its number of layers, "" where they are not known.
    """

    source: str
    findings: tuple[Finding, ...]
    checked: tuple[str, ...] = ()
    not_checked: tuple[str, ...] = ()
    subject: str = ""

    @property
    def healthy(self) -> bool:
        """Whether the rotation was read, and there is nothing but notes."""
        return self.is_read and not any(finding.alarms for finding in self.findings)

    @property
    def is_read(self) -> bool:
        """Whether the rotation was read; of one that was not, nothing is known."""
        return not any(finding.name == NOT_READ for finding in self.findings)

    def exit_code(self, *, strict: bool = False) -> int:
        """The code with which a command ends that reports this, as `posenc_cli.exit_codes` has them."""
        levels = [finding.level for finding in self.findings]
        return code_of(levels if self.is_read else [*levels, "suspicion"], strict=strict)

    def names(self) -> set[str]:
        """The names of suspicions and faults."""
        return {finding.name for finding in self.findings if finding.alarms}

    def accepting(self, names: set[str]) -> Report:
        """The same without the findings of these names."""
        return self._replace(findings=tuple(finding for finding in self.findings if finding.name not in names))

    def as_json(self) -> str:
        """All of it as JSON."""
        record: dict[str, Any] = {"source": self.source, "subject": self.subject, "healthy": self.healthy}
        record |= {"checked": list(self.checked), "not_checked": list(self.not_checked)}
        record["findings"] = [finding.as_dict() for finding in self.findings]
        return json.dumps(_finite(record), indent=2, default=str, allow_nan=False)

    def __str__(self) -> str:
        levels = [finding.level for finding in self.findings]
        lines = [printable(f"{self.source} ({self.subject})" if self.subject else self.source)]
        lines += [labelled("Checked", printable(", ".join(self.checked)))] if self.checked else []
        lines += [labelled("Not checked", printable(", ".join(self.not_checked)))] if self.not_checked else []
        lines += ["", *map(str, self.findings)] if self.findings else []
        if self.healthy:
            return "\n".join([*lines, "", "healthy in what was checked"])
        if not any(finding.alarms for finding in self.findings):
            return "\n".join([*lines, "", "not judged: the rotation was not read"])
        lines += ["", f"{_count(levels, 'fault')}, {_count(levels, 'suspicion')}"]
        if Path(self.source).exists() and any(item.certain and item.corrected for item in self.findings):
            lines.append(f"Write what is certain: posenc doctor {shlex.quote(printable(self.source))} --fix OUT")
        return "\n".join(lines)


def _count(levels: list[Level], level: Level) -> str:
    count = levels.count(level)
    return f"{count} {level}{'' if count == 1 else 's'}"


def _finite(value: Any) -> Any:
    """The same with NaN and infinities as text, since JSON has no such numbers and a config in Python's JSON may."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def report_of(
    source: str, findings: list[Finding], checked: Iterable[str] = (), not_checked: Iterable[str] = (),
    subject: str = "",
) -> Report:  # fmt: skip
    """A report of findings, without repetitions and the worst first."""
    unique: dict[tuple[str, str, str], Finding] = {}
    for finding in findings:
        unique.setdefault((finding.name, finding.key, finding.text), finding)
    ordered = tuple(sorted(unique.values(), key=lambda finding: _ORDER[finding.level]))
    return Report(source, ordered, tuple(checked), tuple(not_checked), subject)
