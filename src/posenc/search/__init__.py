"""Searches for the numbers of an encoding, against any objective: the factors of LongRoPE and LongRoPE2."""

from posenc.search.evolution import Settings as Settings
from posenc.search.longrope import START_TOKENS as START_TOKENS
from posenc.search.longrope import Evaluation as Evaluation
from posenc.search.longrope import Progress as Progress
from posenc.search.longrope import Result as Result
from posenc.search.longrope import search as search
from posenc.search.longrope2 import CriticalPairs as CriticalPairs
from posenc.search.longrope2 import critical_pairs as critical_pairs
from posenc.search.longrope2 import search_longrope2 as search_longrope2
from posenc.search.space import Candidate as Candidate
