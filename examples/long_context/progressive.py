"""LongRoPE's and LongRoPE2's recipes, which search factors and train.

    python -m examples.long_context.progressive MODEL OUT --length 65536 --intermediate 32768 --steps 400 --rank 16
    python -m examples.long_context.progressive MODEL OUT --length 65536 --short-share 0.3 --steps 400 --rank 16

LongRoPE's progressive recipe:

    1  factors for the intermediate length      searched on the original model
    2  fine-tuning at the intermediate length   with these factors
    3  factors for the target, on top of those  searched on the tuned model; none where the intermediate is the target
    4  factors for the training length          searched on the tuned model, at most those of the intermediate length

LongRoPE2's, with mixed windows (`examples.long_context.tuning`, a share of short ones above 0):

    1  critical pair and factors for the target searched on the original model, by needles
    2  fine-tuning at the target                short windows under the original rotation, long ones under the factors

Each step saves its results as they come: searches after each evaluation, the training every few steps. The same call
resumes from there, with the result of an uninterrupted run.

Source: Ding et al., LongRoPE, arXiv 2402.13753, sections 3.3 and 4.1; Shang et al., LongRoPE2, arXiv 2502.20082,
    sections 3.2 and 3.3.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from examples.long_context.command_line import load_and_write, parser_of, recipe_of
from examples.long_context.tuning import Recipe, check_documents_masked, draw_short_rows, tune
from torch import Tensor, nn

from posenc.evaluation.likelihood import evenly_spaced_pieces
from posenc.evaluation.log import MeasurementLog
from posenc.evaluation.needles import needle_documents
from posenc.hf.attach.rotary_modules import RotaryModules
from posenc.hf.evaluate.methods import SIZES, FactorSearch
from posenc.search import Settings


def train(
    model: nn.Module, text: Tensor, length: int, *, recipe: Recipe, work: Path, intermediate: int | None = None,
    original_length: int | None = None, tokenizer: Any = None, sizes: Settings = SIZES, pieces: int = 2,
    last: int | None = None, progress: Callable[[str], None] = print,
) -> RotaryModules:  # fmt: skip
    """Run a recipe on a model, in place: LongRoPE2's where the recipe mixes windows, else LongRoPE's.

    Args:
        model: a live causal model of transformers.
        text: tokens to search and train on.
        length: tokens that it is extended to.
        recipe: numbers of the training.
        work: folder of the state, from which the same call resumes.
        intermediate: tokens, as `intermediate_length` takes it.
        original_length: tokens; None: as the configuration says.
        tokenizer: for LongRoPE2's needle documents.
        sizes, pieces: of the searches, and of the texts that they judge by.
        last: tokens at the end of each text that are scored; None: 512, or an eighth of the original length.
        progress: is called with a line of text.

    Raises:
        ValueError: for a model or a text that the recipe cannot take.
    """
    rotations = RotaryModules(model)
    original = original_length or rotations.original_length
    if original is None:
        raise ValueError("original_length must be given: the configuration does not say the model's length")
    middle = intermediate_length(intermediate, original, length, mixed=bool(recipe.short_share))
    searcher = FactorSearch(
        rotations, original_length=original, length=length, last=last or max(1, min(512, original // 8)),
        settings=sizes, seed=recipe.seed, gain=1.0 if recipe.short_share else None,
    )  # fmt: skip
    if recipe.short_share:
        draw_short_rows(text, recipe, length, original, 0)  # refuses rows and texts that are too short
        check_documents_masked(model)
        documents = needle_documents(text, tokenizer, length, pieces)
        factors = searcher.search_by_needles(documents, log=MeasurementLog(work / "search.jsonl"), progress=progress)
        # The short factors and the gain are 1, so that a window of at most the training length has the original
        # rotation; transformers chooses the set by the length of a call, in training as at inference.
        rotations.rebuild(searcher.config((1.0,) * searcher.pairs, factors))
        rotations.model = tune(
            model, text, recipe, length, original_length=original, state=work / "tuned.pt", progress=progress
        )
        return rotations

    def search(name: str, at: int, trained: int, factor: float, onto: tuple[float, ...] | None) -> tuple[float, ...]:
        return searcher.search(
            evenly_spaced_pieces(text, at, pieces), trained=trained, factor=factor, onto=onto,
            log=MeasurementLog(work / "search.jsonl"), progress=lambda line: progress(f"{name} length, {line}"),
        )  # fmt: skip

    first = search("middle", middle, original, middle / original, None)
    rotations.rebuild(searcher.config(first, first))
    rotations.model = tune(model, text, recipe, middle, state=work / "tuned.pt", progress=progress)
    last_factors = first if middle == length else search("target", length, middle, length / middle, first)
    short = search("short", original, original, middle / original, None)
    rotations.rebuild(searcher.config(short, last_factors))
    return rotations


def intermediate_length(intermediate: int | None, original_length: int, length: int, *, mixed: bool = False) -> int:
    """The context length of the fine-tuning.

    Args:
        intermediate: tokens; None: half of the target, or all of it where half is no more than the training length.
        original_length, length: training length and target, in tokens.
        mixed: whether windows are mixed, which LongRoPE2 trains at the target alone.

    Raises:
        ValueError: unless it is above the training length and at most the target; with mixed windows, the target.
    """
    if mixed:
        if intermediate not in (None, length):
            raise ValueError(
                f"intermediate must be the target, {length}, where windows are mixed (short_share): LongRoPE2 trains "
                f"there alone; got {intermediate}"
            )
        return length
    half = length // 2
    intermediate = intermediate or (half if half > original_length else length)
    if not original_length < intermediate <= length:
        raise ValueError(
            f"intermediate must lie in {original_length + 1}..{length}, above the training length and at most the "
            f"target, got {intermediate}"
        )
    return intermediate


def main() -> None:
    """The command."""
    parser = parser_of(__doc__)
    parser.add_argument("--intermediate", type=int, help="length of the fine-tuning (default: half of --length)")
    parser.add_argument("--short-share", type=float, default=0.0, help="share of short windows, as LongRoPE2 (0.3)")
    parser.add_argument("--search", type=int, default=SIZES.population, help="first candidates of a search")
    parser.add_argument("--generations", type=int, default=SIZES.generations, help="of a search")
    options = parser.parse_args()
    half = max(1, options.search // 2)
    sizes = Settings(population=options.search, mutations=(half + 1) // 2, crossovers=(half + 1) // 2, parents=half,
                     generations=options.generations)  # fmt: skip
    load_and_write(
        options,
        lambda model, text, tokenizer, work, progress: train(
            model, text, options.length, recipe=recipe_of(options, short_share=options.short_share), work=work,
            intermediate=options.intermediate, original_length=options.original_length, tokenizer=tokenizer,
            sizes=sizes, pieces=options.pieces, progress=progress,
        ),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
