"""Checks that every encoding must pass, which need torch alone: `check_encoding` runs them over one of yours."""

from posenc.testing.cases import Case as Case
from posenc.testing.cases import applies as applies
from posenc.testing.exactness import Exactness as Exactness
from posenc.testing.exactness import exactness as exactness
from posenc.testing.suite import CHECKS as CHECKS
from posenc.testing.suite import SLOW as SLOW
from posenc.testing.suite import check_encoding as check_encoding
from posenc.testing.suite import checks_for as checks_for
from posenc.testing.suite import verdict as verdict

__all__ = ["applies", "Case", "check_encoding", "CHECKS", "checks_for", "Exactness", "exactness", "SLOW", "verdict"]
