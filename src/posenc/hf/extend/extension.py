"""extend(): another method for a model's rotation, what it is worth, and a folder with the result."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from torch import nn

from posenc.arguments import check_flag, check_whole, shown
from posenc.hf.extend.folder import Work
from posenc.hf.extend.job import Job
from posenc.hf.extend.loading import loaded
from posenc.hf.extend.methods import AUTO, check_method
from posenc.hf.extend.result import Extension
from posenc.hf.extend.rotations import Rotations
from posenc.hf.extend.searching import SIZES
from posenc.hf.extend.tuning import Recipe
from posenc.hf.numbers import TOKENS
from posenc.hf.texts import Text, check_room, check_vocabulary, tokens_of, windows_of
from posenc.search import Settings


def extend(
    model: nn.Module | str | Path,
    length: int,
    method: str | None = None,
    *,
    out: str | Path | None = None,
    text: Text = None,
    tokenizer: Any = None,
    original_length: int | None = None,
    lengths: Iterable[int] | None = None,
    windows: int = 4,
    last: int | None = None,
    search: Settings | None = None,
    pieces: int = 2,
    recipe: Recipe | None = None,
    overwrite: bool = False,
    dtype: str = "auto",
    device: str = "cpu",
    trust_remote_code: bool = False,
    progress: Callable[[str], None] = lambda told: None,
) -> Extension:
    """Extend a model to a longer text, and measure what that is worth.

    Args:
        model: a live causal model of transformers, which is changed in place; or its folder, or a GGUF file.
        length: tokens that it is to read.
        method: one of `posenc.hf.extend.METHODS`; None or "auto": the one of yarn, ntk, llama3 and dynamic_ntk with
            the lowest loss at ``length``.
        out: a new folder for weights, configuration, tokenizer and lines for engines. Beside it lies the state, in a
            folder that ends in ``.work``, until all is done: the same call goes on from there.
        text: to measure, search and train on: a file, tokens, or None for the built-in English (`tokens_of`).
        tokenizer: of a live model.
        original_length: tokens that it was trained at; None: what its configuration says.
        lengths: tokens of context at which the loss is measured; None: a quarter of the original length, that, and
            ``length``.
        windows: of text, each measured at every length.
        last: tokens at the end of each that are scored; None: 512, or an eighth of the original length if that is less.
        search: sizes of the search of "longrope" and "progressive"; None: 48 evaluations.
        pieces: of text that a search and "auto" judge on.
        recipe: numbers of "progressive".
        overwrite: whether ``out`` may take the place of a folder that is there.
        dtype, device: of a model that is loaded.
        trust_remote_code: whether code of the folder may run.
        progress: is told where it stands.

    Raises:
        ValueError: for a model whose rotation cannot be replaced, and for a request that makes no sense.
        OSError: for files that cannot be read or written.
    """
    name = check_method(AUTO if method is None else method)
    check_flag("overwrite", overwrite)
    check_flag("trust_remote_code", trust_remote_code)
    check_whole("length", length, most=TOKENS)
    for word, number in (("windows", windows), ("pieces", pieces)):
        check_whole(word, number, least=1)
    if isinstance(model, nn.Module):
        live = model
    else:
        live, found = loaded(model, dtype=dtype, device=device, trust_remote_code=trust_remote_code)
        tokenizer = tokenizer or found
    rotations = Rotations(live)
    original = _original(original_length, rotations, length)
    last = last or max(1, min(512, original // 8))
    tokens = tokens_of(text, tokenizer)
    check_room(tokens, text, length + (windows - 1) * last)
    check_vocabulary(tokens, live)
    chosen = windows_of(tokens, length, windows, last)
    at = _lengths(lengths, original, length, last)
    job = Job(rotations, name, original, length, chosen, at, search or SIZES, pieces, recipe or Recipe(), progress)
    job.check_applicable()  # before a folder for its state exists
    work = Work(out, job.request(), overwrite=overwrite)
    if work.finished is not None:
        done = loaded(str(work.out), dtype=dtype, device=device, trust_remote_code=trust_remote_code).model
        return _with_model(Extension.of_record(work.finished, str(out)), done)
    return job.run(work, tokenizer)


def _original(given: int | None, rotations: Rotations, length: int) -> int:
    found = given if given is not None else rotations.original_length
    if found is None:
        raise ValueError("original_length must be given: the configuration says nothing of the model's length")
    check_whole("original_length", found, most=TOKENS)
    if length <= found:
        raise ValueError(f"length must be more than the {found:,} tokens that the model reaches, got {length:,}")
    return found


def _lengths(given: Iterable[int] | None, original: int, length: int, last: int) -> tuple[int, ...]:
    found = sorted({original // 4, original, length} if given is None else set(given))
    if given is None:
        found = [n for n in found if n > last]
    if not found or any(type(n) is not int or not last < n <= length for n in found):
        raise ValueError(f"lengths must be whole numbers in {last + 1}..{length}, got {shown(found)}")
    return tuple(found)


def _with_model(extension: Extension, model: nn.Module) -> Extension:
    return Extension(**{**vars(extension), "model": model})
