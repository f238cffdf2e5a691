"""Compare engines' rotations with reference values: every adapter on every case, each in a process of its own.

    truth     the reference value. Of rotary classes: gain cos and gain sin in float64 from posenc's frequencies; of
              whole models: transformers' logits. Both only where the frequencies of posenc, of transformers' module
              and of the authors' formula (`reference_formulas`, where it covers the case) agree to 1e-6
    right     within 3e-4 for cos and sin, from position 1,258 on within 2^-22 of the position; within 1e-3 of the
              largest logit for logits: rounding of float32
    ignored   the answer is right for the same config without the key of the row, or without any scaling
    off       neither, with the largest difference
    refused   the engine raises, exits or does not answer; the error in its own words
    disputed  the references differ, so there is no truth: all values, and which of them the engine follows
    not run   the adapter does not run this case, with the reason

Positions: 0, half the original length L, L, 2 L and 4 L - 1, as far as text and declared length reach. Results are
appended to a record of JSON lines, a head for each engine and a line for each case, and a case that stands there under
the same versions is not run again.
"""

from __future__ import annotations

import copy
import datetime
import json
import math
import platform
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from benchmarks.engines.adapters import Adapter, Question, load_adapter
from benchmarks.engines.cases import Case, cases
from benchmarks.engines.process import EngineProcess
from benchmarks.engines.reference_formulas import authors_answer, authors_sources
from benchmarks.engines.remedies import Change, as_flag, changes
from benchmarks.engines.tiny import build_model, logits, save, text
from benchmarks.engines.transformers_rotary import rotary_module, transformers_frequencies
from torch import Tensor

from posenc.arguments import one_line, shown

State = Literal["right", "off", "ignored", "refused", "disputed", "not run"]
AGREE, RIGHT = 1e-6, {"cos and sin": 3e-4, "logits": 1e-3}
ROUNDING = 4 * 2.0**-24  # of cos and sin, for each position: twice what two roundings of a float32 angle amount to
SAME = 1e-5  # of a changed config, whose numbers were computed from float32 ones
_KEYS = {
    "attention_factor": ("attention_factor",), "mscale and mscale_all_dim": ("mscale", "mscale_all_dim"),
    "one of mscale and mscale_all_dim": ("mscale",), "betas": ("beta_fast", "beta_slow"),
    "truncate false": ("truncate",), "partial": ("partial_rotary_factor", "rotary_pct"),
}  # fmt: skip
_BLOCKS = ("rope_parameters", "rope_scaling")
_UNSCALED = ("rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved")  # keys that no scaling needs
_WRONG = ("off", "ignored", "refused")
USER_CONFIG = "config"  # the row of a config that is none of the catalogue's, of which any key may be ignored


class Cell(NamedTuple):
    """The result of one case in one engine.

    Attributes:
        engine: the adapter's name.
        version: of the engine.
        case: its name, ``model/row/spelling/original/length``.
        state: as this module says.
        gap: from the truth; None where there is no answer or no truth.
        text: what is ignored, the engine's error, both values, or why it was not run.
        remedy: a change after which the same engine is right, as `remedies` tries them; None where no
            change was tried. Its fields are in the README of the records.
    """

    engine: str
    version: str
    case: str
    state: State
    gap: float | None = None
    text: str = ""
    remedy: dict[str, Any] | None = None

    @property
    def row(self) -> str:
        """The kind of block; LongRoPE and dynamic within the original length are rows of their own."""
        _, row, _, original, length = self.case.split("/")
        return f"{row}, within the original length" if int(length) <= int(original) else row

    @property
    def model(self) -> str:
        """The model type."""
        return self.case.split("/")[0]

    @property
    def spelling(self) -> str:
        """Of the config: v4, v5 or both."""
        return self.case.split("/")[2]

    def __str__(self) -> str:
        words = {"off": f"off by {self.gap:.2g}" if self.gap is not None else "off", "ignored": "key ignored"}
        what = words.get(self.state, self.state)
        return f"{what}: {self.text}" if self.text else what


