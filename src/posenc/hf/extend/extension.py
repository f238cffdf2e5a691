"""Extends a model's context: evaluates it, applies a method to its rotation, evaluates again, and writes a folder.

    as_is     the model before, at every length
    cut       the model before, with the last tokens alone, as many as it was trained on: what cutting the text costs
    METHOD    the extended model, at every length

The readings, their log and their report are those of `posenc.hf.evaluate`: windows of one text, read by each of the
three; retrieval is measured by `posenc evaluate`, of the new folder. An extension takes hours and may be killed at any
moment: the readings and what a search has found are kept in ``OUT.work`` until the folder is complete, and the same
call goes on from there.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from posenc.arguments import check_flag, check_whole, shown
from posenc.evaluation.likelihood import (
    Text,
    Windows,
    call_model,
    check_vocabulary,
    device_of,
    evenly_spaced_pieces,
    last_logits,
    tokens_of,
    windows_of,
)
from posenc.evaluation.log import MeasurementLog, fingerprint
from posenc.evaluation.needles import needle_documents
from posenc.evaluation.report import AS_IS, CUT, PERPLEXITY, Evaluation, Reading
from posenc.hf.attach import detach
from posenc.hf.attach.loading import check_savable, opened, within_memory
from posenc.hf.attach.rotary_modules import RotaryModules, apply
from posenc.hf.attach.scaling_methods import AUTO, BY_NEEDLES, DISTANCES, RESONANT, SEARCHES, check_method
from posenc.hf.evaluate.evaluate import DEPTHS, Evaluator, item_of, name_of
from posenc.hf.evaluate.methods import SIZES, FactorSearch, Method
from posenc.hf.extend.folder import check_out, write_folder
from posenc.hf.limits import TOKENS
from posenc.hf.plan.plan import plan_extension
from posenc.hf.sources.config_files import CONFIG
from posenc.hf.sources.load import load
from posenc.search import Settings

_STEPS, _SHORT = 8, 256  # tokens that are decoded, and after how many where no length matters
_EXACT = 1e-3  # of the largest logit: the gap between float32 kernels of different shapes
_NOISE = 2.0  # times the gap of the model before, which another run of the same model can reach
_ROUNDING = 4  # units in the last place of the model's dtype, of the largest logit


@dataclass(frozen=True)
class Decoding:
    """The gap between decoding with a cache and one call, as a share of the largest logit.

    Attributes:
        tokens: at which it was measured.
        before: of the model as it was.
        after: of the extended model.
        dtype: of the model, as "bfloat16".
        length_dependent: whether the extended model's frequencies depend on the length of the text.
    """

    tokens: int
    before: float
    after: float
    dtype: str
    length_dependent: bool

    @property
    def equal(self) -> bool:
        """Whether the gap is no larger than rounding explains, by the gap of the model before and by its dtype."""
        rounding = torch.finfo(getattr(torch, self.dtype)).eps
        return self.after <= max(_EXACT, _NOISE * self.before, _ROUNDING * rounding)

    def __str__(self) -> str:
        gaps = f"{self.after:.1e} of the largest logit, {self.before:.1e} before the extension, in {self.dtype}"
        if self.equal:
            return f"Decoding with a cache equals one call at {self.tokens:,} tokens up to rounding ({gaps})."
        why = ": its frequencies depend on the length, and cached keys keep the frequencies of a shorter text"
        return (
            f"Decoding with a cache differs from one call at {self.tokens:,} tokens ({gaps})"
            f"{why if self.length_dependent else ''}."
        )


@dataclass(frozen=True)
class Extension:
    """What an extension did and what it is worth. Print it.

    Attributes:
        method: the method that was applied.
        original_length, length: training length and new context length, in tokens.
        evaluation: losses of "as_is", "cut" and the method, by length.
        decoding: decoding with a cache compared with one call, before and after.
        config: the keys of the text part on rotation and length; {} for remapped distances.
        folder: the folder that was written; None: none.
        weights: how the folder has its weights where they were linked; "" where they were written.
        model: the live, extended model.
    """

    method: str
    original_length: int
    length: int
    evaluation: Evaluation
    decoding: Decoding
    config: dict[str, Any]
    folder: str | None = None
    weights: str = ""
    model: nn.Module | None = field(default=None, repr=False, compare=False)

    @property
    def is_improvement(self) -> bool | None:
        """Whether the whole context has a lower loss than its last tokens in the model before; None: not shown."""
        for contrast in self.evaluation.contrasts():
            if (contrast.task, contrast.length, contrast.method) == (PERPLEXITY, self.length, self.method):
                return {"better": True, "worse": False}.get(contrast.verdict)
        return None

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "method": self.method, "original_length": self.original_length, "length": self.length,
            "is_improvement": self.is_improvement, "config": self.config, "decoding": asdict(self.decoding),
            "weights": self.weights, **self.evaluation.record(),
        }  # fmt: skip

    def __str__(self) -> str:
        lines = [f"{self.method}: {self.original_length:,} to {self.length:,} tokens", "", str(self.evaluation), ""]
        lines.append("Windows are of one text, and intervals over them hold for that text alone.")
        if len(self.evaluation.settings["documents"]) == 1:
            lines.append("One window gives no confidence interval, so nothing is shown. Measure more (--windows).")
        lines.append(str(self.decoding))
        if self.weights:
            lines.append(f"The weights are {self.weights}.")
        if self.folder is not None:
            lines.append(
                f"Written to {self.folder}; SERVING.md there has commands for vLLM, SGLang, llama.cpp and mlx-lm."
            )
        return "\n".join(lines)


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
    seed: int = 0,
    overwrite: bool = False,
    dtype: str = "auto",
    device: str = "cpu",
    device_map: str | None = None,
    trust_remote_code: bool = False,
    progress: Callable[[str], None] = lambda text: None,
) -> Extension:
    """Extend a model's context, and measure what the extension is worth.

    Args:
        model: a live causal model of transformers, which is changed in place; or its folder, or a GGUF file.
        length: the new context length, in tokens.
        method: one of `posenc.hf.extend.METHODS`; None or "auto": as `extend_config` plans it, what the model's
            authors document, else YaRN, and for a scaled model its own rope type with a larger factor.
        out: a new folder for weights, configuration, tokenizer and engine commands. Readings and searches are kept
            beside it, in a folder that ends in ``.work``, until everything is done: the same call resumes from there.
        text: to measure and search on: a file, tokens, or None for the built-in English (`tokens_of`).
        tokenizer: of a live model.
        original_length: the training length in tokens; None: as the configuration says.
        lengths: tokens of context at which the loss is measured; None: a quarter of the original length, that, and
            ``length``.
        windows: of text, each measured at every length.
        last: tokens at the end of each that are scored; None: 512, or an eighth of the original length if that is less.
        search: sizes of the search of "longrope" and "longrope2"; None: 48 evaluations.
        pieces: of text that a search judges on; for "longrope2" each is a needle document, which needs a tokenizer.
        seed: of a search.
        overwrite: whether an existing folder ``out`` may be replaced.
        dtype, device: of a model that is loaded; "auto": the dtype of the file; cuda, mps or cpu, the first there is.
        device_map: "auto" lets accelerate spread a model that is loaded over devices; ``device`` then has no effect.
        trust_remote_code: whether code of the folder may run.
        progress: is called with a line of text at each step.

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
    check_out(out, model, overwrite=overwrite)
    live, tokenizer = opened(
        model, tokenizer, reads_text=not isinstance(text, Tensor), dtype=dtype, device=device, device_map=device_map,
        trust_remote_code=trust_remote_code,
    )  # fmt: skip
    if out is not None:
        check_savable(live)
    rotations = RotaryModules(live)
    name, planned = _planned(rotations, name, length, original_length)
    original = _original(original_length, rotations, length)
    last = last or max(1, min(512, original // 8))
    measured_at = _lengths(lengths, original, length, last)
    tokens = tokens_of(text, tokenizer)
    check_vocabulary(tokens, live)
    work = None if out is None else Path(out).with_name(f"{Path(out).name}.work")
    change = _Change(
        rotations, name, original, length, windows_of(tokens, length, windows, last), planned, tokenizer,
        search or SIZES, pieces, seed, progress,
    )  # fmt: skip
    change.check_applicable()  # before a folder for its state exists
    if work is not None:
        work.mkdir(parents=True, exist_ok=True)
    with MeasurementLog(None if work is None else work / "readings.jsonl", lock=True) as log:
        evaluator = Evaluator(
            live, tokenizer, trained=original, lengths=measured_at, scored=last, answer_tokens=None, depths=DEPTHS,
            log=log, known=(), progress=progress,
        )  # fmt: skip
        result = _measured(change, evaluator, tokens, name_of(model))
        if work is None:
            return result
        result = _written(result, model, Path(str(out)), tokenizer, work)
    shutil.rmtree(work)
    return result


def _planned(
    rotations: RotaryModules, name: str, length: int, original_length: int | None
) -> tuple[str, dict[str, Any] | None]:
    """A method by name, and the configuration of a plan for "auto"; None: the method's own."""
    if name != AUTO:
        return name, None
    plan = plan_extension(rotations.read.facts, length, AUTO, original_length)
    if plan.method is None:
        raise ValueError(f"length: {plan.title}")
    return plan.method, rotations.config_of(plan)


def _measured(change: _Change, evaluator: Evaluator, tokens: Tensor, model: str) -> Extension:
    """Evaluate the model, change it, and evaluate it again."""
    name, length, log = change.method, change.length, evaluator.log
    longest = max(evaluator.lengths)
    items = [item_of(n, tokens[end - longest : end]) for n, end in enumerate(change.windows.ends)]

    def read(method: str, target: str = "") -> list[Reading]:
        return [
            evaluator.read(Method(method), f"{length} by {target}", PERPLEXITY, n, item)
            for n in evaluator.lengths for item in items
        ]  # fmt: skip

    readings = [*read(AS_IS), *read(CUT)]
    at, length_dependent = change.decoding_length()
    before = _decoding_gap(evaluator.model, tokens[:at], log, "before")
    evaluator.progress(f"extending by {name}")
    with within_memory(evaluator.model, length):
        extended, config = change.apply(log)
    digest = hashlib.sha256(repr(sorted(config.items())).encode()).hexdigest()[:16]
    readings += read(name, digest)
    after = _decoding_gap(extended, tokens[:at], log, f"{name} {length} {digest}")
    dtype = str(next(extended.parameters()).dtype).removeprefix("torch.")
    return Extension(
        name, change.original, length, evaluator.evaluation(model, readings, items),
        Decoding(at, before, after, dtype, length_dependent), config, model=extended,
    )  # fmt: skip


def _written(
    result: Extension, model: nn.Module | str | Path, out: Path, tokenizer: Any, work: Path
) -> Extension:  # fmt: skip
    """The extension with its folder, whose weights are links to those of the old folder where these are the same."""
    extended: Any = result.model
    source = None if isinstance(model, nn.Module) else Path(model)
    is_replaced = source is not None and out.exists() and out.samefile(source)  # which ends with it
    linked = None
    if source is not None and not is_replaced and result.method not in DISTANCES and _has_weights_of(source, extended):
        linked = source
    result = replace(result, folder=str(out))
    weights = write_folder(
        out, extended, tokenizer, length=result.length, original_length=result.original_length,
        record=result.record(), source=linked, work=work,
    )  # fmt: skip
    return replace(result, weights=weights)


_WEIGHTS = {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json"}


def _has_weights_of(folder: Path, model: Any) -> bool:
    """Whether a folder of transformers has the weights of a model in its own files, and no adapter is added to them."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if CONFIG not in names or "adapter_config.json" in names or not names & _WEIGHTS:
        return False
    return bool(load(folder / CONFIG).get("model_type") == model.config.model_type)


class _Change:
    """The change of a model's rotation by a method.

    Args:
        rotations: of the model.
        method: by name, not "auto".
        original, length: training length and new context length, in tokens.
        windows: that are scored; a search reads only the tokens before them.
        planned: the configuration of a plan; None: the method's.
        tokenizer: for needle documents.
        sizes, pieces, seed: of a search.
        progress: is called with a line of text at each step.
    """

    def __init__(
        self, rotations: RotaryModules, method: str, original: int, length: int, windows: Windows,
        planned: dict[str, Any] | None, tokenizer: Any, sizes: Settings, pieces: int, seed: int,
        progress: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.rotations, self.method, self.original, self.length = rotations, method, original, length
        self.windows, self.planned, self.pieces, self.progress = windows, planned, pieces, progress
        self.searcher: FactorSearch | None = None
        self.documents = needle_documents(windows.before, tokenizer, length, pieces) if method == BY_NEEDLES else []
        if method in (*SEARCHES, BY_NEEDLES):
            self.searcher = FactorSearch(
                rotations, original_length=original, length=length, last=windows.last, settings=sizes, seed=seed,
                gain=1.0 if self.documents else None, resonant=method.endswith(RESONANT),
            )  # fmt: skip

    def check_applicable(self) -> None:
        """Raise a ValueError where the method cannot be applied to this model, before anything is measured."""
        rotations = self.rotations
        if self.method in DISTANCES:
            if not rotations.long_range_layers(self.original):
                raise ValueError(
                    f"method {self.method}: every layer that rotates attends within a window of at most "
                    f"{self.original:,} tokens, so no distance is new"
                )
            detach(apply(rotations, self.method, self.original, self.length))
            return
        if self.planned is None:
            rotations.long_range_ropes(self.original)  # raises where every layer has a window
        if self.searcher is not None and self.documents:
            self.searcher.critical_pairs()
        elif self.searcher is not None:
            evenly_spaced_pieces(self.windows.before, self.length, self.pieces)  # refuses a text that is too short
        with rotations.temporarily(self._config()):
            pass

    def apply(self, log: MeasurementLog) -> tuple[nn.Module, dict[str, Any]]:
        """Change the model; returns it, with the keys of its configuration on rotation and length.

        Args:
            log: of the losses that a search measures.
        """
        rotations, searcher, factors = self.rotations, self.searcher, None
        if self.method in DISTANCES:
            return apply(rotations, self.method, self.original, self.length), {}
        if searcher is not None and self.documents:
            factors = searcher.search_by_needles(self.documents, log=log, progress=self.progress)
        elif searcher is not None:
            factors = searcher.search(
                evenly_spaced_pieces(self.windows.before, self.length, self.pieces), trained=self.original,
                factor=self.length / self.original, log=log, progress=self.progress,
            )  # fmt: skip
        rotations.rebuild(self._config(factors))
        return rotations.model, rotations.rotation_keys()

    def _config(self, factors: tuple[float, ...] | None = None) -> dict[str, Any]:
        """The configuration under the method; of a search with its factors, or with none that scales."""
        if self.searcher is None:
            return self.planned or self.rotations.planned_config(self.method, self.original, self.length)
        ones = (1.0,) * self.searcher.pairs
        return self.searcher.config(ones, factors or ones)

    def decoding_length(self) -> tuple[int, bool]:
        """The tokens at which decoding is compared with one call, and whether frequencies depend on the length.

        Where the length matters, decoding crosses the original one; elsewhere a short text shows as much.
        """
        length_dependent = self.method in (*SEARCHES, BY_NEEDLES, "dynamic_ntk")
        crosses = length_dependent or self.method in DISTANCES
        least = self.original + _STEPS // 2 if crosses else _SHORT
        return min(self.length, least), length_dependent


def _decoding_gap(model: nn.Module, tokens: Tensor, log: MeasurementLog, label: str) -> float:
    digest = hashlib.sha256(tokens.numpy().tobytes()).hexdigest()[:16]
    key = f"decoding {label} {fingerprint(model)} {digest}"
    known = log.get(key)
    if known is None:
        known = decoding_gap(model, tokens, min(_STEPS, len(tokens) - 1))
        log.put(key, known)
    return float(known)


@torch.no_grad()
def decoding_gap(model: nn.Module, tokens: Tensor, steps: int) -> float:
    """The largest difference of a logit, over the largest logit, in the last ``steps`` tokens of a text."""
    was_training = model.training
    model.eval()
    ids = tokens[None].to(device_of(model))
    try:
        at_once = last_logits(model, ids, steps)
        out = call_model(model, ids[:, :-steps], 1, use_cache=True)
        steps_logits = []
        for n in range(ids.shape[1] - steps, ids.shape[1]):
            out = call_model(model, ids[:, n : n + 1], 1, use_cache=True, after=out)
            steps_logits.append(out.logits[:, -1:])
    finally:
        model.train(was_training)
    gap = (torch.cat(steps_logits, 1) - at_once).float().abs().max() / at_once.float().abs().max().clamp(min=1)
    return float(gap)


def _original(original_length: int | None, rotations: RotaryModules, length: int) -> int:
    original = original_length if original_length is not None else rotations.original_length
    if original is None:
        raise ValueError("original_length must be given: the configuration does not say the model's length")
    check_whole("original_length", original, most=TOKENS)
    if length <= original:
        raise ValueError(f"length must be more than the {original:,} tokens that the model reaches, got {length:,}")
    return original


def _lengths(lengths: Iterable[int] | None, original: int, length: int, last: int) -> tuple[int, ...]:
    if lengths is None:
        return tuple(n for n in sorted({original // 4, original, length}) if n > last)
    unique = sorted(set(lengths))
    if not unique or any(type(n) is not int or not last < n <= length for n in unique):
        raise ValueError(f"lengths must be whole numbers in {last + 1}..{length}, got {shown(unique)}")
    return tuple(unique)
