"""Checks that need torch alone: `check_encoding` of an encoding of yours, `check_batch` of a batch for a model."""

from posenc.testing.cases import Case as Case
from posenc.testing.cases import applies as applies
from posenc.testing.check_batch import BatchError as BatchError
from posenc.testing.check_batch import BatchFinding as BatchFinding
from posenc.testing.check_batch import BatchReport as BatchReport
from posenc.testing.check_batch import check_batch as check_batch
from posenc.testing.check_batch import check_collator as check_collator
from posenc.testing.exactness import Exactness as Exactness
from posenc.testing.exactness import exactness as exactness
from posenc.testing.suite import CHECKS as CHECKS
from posenc.testing.suite import SLOW as SLOW
from posenc.testing.suite import check_encoding as check_encoding
from posenc.testing.suite import checks_for as checks_for
from posenc.testing.suite import verdict as verdict

__all__ = [
    "applies", "BatchError", "BatchFinding", "BatchReport", "Case", "check_batch", "check_collator", "check_encoding",
    "CHECKS", "checks_for", "Exactness", "exactness", "SLOW", "verdict",
]  # fmt: skip