class Remedied(NamedTuple):
    """The remedy of a cell that stands on a line of its own, so that remedies can be run after the cells.

    Attributes:
        engine, version, case: of the cell.
        remedy: replaces the cell's own.
    """

    engine: str
    version: str
    case: str
    remedy: dict[str, Any]


class Engine(NamedTuple):
    """The head of an engine's cells in a record."""

    engine: str
    version: str
    measures: str
    code: str
    requirement: str
    reference: str
    machine: str
    date: str
    route: str = ""
    command: str = ""


# ------------------------------------------------------------------------------------------------------------- truths


def positions_of(case: Case) -> tuple[int, ...]:
    """0, L/2, L, 2 L and 4 L - 1, as far as text and declared length reach, and the last token there.

    Dynamic scaling is asked past the declared length too, because that is where it acts.
    """
    original = case.original
    declared = case.config.get("text_config", case.config).get("max_position_embeddings", case.length)
    end = case.length if case.row == "dynamic" else min(case.length, declared)
    candidates = (0, original // 2, original, 2 * original, 4 * original - 1, end - 1)
    return tuple(sorted({position for position in candidates if position < end}))


Rotation = tuple[list[float], float]  # frequencies in radians a token, and the gain


class Answer(NamedTuple):
    """Frequencies and gain of one kind of layers by one reference.

    Attributes:
        theta: frequencies in radians a token.
        gain: None where the reference does not have the key that decides it.
    """

    theta: list[float]
    gain: float | None


class DisputedError(LookupError):
    """The references differ; the text says where, with all values.

    Attributes:
        answers: frequencies and gain by kind of layers and name of the reference.
    """

    def __init__(self, text: str, answers: dict[str, dict[str, Answer]]) -> None:
        super().__init__(text)
        self.answers = answers


def reference_answers(config: Mapping[str, Any], length: int) -> dict[str, dict[str, Answer]]:
    """Frequencies and gain of each kind of layers that rotates, by posenc, transformers and the authors' formulas.

    Raises:
        LookupError: for a config that transformers does not read, so that there is no truth.
    """
    from transformers import AutoConfig

    from posenc.hf import read_rope
    from posenc.hf.config.rotation import text_rope

    try:
        module = rotary_module(AutoConfig.for_model(**copy.deepcopy(dict(config))))
    except Exception as error:  # its validators have error classes of their own
        raise LookupError(one_line(f"no truth, as transformers does not read it: {error}")[:240]) from error
    answers = {}
    for kind, rotation in read_rope(dict(config)).rotations.items():
        if rotation is None:
            continue
        spectrum = text_rope(rotation).spectrum(length)
        answers[kind] = {"posenc": Answer(spectrum.theta.tolist(), float(spectrum.gain)),
                         "transformers": Answer(*transformers_frequencies(module, length, kind))}  # fmt: skip
        authors = authors_answer(config, length, kind)
        if authors is not None:
            answers[kind][authors.source.name] = Answer(authors.theta, authors.gain)
    return answers


def frequencies(config: Mapping[str, Any], length: int) -> dict[str, Rotation]:
    """Frequencies and gain of each kind of layers that rotates, where all references agree.

    Raises:
        DisputedError: where they differ, with all values.
    """
    answers = reference_answers(config, length)
    for kind, answer in answers.items():
        if words := difference(answer):
            raise DisputedError(f"in layers of kind {kind}: {words}" if len(answers) > 1 else words, answers)
    return {kind: (answer["posenc"].theta, answer["posenc"].gain or 1.0) for kind, answer in answers.items()}


def reference_names(case: Case) -> tuple[str, ...]:
    """The references that must agree for a case to have a truth."""
    return ("posenc", "transformers", *(source.name for source in authors_sources(case.config, case.length)))


def difference(answers: Mapping[str, Answer]) -> str:
    """What the references disagree on, with all values; "" where they agree."""
    pairs = {name: len(answer.theta) for name, answer in answers.items()}
    if len(set(pairs.values())) > 1:
        return _values("the number of pairs", pairs)
    gaps = [_spread([answer.theta[pair] for answer in answers.values()]) for pair in range(pairs["posenc"])]
    worst, words = max(range(len(gaps)), key=gaps.__getitem__), list[str]()
    if gaps[worst] > AGREE:
        words.append(_values(f"pair {worst}", {name: answer.theta[worst] for name, answer in answers.items()}))
    gains = {name: answer.gain for name, answer in answers.items() if answer.gain is not None}
    if _spread(list(gains.values())) > AGREE:
        words.append(_values("the gain", gains))
    return "; ".join(words)


def _spread(values: Sequence[float]) -> float:
    """The largest relative difference from the first value; from 0 the absolute one."""
    return max(abs(value - values[0]) for value in values) / (abs(values[0]) or 1.0)


def _values(what: str, values: Mapping[str, float]) -> str:
    return f"{what} is " + ", ".join(f"{value:.9g} in {name}" for name, value in values.items())


def cos_and_sin(theta: Sequence[float], gain: float, positions: Iterable[int]) -> Tensor:
    """gain cos and gain sin in float64, (positions, 2 pairs)."""
    angles = [[position * frequency for frequency in theta] for position in positions]
    return torch.tensor(
        [[gain * f(angle) for f in (math.cos, math.sin) for angle in row] for row in angles], dtype=torch.float64
    )


def without_keys(case: Case) -> dict[str, dict[str, Any]]:
    """The case's config without the keys of its row, and without any scaling, by what is left out."""
    result = {}
    for name, keys in _KEYS.items():
        if name in case.row.split(": ") or case.row == USER_CONFIG:
            outside = {key: value for key, value in case.config.items() if key not in keys}
            reduced = _mapped(outside, partial(_without, keys))
            if reduced != case.config:
                result[" and ".join(key for key in keys if key != "rotary_pct")] = reduced
    unscaled = _mapped(case.config, lambda block: {
        **{key: block[key] for key in _UNSCALED if key in block}, "rope_type": "default",
    })  # fmt: skip
    inner = unscaled.get("text_config", unscaled)
    if "rope_scaling" in inner:
        inner["rope_scaling"] = None
    if "default" not in case.row and case.row != "partial":
        result["all scaling"] = unscaled
    return result


def _without(keys: tuple[str, ...], block: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in block.items() if key not in keys}


def _mapped(config: Mapping[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """A copy of a config in which each of its blocks is changed."""
    result = copy.deepcopy(dict(config))
    if "text_config" in result:
        return {**result, "text_config": _mapped(result["text_config"], change)}
    for name in _BLOCKS:
        block = result.get(name)
        if isinstance(block, dict):
            nested = all(isinstance(value, dict) for value in block.values()) and bool(block)
            result[name] = {kind: change(inner) for kind, inner in block.items()} if nested else change(block)
    return result


# ------------------------------------------------------------------------------------------------------------ judging


def judged(actual: Tensor, right: Tensor, measures: str, positions: Sequence[int] = ()) -> tuple[bool, float]:
    """Whether an answer is right, and how far it is: the largest difference, of logits over the largest logit.

    Args:
        actual: the engine's rows, (positions, numbers).
        right: the reference's.
        measures: "cos and sin" or "logits".
        positions: of the rows of cos and sin. An angle of p radians in float32 is rounded by up to p 2^-24, in the
            frequency and again in the product, in every engine; so the limit of a row grows with its position.
    """
    if actual.shape != right.shape or not bool(torch.isfinite(actual).all()):
        return False, math.inf
    scale = float(right.abs().max()) if measures == "logits" else 1.0
    gaps = (actual.double() - right.double()).abs().amax(-1) / scale
    limits = torch.tensor([max(RIGHT[measures], ROUNDING * position) for position in positions or [0]])
    return bool((gaps <= limits).all()), float(gaps.max())


def _ask_rows(process: EngineProcess, question: Question) -> Tensor:
    """The engine's rows.

    Raises:
        _NoAnswerError: with state and text of the cell.
    """
    answer = process.ask(question)
    if "rows" not in answer:
        raise (
            _NoAnswerError("not run", answer["not_run"])
            if "not_run" in answer
            else _NoAnswerError("refused", answer.get("refused", f"an answer without rows: {shown(answer)}"))
        )
    try:
        return torch.tensor(answer["rows"], dtype=torch.float64)
    except (TypeError, ValueError) as error:
        raise _NoAnswerError("refused", f"rows of unequal length: {error}") from error


class _NoAnswerError(Exception):
    def __init__(self, state: State, text: str) -> None:
        super().__init__(text)
        self.state: State = state


def check_case(process: EngineProcess, adapter: Adapter, case: Case, place: Path) -> Cell:
    """Run one case in an engine and compare the result with the references.

    Args:
        process: with the engine.
        adapter: whose engine it is.
        case: the configuration.
        place: an existing folder for checkpoints.
    """
    head = adapter.name, process.version or "", case.name
    if adapter.models and case.model not in adapter.models:
        return Cell(*head, "not run", text=f"the adapter asks about {', '.join(adapter.models)} only")
    if adapter.measures == "logits" and "text_config" in case.config:
        return Cell(*head, "not run", text="the tiny checkpoints have no part for images")
    positions = positions_of(case)
    try:
        truth = frequencies(case.config, case.length)
    except DisputedError as error:
        return _disputed(process, adapter, case, place, error)
    except LookupError as error:
        return Cell(*head, "not run", text=str(error))
    if not truth:
        return Cell(*head, "not run", text="no layer of this config rotates")
    try:
        if adapter.measures == "cos and sin":
            parts = {kind: _ask_rows(process, Question(case.config, positions, case.length, kind)) for kind in truth}
            return Cell(*head, *_of_classes(parts, truth, case, positions))
        folder, right = _checkpoint(case, place, positions)
        tokens = tuple(text(case.length)[0].tolist())
        actual = _ask_rows(process, Question(case.config, positions, case.length, "all", str(folder), tokens))
        fits, gap = judged(actual, right, "logits")
        if fits:
            return Cell(*head, "right", gap)
        for what, config in without_keys(case).items():
            if judged(actual, _logits_of(config, positions, case.length), "logits")[0]:
                return Cell(*head, "ignored", gap, what)
        return Cell(*head, "off", gap if math.isfinite(gap) else None, _shapes(actual, right))
    except _NoAnswerError as error:
        return Cell(*head, error.state, text=str(error))


def _disputed(process: EngineProcess, adapter: Adapter, case: Case, place: Path, dispute: DisputedError) -> Cell:
    """The cell of a case without a truth, with the names of the references that the engine agrees with."""
    head, positions = (adapter.name, process.version or "", case.name), positions_of(case)
    try:
        if adapter.measures == "cos and sin":
            kinds = dispute.answers
            parts = {kind: _ask_rows(process, Question(case.config, positions, case.length, kind)) for kind in kinds}
            names = dict.fromkeys(name for answers in kinds.values() for name in answers)
            same = [name for name in names if all(_is_of(rows, kinds[kind].get(name), positions) for kind, rows in
                                                  parts.items())]  # fmt: skip
        else:
            folder, _ = _checkpoint(case, place, positions)
            tokens = tuple(text(case.length)[0].tolist())
            actual = _ask_rows(process, Question(case.config, positions, case.length, "all", str(folder), tokens))
            same = [name for name, config in _configs_of(case.config, dispute.answers).items()
                    if judged(actual, _logits_of(config, positions, case.length), "logits")[0]]  # fmt: skip
    except _NoAnswerError as error:
        return Cell(*head, error.state, text=str(error))
    whose = f"as in {' and '.join(same)}" if same else "as in none of them"
    return Cell(*head, "disputed", text=f"{dispute}; this engine: {whose}")


def _configs_of(config: Mapping[str, Any], answers: Mapping[str, Mapping[str, Answer]]) -> dict[str, dict[str, Any]]:
    """For each reference, a config under which transformers computes the same as that reference.

    For a reference that differs in the gain alone: the config with that gain as ``attention_factor``. A reference
    that differs in frequencies has no such config, and is left out.
    """
    result = {"transformers": dict(config)}
    for kind in answers.values():
        reference = kind["transformers"]
        for name, answer in kind.items():
            if name != "transformers" and answer.gain is not None and not difference(
                {"posenc": reference, name: answer._replace(gain=reference.gain)}
            ):  # fmt: skip
                gain = {"attention_factor": answer.gain}
                result[name] = _mapped(config, lambda block, gain=gain: {**block, **gain})  # type: ignore[misc]
    return result


def _is_of(rows: Tensor, answer: Answer | None, positions: tuple[int, ...]) -> bool:
    """Whether an engine's rows equal a reference's; False where the reference lacks the gain."""
    if answer is None or answer.gain is None:
        return False
    return judged(rows, cos_and_sin(answer.theta, answer.gain, positions), "cos and sin", positions)[0]


def find_remedy(process: EngineProcess, adapter: Adapter, case: Case, place: Path) -> dict[str, Any] | None:
    """The first change after which the same engine is right, with all changes tried before it.

    The README of the records describes the fields. None where no change that is known to try reached the engine.

    Args:
        process: with the engine.
        adapter: whose engine it is.
        case: a configuration that it does not compute right.
        place: an existing folder for checkpoints.
    """
    truth = frequencies(case.config, case.length)
    trial = _Trial(process, adapter, case, truth, place)
    every, tried = list(changes(adapter.name, case, truth)), list[dict[str, Any]]()
    flagged = {change.what: as_flag(adapter.name, change, case) for change in every}
    for change in (*every, *filter(None, flagged.values())):  # a flag may reach code that the file's keys do not
        state, gap, words = trial.about(change)
        tried.append({"how": change.how, "what": change.what, "state": state} | _present(gap=_rounded(gap), text=words))
        if state != "right":
            continue
        fields = {"keys": _changed_keys(change, case), "flags": list(change.flags), "only": change.only}
        remedy = {"how": change.how, "what": change.what, "verdict": state, "gap": _rounded(gap)} | _present(**fields)
        if change.config != case.config:
            remedy["same"] = _same_meaning(change.config, case, truth)
        flag = flagged.get(change.what)
        if flag is not None:
            state, gap, _ = trial.about(flag)
            remedy |= {"flags": list(flag.flags), "flags_gap": _rounded(gap)} if state == "right" else {}
        return {**remedy, "tried": tried}
    states = {attempt["state"] for attempt in tried} - {"not run"}
    if not states:
        return None
    words = "; ".join(attempt["what"] for attempt in tried)
    return {"how": "none", "what": words, "verdict": min(states, key=_RANK.index), "tried": tried}


def _changed_keys(change: Change, case: Case) -> dict[str, Any]:
    """Keys of config.json that the change sets, None for those that go; or fields of an engine's own config."""
    if change.how == "config" and change.options:
        return dict(change.options)
    new = {key: value for key, value in change.config.items() if case.config.get(key) != value}
    return new | {key: None for key in case.config if key not in change.config}


class _Trial:
    """One case's engine under changes, against the truth of the unchanged case."""

    def __init__(
        self, process: EngineProcess, adapter: Adapter, case: Case, truth: dict[str, tuple[list[float], float]],
        place: Path,
    ) -> None:  # fmt: skip
        self.process, self.adapter, self.case, self.truth, self.place = process, adapter, case, truth, place
        self.positions = positions_of(case)
        self.model = build_model(case.config) if adapter.measures == "logits" else None
        self.logits = logits(self.model, text(case.length), self.positions) if self.model is not None else None

    def about(self, change: Change) -> tuple[State, float | None, str]:
        """State, gap and the engine's words after a change."""
        question = Question(change.config, self.positions, self.case.length, options=change.options)
        try:
            if self.logits is not None:
                folder = self.place / "checkpoint"
                folder.mkdir(exist_ok=True)
                save(self.model, folder, change.config)
                tokens = tuple(text(self.case.length)[0].tolist())
                of_checkpoint = question._replace(folder=str(folder), tokens=tokens)
                results = [judged(_ask_rows(self.process, of_checkpoint), self.logits, "logits")]
            else:
                results = [
                    judged(_ask_rows(self.process, question._replace(kind=kind)),
                           cos_and_sin(*self.truth[kind], self.positions), "cos and sin", self.positions)
                    for kind in self.truth
                ]  # fmt: skip
        except _NoAnswerError as error:
            return error.state, None, str(error)
        gap = max(gap for _, gap in results)
        return "right" if all(fits for fits, _ in results) else "off", gap if math.isfinite(gap) else None, ""


def _same_meaning(config: dict[str, Any], case: Case, truth: Mapping[str, tuple[list[float], float]]) -> bool:
    """Whether transformers reads a changed config as the case's, at its length."""
    from transformers import AutoConfig

    try:
        module = rotary_module(AutoConfig.for_model(**copy.deepcopy(config)))
        changed = {kind: transformers_frequencies(module, case.length, kind) for kind in truth}
    except Exception:  # whatever transformers raises for a config that only an engine reads
        return False
    return all(
        len(theta) == len(changed[kind][0]) and all(map(_close, [*theta, gain], [*changed[kind][0], changed[kind][1]]))
        for kind, (theta, gain) in truth.items()
    )


def _close(actual: float, right: float) -> bool:
    return math.isclose(actual, right, rel_tol=SAME)


def _rounded(gap: float | None) -> float | None:
    return None if gap is None else float(f"{gap:.3g}")


def _present(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value not in (None, "", [], {})}


def _of_classes(
    parts: dict[str, Tensor], truth: dict[str, Rotation], case: Case, positions: tuple[int, ...]
) -> tuple[State, float | None, str]:
    """State, gap and text of the rows of each kind of layers."""

    def compared(expected: dict[str, Rotation]) -> dict[str, tuple[bool, float]]:
        rights = {kind: cos_and_sin(theta, gain, positions) for kind, (theta, gain) in expected.items()}
        return {
            kind: judged(rows, rights[kind], "cos and sin", positions) for kind, rows in parts.items() if kind in rights
        }

    results = compared(truth)
    gap = max(gap for _, gap in results.values())
    if all(fits for fits, _ in results.values()):
        float32 = f"differs by {gap:.2g} at up to {positions[-1]:,}: float32 angles, as in every engine"
        return "right", gap, float32 if gap > RIGHT["cos and sin"] else ""
    for what, config in without_keys(case).items():
        try:
            if all(fits for fits, _ in compared(frequencies(config, case.length)).values()):
                return "ignored", gap if math.isfinite(gap) else None, what
        except LookupError:
            continue
    wrong = [kind for kind, (fits, _) in results.items() if not fits]
    kind = wrong[0]
    words = [f"in layers of kind {', '.join(wrong)}"] if len(parts) > 1 else []
    words += [_shapes(parts[kind], cos_and_sin(*truth[kind], positions))]
    return "off", gap if math.isfinite(gap) else None, "; ".join(filter(None, words))


def _shapes(actual: Tensor, right: Tensor) -> str:
    if actual.shape == right.shape:
        return "" if bool(torch.isfinite(actual).all()) else "not all numbers are finite"
    return f"rows of {actual.shape[-1]} numbers where {right.shape[-1]} are right"


def _logits_of(config: dict[str, Any], positions: tuple[int, ...], length: int) -> Tensor:
    return logits(build_model(config), text(length), positions)


def _checkpoint(case: Case, place: Path, positions: tuple[int, ...]) -> tuple[Path, Tensor]:
    """A folder with the case's checkpoint, written over the last one, and transformers' logits.

    Raises:
        _NoAnswerError: where transformers does not run the tiny model, so that there is nothing to compare with.
    """
    folder = place / "checkpoint"
    folder.mkdir(exist_ok=True)
    try:
        model = build_model(case.config)
        right = logits(model, text(case.length), positions)
    except (ValueError, RuntimeError) as error:  # a text part that is no model alone; sizes that the class refuses
        words = one_line(f"{type(error).__name__}: {error}")[:160]
        raise _NoAnswerError("not run", f"transformers does not run a whole model of this config: {words}") from error
    save(model, folder, case.config)
    return folder, right


# ---------------------------------------------------------------------------------------------------------------- run


def run_check(
    engines: Sequence[str],
    *,
    rows: Sequence[str] = (),
    pythons: Mapping[str, str] | None = None,
    record: Path | None = None,
    questions: Iterable[Case] | None = None,
    remedies: bool = False,
    progress: Callable[[str], None] = lambda line: None,
) -> tuple[list[Engine], list[Cell], list[str]]:
    """Ask engines about every case.

    Args:
        engines: names of adapters, or ``FILE.py:NAME``.
        rows: rope types or rows ("yarn", "yarn: betas"); empty: all.
        pythons: interpreters by the names of engines; an engine that is not in it runs in this interpreter.
        record: a file of JSON lines, from which finished cells are taken and to which new ones are appended.
        questions: the cases; None: all of `cases`.
        remedies: whether changes of the config are tried where an engine is not right.
        progress: is called with a line for each new cell.

    Returns:
        Heads of the engines that ran, the cells of these engines and rows, and a line for each engine that is not
        installed.

    Raises:
        ValueError: for an adapter, a row or an interpreter that is not known.
    """
    chosen = _chosen(list(cases() if questions is None else questions), rows)
    heads, cells, absent = [], [], []
    finished = read_record(record) if record is not None and record.exists() else ([], [])
    for engine in engines:
        adapter = load_adapter(engine)
        with (
            EngineProcess(engine, (pythons or {}).get(engine) or sys.executable) as process,
            tempfile.TemporaryDirectory(prefix="posenc-engines-") as place,
        ):
            if process.version is None:
                why = f" ({process.reason})" if process.reason else ""
                absent.append(f"{adapter.name} is not installed{why}: {adapter.requirement}")
                continue
            head = _head(adapter, process.version)
            before = {cell.case: cell for cell in finished[1] if _same(cell, head, finished[0])}
            heads.append(head)
            if not before:
                _append(record, head)
            for case in chosen:
                cell = known = before.get(case.name)
                if cell is None:
                    cell = check_case(process, adapter, case, Path(place))
                if cell is not known:
                    _append(record, cell)
                    progress(f"{adapter.name}  {case.name}  {cell}")
                if remedies and cell.state in _WRONG and not (cell.remedy or {}).get("date"):
                    remedy = find_remedy(process, adapter, case, Path(place))
                    if remedy is None:
                        progress(f"{adapter.name}  {case.name}  no change reached the engine")
                    else:
                        remedy |= {"date": _today(), "reference": head.reference}
                        remedy |= {"command": f"{head.command} --remedies"}
                        cell = cell._replace(remedy=remedy)
                        _append(record, Remedied(*cell[:3], remedy))
                        progress(f"{adapter.name}  {case.name}  {remedy['how']}: {remedy['what']}")
                cells.append(cell)
    return heads, cells, absent


def _chosen(known: list[Case], rows: Sequence[str]) -> list[Case]:
    for row in rows:
        if not any(_matches(case, row) for case in known):
            types = sorted({case.row for case in known})
            raise ValueError(f"--rope must be a rope type or one of {', '.join(types)}, got {shown(row)}")
    return [case for case in known if not rows or any(_matches(case, row) for row in rows)]


def _matches(case: Case, row: str) -> bool:
    return row in (case.row, case.row.partition(":")[0])


def _same(cell: Cell, head: Engine, heads: list[Engine]) -> bool:
    """Whether a recorded cell was measured with the versions of today."""
    known = {(entry.engine, entry.version, entry.reference) for entry in heads}
    return (cell.engine, cell.version) == head[:2] and (head.engine, head.version, head.reference) in known


def _head(adapter: Adapter, version: str) -> Engine:
    import transformers

    import posenc

    reference = f"posenc {posenc.__version__}, transformers {transformers.__version__}, torch {torch.__version__}"
    machine = f"{platform.system()} {platform.machine()}, CPU, Python {platform.python_version()}"
    command = f"python -m benchmarks.engines --engine {adapter.name}"
    return Engine(
        adapter.name, version, adapter.measures, adapter.code, adapter.requirement, reference, machine, _today(),
        adapter.route, command,
    )  # fmt: skip


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def _append(record: Path | None, entry: Engine | Cell | Remedied) -> None:
    if record is None:
        return
    content = {key: value for key, value in entry._asdict().items() if value not in (None, "")}
    if isinstance(entry, Cell) and entry.gap is not None:
        content["gap"] = _rounded(entry.gap)
    with record.open("a", encoding="utf-8") as file:
        file.write(json.dumps(content) + "\n")


def read_record(path: Path) -> tuple[list[Engine], list[Cell]]:
    """Heads and cells of a record, with their remedies; of what stands there twice the last.

    Raises:
        ValueError: for a line that is neither, with its number. A last line without an end, as an interrupted run
            leaves it, is left out.
    """
    heads, cells = dict[tuple[str, str, str], Engine](), dict[tuple[str, str, str], Cell]()
    remedies = dict[tuple[str, str, str], dict[str, Any]]()
    content = path.read_text(encoding="utf-8")
    complete = content[: content.rfind("\n") + 1]
    for number, line in enumerate(complete.splitlines(), 1):
        try:
            entry = json.loads(line)
            if "case" in entry and "state" not in entry:
                remedied = Remedied(**entry)
                remedies[remedied[:3]] = remedied.remedy
            elif "case" in entry:
                cell = Cell(**entry)
                cells[cell[:3]] = cell
            else:
                head = Engine(**entry)
                heads[head.engine, head.version, head.reference] = head
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}, line {number}: not a line of python -m benchmarks.engines: {error}") from error
    if len(complete) < len(content):
        path.write_text(complete, encoding="utf-8")
    for key, remedy in remedies.items():
        if key in cells and cells[key].state in _WRONG:
            cells[key] = cells[key]._replace(remedy=remedy)
    return list(heads.values()), list(cells.values())


# ------------------------------------------------------------------------------------------------------------- tables

_RANK: tuple[State, ...] = ("right", "not run", "disputed", "refused", "ignored", "off")


def worst(cells: Iterable[Cell]) -> Cell:
    """Of several cells the worst: off before ignored before refused."""
    return max(cells, key=lambda cell: (_RANK.index(cell.state), cell.gap or 0.0))


def table(cells: Sequence[Cell]) -> Iterator[list[str]]:
    """Rows of text: a header, then row and spelling by engine, each field the worst over the model types."""
    engines = list(dict.fromkeys(cell.engine for cell in cells))
    yield ["rope type", "keys", *engines]
    for row, spelling in dict.fromkeys((cell.row, cell.spelling) for cell in cells):
        fields = []
        for engine in engines:
            here = [
                c for c in cells if (c.engine, c.row, c.spelling) == (engine, row, spelling) and c.state != "not run"
            ]
            fields.append(_field(here) if here else "–")
        yield [row, spelling, *fields]


def _field(cells: Sequence[Cell]) -> str:
    cell = worst(cells)
    if cell.state == "right":
        return "right"
    words = {"off": f"off by {cell.gap:.2g}" if cell.gap is not None else "off", "ignored": f"ignores {cell.text}"}
    wrong = [other.model for other in cells if other.state != "right"]
    where = "" if len(wrong) == len(cells) else f" ({', '.join(dict.fromkeys(wrong))})"
    return words.get(cell.state, cell.state) + where


def disputes(cells: Iterable[Cell]) -> list[str]:
    """A line for each disputed row and engine, with all values."""
    return list(dict.fromkeys(f"{cell.row} in {cell.engine} is {cell}" for cell in cells if cell.state == "disputed"))


@cache
def committed() -> tuple[tuple[Engine, ...], tuple[Cell, ...]]:
    """Heads and cells of the committed records."""
    heads, cells = list[Engine](), list[Cell]()
    for path in sorted(Path(__file__).with_name("records").glob("*.jsonl")):
        more = read_record(path)
        heads += more[0]
        cells += more[1]
    return tuple(heads), tuple(cells)
