"""Which encoding for a need, each sentence with the row that it rests on: ``posenc recommend`` and the decision guide.

    needs -> recommend(needs) -> choices, each with reasons; a reason has words, how sure it is, and a row
    THIRTEEN, judged(...)     what notes of learners advised, sentence by sentence, held against the same rows

Rows come from the recorded comparisons (`posenc.catalogue.studies`) and of the catalogue. Nothing here has a number
of its own: other results give other words.
"""

from __future__ import annotations

from posenc.recommend.needs import Needs
from posenc.recommend.reason import Answer, Choice, Reason
from posenc.recommend.rules import recommend

__all__ = ["Answer", "Choice", "Needs", "Reason", "recommend"]
