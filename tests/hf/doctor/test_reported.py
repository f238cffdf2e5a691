"""Faults that people met, planted in published configs: how many are found, and no alarm without them."""

from __future__ import annotations

import pytest

from posenc.hf.doctor import examine
from tests.hf.doctor.reported import REPORTED, Reported, config_of, planted


def found(fault: Reported) -> bool:
    """Whether an alarm names one of the keys of a fault."""
    keys = {key.rpartition(".")[2] for key in fault.keys}
    return any(
        finding.alarms and finding.key.rpartition(".")[2] in keys for finding in examine(planted(fault)).findings
    )


def test_all_forty_are_found() -> None:
    missed = [f"{fault.thread}: {fault.what}" for fault in REPORTED if not found(fault)]
    assert len({fault.thread for fault in REPORTED}) == len(REPORTED) == 40
    assert not missed


@pytest.mark.parametrize("model", sorted({fault.model for fault in REPORTED}))
def test_the_config_without_the_fault_is_quiet(model: str) -> None:
    report = examine(config_of(model))
    assert report.healthy, str(report)
