"""Searches for the numbers of an encoding, against any objective: LongRoPE's factors and start tokens."""

from posenc.search.evolution import Settings as Settings
from posenc.search.journal import Evaluation as Evaluation
from posenc.search.longrope import START_TOKENS as START_TOKENS
from posenc.search.longrope import Progress as Progress
from posenc.search.longrope import Result as Result
from posenc.search.longrope import search as search
from posenc.search.space import Candidate as Candidate
