"""Search LongRoPE's factors for a cheap objective; with a model, return its perplexity on long texts."""

import math

from posenc import LongRoPE, RoPE
from posenc.search import Candidate, Progress, Settings, search

PAIRS, TRAINED, FACTOR = 16, 2048, 8.0


def objective(candidate: Candidate) -> float:
    """Stands for a perplexity: factors should follow a curve, and the first four tokens stay plain."""
    ideal = [1 + (FACTOR - 1) / (1 + math.exp(8 - j)) for j in range(PAIRS)]
    off = sum((math.log(f) - math.log(w)) ** 2 for f, w in zip(candidate.factors, ideal, strict=True))
    return 2 + off / PAIRS + 0.01 * abs(candidate.start_tokens - 4)


def tell(progress: Progress) -> None:
    if progress.generation % 5 == 0:
        print(f"generation {progress.generation:2}: {progress.fitness:.5f} after {progress.evaluations} evaluations")


if __name__ == "__main__":
    result = search(
        objective,
        pairs=PAIRS,
        original_length=TRAINED,
        factor=FACTOR,
        settings=Settings(generations=20),
        start_tokens=(0, 1, 2, 4, 8, 16),
        progress=tell,
    )
    print("factors:", result.factors, " start tokens:", result.start_tokens)
    scaling = LongRoPE(
        [1.0] * PAIRS, result.factors, original_length=TRAINED, factor=FACTOR, start_tokens=result.start_tokens
    )
    print(RoPE(2 * PAIRS, scaling=scaling))
