"""What was measured of each encoding, for its page. No number is typed anywhere else."""

from __future__ import annotations

from pathlib import Path

from posenc.catalogue.measured import RECORDED
from posenc.catalogue.studies import Study, StudyRow, studies

RESULTS = Path(__file__).parents[1] / "docs" / "results"


def measured(name: str) -> list[tuple[Study, StudyRow]]:
    """Each recorded comparison that has an encoding among its rows, with its row under full attention."""
    return [(study, study.rows[name]) for study in studies() if name in study.rows]


def tables_of(name: str) -> list[str]:
    """Folders of comparisons that have an encoding among their rows, the older ones, which have a table alone, too."""
    return [folder for folder, names in RECORDED.items() if name in names]
