"""`posenc evaluate`: likelihood and retrieval of a checkpoint by length, as it is and under context extensions."""

from posenc.hf.evaluate.evaluate import evaluate as evaluate
from posenc.hf.evaluate.methods import Method as Method

__all__ = ["evaluate", "Method"]
