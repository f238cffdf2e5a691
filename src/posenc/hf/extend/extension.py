"""Extends a model's context: measures it, applies a method to its rotation, measures again, and writes a folder."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from torch import nn

from posenc.arguments import check_flag, check_whole, shown
from posenc.evaluation.likelihood import (
    Text,
    Windows,
    check_room,
    check_vocabulary,
    evenly_spaced_pieces,
    token_losses,
    tokens_of,
    windows_of,
)
from posenc.evaluation.log import MeasurementLog, fingerprint
from posenc.evaluation.needles import ScoredText, needle_documents
from posenc.hf.attach import detach
from posenc.hf.extend.drope import RECIPE, TEMPERATURES, check_qk_norm, dropped_config, with_qk_norm
from posenc.hf.extend.estimate import Workload, duration, memory_text, within_memory
from posenc.hf.extend.folder import OutputFolder, serving_lines, serving_lines_of_remapping
from posenc.hf.extend.loading import is_folder_of_transformers, load_causal_lm
from posenc.hf.extend.measure import Decoding, WindowLosses, decoding_gap, measure_losses
from posenc.hf.extend.methods import (
    AUTO,
    BY_NEEDLES,
    DISTANCES,
    DROPE,
    PROGRESSIVE,
    SEARCHED,
    TRAINED_BY,
    check_method,
)
from posenc.hf.extend.plan import Plan, Refused, plan_extension, planned_method
from posenc.hf.extend.result import Extension
from posenc.hf.extend.retrieval import Retrieval, RetrievalTask
from posenc.hf.extend.rotary_modules import RotaryModules, apply, scaled_config
from posenc.hf.extend.search import (
    SIZES,
    FactorSearch,
    intermediate_length,
    mixed_window_training,
    progressive_search,
)
from posenc.hf.extend.tuning import Recipe, check_documents_masked, draw_rows, draw_short_rows, tune
from posenc.hf.extend.weight_files import weight_files
from posenc.hf.limits import TOKENS
from posenc.search import Settings

_STEPS, _SHORT = 8, 256  # tokens that are decoded, and after how many where no length matters


class ContextExtension:
    """One context extension, from the first measurement to the folder."""

    def __init__(
        self, rotations: RotaryModules, method: str, plan: Plan | None, original: int, length: int, windows: Windows,
        lengths: tuple[int, ...], sizes: Settings, pieces: int, recipe: Recipe, retrieval: RetrievalTask | None,
        source: Path | None, progress: Callable[[str], None], tokenizer: Any = None,
    ) -> None:  # fmt: skip
        self.rotations, self.method, self.plan, self.original, self.length = rotations, method, plan, original, length
        self.windows, self.lengths, self.sizes, self.pieces = windows, lengths, sizes, pieces
        self.recipe, self.retrieval, self.source, self.progress = recipe, retrieval, source, progress
        self.weights = fingerprint(rotations.model)
        self.choices: dict[str, tuple[float, ...]] = {}
        if recipe.short_share and method != PROGRESSIVE:
            raise ValueError(f"short_share mixes the windows of method progressive, which trains, got method {method}")
        self.mixed = bool(recipe.short_share)
        self.workload = Workload(rotations.model, self._readings())
        if method == PROGRESSIVE:
            intermediate_length(recipe, original, length)
        self.documents: list[ScoredText] = []
        if method == BY_NEEDLES or self.mixed:
            self.documents = needle_documents(windows.before, tokenizer, length, pieces)

    def request(self) -> dict[str, Any]:
        """Everything that decides the outcome, as plain data."""
        request = {
            "model": self.weights, "method": self.method, "original_length": self.original, "length": self.length,
            "text": self.windows.digest, "windows": len(self.windows.ends), "last": self.windows.last,
            "lengths": list(self.lengths), "pieces": self.pieces, "search": asdict(self.sizes),
            "seed": self.recipe.seed,
        }  # fmt: skip
        if self.retrieval is not None:
            request["retrieval"] = self.retrieval.count
        return {**request, "recipe": asdict(self.recipe)} if self.method in TRAINED_BY else request

    def _readings(self) -> Counter[int]:
        """How many texts of each length are read in all; a fine-tuning step counts as three readings of its rows."""
        readings = Counter(dict.fromkeys(self.lengths, 2 * len(self.windows.ends)))
        if self.retrieval is not None:
            readings.update(self.retrieval.readings())
        sizes, recipe = self.sizes, self.recipe
        searches = self.pieces * (sizes.population + sizes.generations * (sizes.mutations + sizes.crossovers))
        if self.method in (SEARCHED, BY_NEEDLES) or self.mixed:
            readings[self.length] += searches
        if self.method == PROGRESSIVE:
            middle = intermediate_length(recipe, self.original, self.length)
            for n in {middle, self.length, self.original} if not self.mixed else ():
                readings[n] += searches
            readings[recipe.tokens or middle] += 3 * recipe.steps * recipe.batch
        if self.method == DROPE:
            readings[self._row_length()] += 3 * recipe.steps * recipe.batch
            if recipe.temperature == "auto":
                readings[self.length] += self.pieces * len(TEMPERATURES)
        return readings

    def run(self, output: OutputFolder, tokenizer: Any) -> Extension:
        """Measure, apply the method, measure again, and write the folder."""
        if self.method in TRAINED_BY and output.state is None:
            raise ValueError(f"out: {self.method} trains, and needs a folder, next to which it keeps its state")
        cache = MeasurementLog(output.file("measured.jsonl"))
        self._estimate(cache, output)
        before = self._measure(cache, "before")
        answers_before = self._retrieve(cache, "before", extended=False)
        method = self.method
        gap_before = self._decoding_gap(self.rotations.model, method, cache, "before")
        self.progress(f"extending by {method}")
        with within_memory(self.rotations.model, self.length):
            model, config = self._apply(method, output, cache)
        if method in (SEARCHED, BY_NEEDLES, *TRAINED_BY):
            self.workload.left = Counter(self._readings_after())
        label = f"after {method} {fingerprint(model)}"
        after = self._measure(cache, label)
        answers_after = self._retrieve(cache, label, extended=True)
        at, length_dependent = self._decoding_length(method)
        gap = self._decoding_gap(model, method, cache, f"after {method}")
        decoding = Decoding(
            at, gap_before, gap, str(next(model.parameters()).dtype).removeprefix("torch."), length_dependent
        )
        result = Extension(
            method, self.original, self.length, before, after, self.choices, decoding, config,
            None if output.path is None else str(output.path), model,
            retrieval={
                n: Retrieval(answers_before[n], answers_after[n], cut=n > self.original) for n in answers_after
            },
        )  # fmt: skip
        if output.path is not None:
            record = {"request": self.request(), **result.record()}
            weights = output.finish(
                model, tokenizer, record, self._serving(result, str(output.path)), length=self.length,
                original_length=self.original, source=self._linked(),
            )  # fmt: skip
            result = replace(result, weights=weights)
        return result

    def _readings_after(self) -> Counter[int]:
        """The readings that are left once the method is applied."""
        readings = Counter(dict.fromkeys(self.lengths, len(self.windows.ends)))
        if self.retrieval is not None:
            readings.update(dict.fromkeys(self.retrieval.lengths, self.retrieval.count))
        return readings

    def _estimate(self, cache: MeasurementLog, output: OutputFolder) -> None:
        """Report what the whole extension takes, before the first window is read."""
        model = self.rotations.model
        with within_memory(model, min(self.lengths)):
            self.workload.probe(model, self.windows.tokens)
        saved = f"; {len(cache.known)} measurements are saved and are not repeated" if cache.known else ""
        self.progress(
            f"estimate: about {duration(self.workload.seconds_left)} at the pace of a short probe; long texts may be "
            f"slower{saved}"
        )
        decodes = self.retrieval is not None
        self.progress(f"estimate: {memory_text(model, self.length, self.windows.last, decodes=decodes)}")
        if self.retrieval is None:
            self.progress("retrieval is not measured; --retrieval 20 hides a fact in 20 texts of each length")
        if output.path is not None:
            self.progress(f"estimate: the folder needs {output.check_writable(model, self._linked())}")

    def _measure(self, cache: MeasurementLog, label: str) -> dict[int, WindowLosses]:
        losses: dict[int, WindowLosses] = {}
        for n in self.lengths:
            with within_memory(self.rotations.model, n):
                losses[n] = measure_losses(
                    self.rotations.model, self.windows, n, cache, label, self.progress, self.workload
                )
            self.progress(f"{label.split()[0]}, {n:,} tokens: {losses[n].text()} nats")
        return losses

    def _retrieve(self, cache: MeasurementLog, label: str, *, extended: bool) -> dict[int, tuple[bool, ...]]:
        """Which prompts of each length the model answers correctly."""
        if self.retrieval is None:
            return {}
        answers: dict[int, tuple[bool, ...]] = {}
        for n in self.retrieval.lengths:
            read, correct = self.retrieval.read_length(n, extended=extended), list[bool]()
            for number in range(self.retrieval.count):
                key = f"retrieval {label} {self.windows.digest} {self.original} {n} {number}"
                known, seconds = cache.get(key), None
                if known is None:
                    start = time.perf_counter()
                    with within_memory(self.rotations.model, read):
                        known = self.retrieval.answers(self.rotations.model, number, n, extended=extended)
                    seconds = time.perf_counter() - start
                    cache.put(key, known)
                self.workload.done(read, seconds)
                correct.append(bool(known))
                if seconds is not None:
                    outcome = "found" if known else "not found"
                    self.progress(
                        f"  fact {number + 1} of {self.retrieval.count}, {n:,} tokens: {outcome}, {seconds:.1f} s; "
                        f"{self.workload.time_left()}"
                    )
            answers[n] = tuple(correct)
            self.progress(f"{label.split()[0]}, {n:,} tokens: {sum(correct)} of {len(correct)} facts found")
        return answers

    def _linked(self) -> Path | None:
        """The folder whose weights the new one links; None where they are written."""
        unchanged = self.method not in (*TRAINED_BY, *DISTANCES)
        return self.source if unchanged and self.source is not None and weight_files(self.source) else None

    def check_applicable(self) -> None:
        """Raise a ValueError where the method cannot be applied to this model, before anything is measured."""
        rotations = self.rotations
        if self.method in TRAINED_BY:
            _check_trainable(rotations.model, self.method)
        if self.method in DISTANCES:
            if not rotations.long_range_layers(self.original):
                raise ValueError(
                    f"method {self.method}: every layer that rotates attends within a window of at most "
                    f"{self.original:,} tokens, so no distance is new"
                )
            detach(apply(rotations, self.method, self.original, self.length))
            return
        if self.plan is None and not rotations.long_range_ropes(self.original):
            raise ValueError(
                f"method {self.method}: every layer that rotates attends within a window of at most "
                f"{self.original:,} tokens, so no distance is new"
            )
        if self.method == DROPE:
            self._check_droppable()
            return
        if self.method in (SEARCHED, PROGRESSIVE):
            evenly_spaced_pieces(self.windows.before, self.length, self.pieces)  # refuses a text that is too short
        if self.method in (SEARCHED, BY_NEEDLES, PROGRESSIVE):
            searcher = self._searcher()
            if self.documents:
                searcher.critical_pairs()
        if self.mixed:
            draw_short_rows(self.windows.before, self.recipe, self.length, self.original, 0)
            check_documents_masked(rotations.model)
        name = "pi" if self.method in (SEARCHED, BY_NEEDLES, PROGRESSIVE) else self.method
        with rotations.temporarily(self._scaled_config(name)):
            pass

    def _scaled_config(self, method: str) -> dict[str, Any]:
        """The configuration that the plan writes; of a method that no config alone can have, the modules' own."""
        if self.plan is not None:
            return self.rotations.config_of(self.plan)
        return scaled_config(self.rotations, method, self.original, self.length)

    def _check_droppable(self) -> None:
        """Raise a ValueError where DroPE cannot be applied, before anything is measured."""
        recipe, rotations = self.recipe, self.rotations
        if recipe.qk_norm is not None:
            check_qk_norm(rotations.model, recipe.qk_norm)
        temperatures = TEMPERATURES if recipe.temperature == "auto" else (recipe.temperature,)
        with rotations.temporarily(dropped_config(rotations, self.original, self.length, temperatures[-1])):
            pass
        if recipe.temperature == "auto":
            evenly_spaced_pieces(self.windows.before, self.length, self.pieces)
        draw_rows(self.windows.before, recipe, self._row_length(), 0)

    def _row_length(self) -> int:
        """Tokens of a row of DroPE: shorter rows are whole too, as no position that is skipped would be read."""
        return min(self.recipe.tokens or self.original, self.original)

    def _drop_rotation(self, output: OutputFolder, cache: MeasurementLog) -> nn.Module:
        """Drop the rotation, train at the original length, and set the temperature; returns the model."""
        assert output.state is not None
        recipe = self.recipe
        if recipe.qk_norm is not None:
            self.rotations = RotaryModules(with_qk_norm(self.rotations.model, recipe.qk_norm))
        rotations = self.rotations
        rotations.rebuild(dropped_config(rotations, self.original, self.length))
        model = tune(
            rotations.model, self.windows.before, recipe, self._row_length(), state=output.state / "tuned.pt",
            progress=self.progress,
        )  # fmt: skip
        temperature = self._choose_temperature(cache) if recipe.temperature == "auto" else recipe.temperature
        rotations.rebuild(dropped_config(rotations, self.original, self.length, temperature))
        return model

    def _choose_temperature(self, cache: MeasurementLog) -> float:
        """The temperature with the lowest loss at the target, on tokens that no window scores."""
        named = {f"temperature {value:g}": value for value in TEMPERATURES}
        new = {name: dropped_config(self.rotations, self.original, self.length, value) for name, value in named.items()}
        return named[self._lowest_loss(new, cache)]

    def _apply(self, method: str, output: OutputFolder, cache: MeasurementLog) -> tuple[nn.Module, dict[str, Any]]:
        """Apply the method; returns the model and the keys of its configuration on rotation and length."""
        rotations, model = self.rotations, self.rotations.model
        if method == DROPE:
            return self._drop_rotation(output, cache), self._rotation_keys()
        if method in DISTANCES:
            return apply(rotations, method, self.original, self.length), {}
        if method == PROGRESSIVE:
            assert output.state is not None
            searcher, text, work = self._searcher(), self.windows.before, output.state
            if self.mixed:
                trained = mixed_window_training(
                    searcher, text, self.recipe, documents=self.documents, work=work, progress=self.progress
                )
            else:
                trained = progressive_search(
                    searcher, text, self.recipe, pieces=self.pieces, work=work, progress=self.progress
                )
            return trained, self._rotation_keys()
        if method in (SEARCHED, BY_NEEDLES):
            searcher, journal = self._searcher(), output.file("search.jsonl")
            if method == BY_NEEDLES:
                factors = searcher.search_by_needles(self.documents, journal=journal, progress=self.progress)
            else:
                factors = searcher.search(
                    evenly_spaced_pieces(self.windows.before, self.length, self.pieces), trained=self.original,
                    factor=self.length / self.original, journal=journal, progress=self.progress,
                )  # fmt: skip
            rotations.rebuild(searcher.config((1.0,) * searcher.pairs, factors))
        else:
            rotations.rebuild(self._scaled_config(method))
        return model, self._rotation_keys()

    def _searcher(self) -> FactorSearch:
        return FactorSearch(
            self.rotations, original_length=self.original, length=self.length, last=self.windows.last,
            settings=self.sizes, seed=self.recipe.seed, gain=1.0 if self.documents else None,
        )  # fmt: skip

    def _rotation_keys(self) -> dict[str, Any]:
        """The keys of the live configuration on rotation and length."""
        config = self.rotations.config.to_dict()
        return {key: config[key] for key in ("rope_parameters", "max_position_embeddings") if key in config}

    def _lowest_loss(self, configs: Mapping[str, dict[str, Any]], cache: MeasurementLog) -> str:
        """Which of several rotations has the lowest loss at the target, on tokens that no window scores."""
        pieces = evenly_spaced_pieces(self.windows.before, self.length, self.pieces)
        for name, new in configs.items():
            key = f"choice {name} {self.windows.digest} {self.length} {self.pieces} {self.windows.last}"
            known, seconds = cache.get(key), None
            if known is None:
                start, losses = time.perf_counter(), list[float]()
                with self.rotations.temporarily(new), within_memory(self.rotations.model, self.length):
                    for piece in pieces:
                        losses.append(float(token_losses(self.rotations.model, piece, self.windows.last).mean()))
                known, seconds = losses, time.perf_counter() - start
                cache.put(key, known)
            self.workload.done(self.length, seconds, len(pieces))
            self.choices[name] = tuple(known)
            self.progress(f"{name}: {WindowLosses(tuple(known)).text()} nats; {self.workload.time_left()}")
        return min(self.choices, key=lambda name: WindowLosses(self.choices[name]).mean)

    def _decoding_length(self, method: str) -> tuple[int, bool]:
        """The tokens at which decoding is compared with one call, and whether the method depends on the length.

        Where the length matters, decoding crosses the original one; elsewhere a short text shows as much.
        """
        length_dependent = method in (SEARCHED, BY_NEEDLES, PROGRESSIVE, "dynamic_ntk")
        crosses = length_dependent or method in DISTANCES
        return min(self.length, self.original + _STEPS // 2) if crosses else min(self.length, _SHORT), length_dependent

    def _decoding_gap(self, model: nn.Module, method: str, cache: MeasurementLog, label: str) -> float:
        at, _ = self._decoding_length(method)
        key = f"decoding {label} {fingerprint(model)} {self.windows.digest} {at}"
        known = cache.get(key)
        if known is None:
            known = [decoding_gap(model, self.windows.tokens[:at], min(_STEPS, at - 1))]
            cache.put(key, known)
        return float(known[0])

    def _serving(self, result: Extension, folder: str) -> str:
        if result.method in DISTANCES:
            return serving_lines_of_remapping(folder, result.method)
        config = self.rotations.model.config.to_dict()
        return serving_lines(config, folder, self.length, trained=result.method in TRAINED_BY)


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
    retrieval: int = 0,
    search: Settings | None = None,
    pieces: int = 2,
    recipe: Recipe | None = None,
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
        out: a new folder for weights, configuration, tokenizer and engine commands. The state is kept beside it, in a
            folder that ends in ``.work``, until everything is done: the same call resumes from there.
        text: to measure, search and train on: a file, tokens, or None for the built-in English (`tokens_of`).
        tokenizer: of a live model.
        original_length: the training length in tokens; None: as the configuration says.
        lengths: tokens of context at which the loss is measured; None: a quarter of the original length, that, and
            ``length``.
        windows: of text, each measured at every length.
        last: tokens at the end of each that are scored; None: 512, or an eighth of the original length if that is less.
        retrieval: prompts of each length with a hidden fact, which both models are asked for; 0: none. They are
            measured at the original length and at ``length``, and need a tokenizer.
        search: sizes of the search of "longrope", "longrope2" and "progressive"; None: 48 evaluations.
        pieces: of text that a search judges on; for "longrope2" each is a needle document, which needs a
            tokenizer.
        recipe: numbers of "progressive" and "drope"; None: `Recipe()`, and `posenc.hf.extend.drope.RECIPE`.
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
    check_whole("retrieval", retrieval, least=0)
    loading: dict[str, Any] = {"dtype": dtype, "device": device, "device_map": device_map}
    loading["trust_remote_code"] = trust_remote_code
    source: Path | None = None
    if isinstance(model, nn.Module):
        live = model
    else:
        live, own_tokenizer = load_causal_lm(model, **loading)
        is_replaced = out is not None and Path(out).exists() and Path(out).samefile(model)  # links would end with it
        source = Path(model) if is_folder_of_transformers(Path(model), live) and not is_replaced else None
        tokenizer = tokenizer or own_tokenizer
    rotations = RotaryModules(live)
    plan = _plan(name, rotations, length, original_length)
    if plan is not None and name == AUTO:
        name = str(plan.method)
    original = _original(original_length, rotations, length)
    last = last or max(1, min(512, original // 8))
    tokens = tokens_of(text, tokenizer)
    check_room(tokens, text, length + (windows - 1) * last)
    check_vocabulary(tokens, live)
    scored = windows_of(tokens, length, windows, last)
    measured_at = _lengths(lengths, original, length, last)
    prompts = None
    if retrieval:
        prompts = RetrievalTask(tokens, tokenizer, original=original, length=length, count=retrieval)
    job = ContextExtension(
        rotations, name, plan, original, length, scored, measured_at, search or SIZES, pieces,
        recipe or (RECIPE if name == DROPE else Recipe()), prompts,
        source, progress, tokenizer,
    )  # fmt: skip
    job.check_applicable()  # before a folder for its state exists
    output = OutputFolder(out, job.request(), overwrite=overwrite)
    if output.finished is not None:
        finished = load_causal_lm(str(output.path), **loading)
        return replace(Extension.of_record(output.finished, str(out)), model=finished.model)
    try:
        return job.run(output, tokenizer)
    finally:
        output.close()


def _check_trainable(model: Any, method: str) -> None:
    """Raise a ValueError for weights that a method cannot train."""
    if getattr(model, "is_quantized", False) or getattr(model.config, "quantization_config", None) is not None:
        raise ValueError(
            f"method {method}: it trains weights, and the weights of this model are quantised: give the "
            "folder with the full weights, or use another method"
        )
    if any(weight.is_meta for weight in model.parameters()):
        raise ValueError(
            f"method {method}: it trains weights, and accelerate has offloaded some of this model: use one "
            "device that holds it"
        )


def _plan(method: str, rotations: RotaryModules, length: int, original_length: int | None) -> Plan | None:
    """The plan of a method that a config alone can have; None where the modules have it, or another method is asked.

    Raises:
        Refused: where "auto" has no plan.
        ValueError: where the configuration reaches the length as it is.
    """
    known = planned_method(method)
    if known is None:
        return None
    try:
        plan = plan_extension(rotations.read.text_config, length, known, original_length)
    except Refused:
        if known == AUTO:
            raise
        return None  # such as YaRN as longrope's factors, or linear scaling over Llama 3's, which the modules build
    if plan.change is None:
        raise ValueError(f"length: {plan.title}")
    return plan


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
