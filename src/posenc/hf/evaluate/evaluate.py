"""Evaluates a checkpoint on whole documents: loss on their last tokens, and facts hidden in them.

One measurement is one document, or the prompt built from it, read by one method at one length. Each is written to a log
as soon as it is made, so that an evaluation which was stopped in any way goes on where it was; several processes share
one folder, each with a part of the documents.

    as_is      the model as it is
    cut        the last tokens alone, as many as the model was trained on: what cutting the text costs
    chunked    retrieval only: the question is put to windows of the trained length, and the answer with the highest
               mean log-probability of its first line wins
    yarn, …    any method of `posenc.hf.extend` that neither trains nor chooses

A method is set for the longest length that is read, or for k times the trained one (``yarn@2``), and stays so at every
length: what it costs on short texts is part of the result.
"""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from itertools import groupby, islice
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from posenc import __version__
from posenc.arguments import check_flag, check_whole, shown
from posenc.evaluation.documents import Document, read_documents
from posenc.evaluation.generate import end_tokens_of, generate
from posenc.evaluation.likelihood import check_vocabulary, token_losses
from posenc.evaluation.log import MeasurementLog, fingerprint, processor
from posenc.evaluation.report import AS_IS, CHUNKED, CUT, PERPLEXITY, TASKS, Evaluation, Reading
from posenc.evaluation.retrieval import (
    ANSWER_TOKENS,
    KINDS,
    Prompt,
    build_prompt,
    draw_task,
    encode,
    ends_sentence,
    score,
    spans,
    special_prefix,
)
from posenc.frequencies.host import steps_of
from posenc.frequencies.llama3 import Llama3
from posenc.hf.atomic_write import write_atomically
from posenc.hf.attach.loading import opened, within_memory
from posenc.hf.attach.rotary_modules import RotaryModules
from posenc.hf.attach.scaling_methods import SEARCHES
from posenc.hf.attach.supported import config_dict
from posenc.hf.config.facts import ModelFacts, read_facts
from posenc.hf.config.rotation import text_rope
from posenc.hf.evaluate.methods import SIZES, UNCHANGED, Method, applied, search_digest
from posenc.hf.limits import TOKENS
from posenc.hf.plan.plan import start_of
from posenc.search import Settings

METHODS = UNCHANGED
DEPTHS = (10, 30, 50, 70, 90)
_SEARCH_DOCUMENTS = 2  # that LongRoPE's search judges by
_ANSWER_SHOWN = 300  # characters of an answer in the record


class Item(NamedTuple):
    """A document that is long enough, in the model's tokens."""

    number: int
    document: Document
    tokens: Tensor


def item_of(number: int, tokens: Tensor) -> Item:
    """A window of a text as a document."""
    sha256 = hashlib.sha256(tokens.numpy().tobytes()).hexdigest()
    return Item(number, Document(f"window {number + 1}", "", sha256), tokens)


class Cell(NamedTuple):
    """One measurement that is asked for.

    Attributes:
        method: of reading.
        target: tokens that the method extends to, or what else decides what it does to the model.
        task, length, item: what is read, and how many tokens of it.
    """

    method: Method
    target: int | str
    task: str
    length: int
    item: Item


class Evaluator:
    """One evaluation of one model.

    Args:
        model: of transformers.
        tokenizer: of the model; None: there is none, and losses alone are measured.
        trained: tokens.
        lengths: tokens, in the order in which they are measured.
        scored: tokens at the end of each document whose loss is measured.
        answer_tokens: of an answer; None: as many as RULER has.
        depths: of the fact that is asked for, percent; prompt n has depth n mod their number.
        log: of measurements.
        known: what other processes have measured in the same folder.
        progress: is called with a line of text for each measurement.
    """

    def __init__(
        self, model: nn.Module, tokenizer: Any, *, trained: int, lengths: Sequence[int], scored: int,
        answer_tokens: int | None, depths: Sequence[float], log: MeasurementLog, known: Sequence[MeasurementLog],
        progress: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.model, self.tokenizer, self.trained = model, tokenizer, trained
        self.lengths, self.scored, self.answer_tokens, self.depths = lengths, scored, answer_tokens, depths
        self.log, self.known, self.progress = log, known, progress
        self.weights = fingerprint(model)
        self.encode = partial(encode, tokenizer)
        self.prefix = [] if tokenizer is None else special_prefix(tokenizer)
        self.end_tokens = frozenset() if tokenizer is None else end_tokens_of(model, tokenizer)
        self.search = ""  # of LongRoPE: everything that decides its factors, hashed

    def key(self, method: Method, target: int | str, task: str, length: int, item: Item) -> str:
        """Everything that decides a measurement, as text."""
        if method.name == CUT and (task == PERPLEXITY or length <= self.trained):
            method, length = Method(AS_IS), min(length, self.trained)  # the same tokens in the same model
        name = str(method) if method.name in UNCHANGED else f"{method.name} to {target}"
        if method.name in SEARCHES:
            name += f" by search {self.search}"
        if task == PERPLEXITY:
            how = f"last {self.scored} of {max(self.lengths)}"
        else:
            how = f"depth {self.depth(item.number):g}, {self._answer_tokens(task)} tokens"
        document = f"document {item.number} {item.document.sha256[:16]}"
        return f"{self.weights}, trained {self.trained} | {name} | {task} | {length} | {document} | {how}"

    def evaluation(self, name: str, readings: Sequence[Reading], items: Sequence[Item]) -> Evaluation:
        """What was read, with everything that decides it.

        Args:
            name: of the model.
            readings: of it.
            items: that were read.
        """
        sessions = {k: v for log in (self.log, *self.known) for k, v in log.known.items() if k.startswith("session ")}
        settings = {
            "model": name, "weights": self.weights, "trained_length": self.trained, "dtype": _dtype(self.model),
            "lengths": list(self.lengths), "methods": list(dict.fromkeys(reading.method for reading in readings)),
            "tasks": list(dict.fromkeys(reading.task for reading in readings)), "scored": self.scored,
            "answer_tokens": self.answer_tokens, "depths": list(self.depths),
            "documents": [{"name": item.document.name, "sha256": item.document.sha256} for item in items],
            "sessions": sessions,
        }  # fmt: skip
        return Evaluation(settings, tuple(readings))

    @cached_property
    def session(self) -> str:
        """The name of this session, whose versions and machine are written to the log once."""
        from transformers import __version__ as transformers_version

        facts = {
            "posenc": __version__, "torch": torch.__version__, "transformers": transformers_version,
            "python": platform.python_version(), "threads": torch.get_num_threads(),
            "processor": torch.cuda.get_device_name() if torch.cuda.is_available() else processor(),
            "device": str(next(self.model.parameters()).device), "dtype": _dtype(self.model),
        }  # fmt: skip
        name = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]
        if self.log.get(f"session {name}") is None:
            self.log.put(f"session {name}", facts)
        return name

    def depth(self, number: int) -> float:
        """Of the fact in a prompt, percent."""
        return self.depths[number % len(self.depths)]

    def _answer_tokens(self, task: str) -> int:
        return self.answer_tokens if self.answer_tokens is not None else ANSWER_TOKENS[task]  # type: ignore[index]

    def known_value(self, *cell: Any) -> dict[str, Any] | None:
        """What was measured already of a `Cell`."""
        key = self.key(*cell)
        return next((value for log in (self.log, *self.known) if (value := log.get(key)) is not None), None)

    def read(self, method: Method, target: int | str, task: str, length: int, item: Item) -> Reading:
        """The measurement of a `Cell`, made now unless it is known."""
        value = self.known_value(method, target, task, length, item)
        if value is None:
            start = time.perf_counter()
            with within_memory(self.model, length):
                value = (
                    self._loss(method, length, item) if task == PERPLEXITY else self._answer(method, task, length, item)
                )
            value |= {"seconds": round(time.perf_counter() - start, 3), "session": self.session}
            self.log.put(self.key(method, target, task, length, item), value)
            self.progress(
                f"{method}, {task}, {length:,} tokens, document {item.number + 1}: {value['value']:.4g} "
                f"({value['seconds']:.1f} s)"
            )
        details = {name: part for name, part in value.items() if name not in ("value", "seconds")}
        return Reading(str(method), task, length, item.number, value["value"], value["seconds"], details)

    def _loss(self, method: Method, length: int, item: Item) -> dict[str, Any]:
        """Nats a token on the same tokens at every length: the last ones of the first ``max(lengths)``."""
        visible = min(length, self.trained) if method.name == CUT else length
        end = max(self.lengths)
        tokens = item.tokens[end - visible + len(self.prefix) : end]
        tokens = torch.cat([torch.tensor(self.prefix, dtype=torch.long), tokens])
        return {"value": float(token_losses(self.model, tokens, self.scored).double().mean())}

    def _answer(self, method: Method, task: Any, length: int, item: Item) -> dict[str, Any]:
        """Greedily decode the answer to a prompt, and score it."""
        answer_tokens, prompt = self._answer_tokens(task), self._prompt(task, length, item)
        expected, room = prompt.task.expected, self._room(prompt)
        if method.name == CHUNKED:
            answer, extra = self._most_confident(prompt, room, answer_tokens)
        else:
            text = prompt.text[-room:] if method.name == CUT else prompt.text
            done = partial(self._is_complete, expected)
            generation = generate(self.model, prompt.window(text), answer_tokens, end_tokens=self.end_tokens, stop=done)
            answer, extra = self._decode(generation.tokens), {}
        return {
            "value": score(answer, expected), "depth": self.depth(item.number), "expected": list(expected),
            "answer": answer[:_ANSWER_SHOWN], **extra,
        }  # fmt: skip

    def _prompt(self, task: Any, length: int, item: Item) -> Prompt:
        return build_prompt(
            draw_task(task, item.number), item.tokens.tolist(), length, self.depth(item.number) / 100,
            encode=self.encode, ends=partial(ends_sentence, self.tokenizer), seed=item.number, prefix=self.prefix,
            answer_tokens=self._answer_tokens(task),
        )  # fmt: skip

    def _room(self, prompt: Prompt) -> int:
        """Tokens of a text that the prompt and its answer leave within the trained length."""
        return self.trained - self._answer_tokens(prompt.task.kind) - len(prompt.before) - len(prompt.question)

    def check_room(self, methods: Sequence[Method], tasks: Sequence[str], items: Sequence[Item]) -> None:
        """Raise a ValueError for prompts or controls without room, before anything is measured."""
        controls = [method.name for method in methods if method.name in (CUT, CHUNKED)]
        if PERPLEXITY in tasks and CUT in controls and self.trained <= self.scored:
            raise ValueError(
                f"scored: {CUT} reads {self.trained:,} tokens, the trained length, and cannot score {self.scored:,} of "
                f"them: score fewer (--scored) or leave {CUT} out"
            )
        for task in tasks:
            for item in items if task != PERPLEXITY else ():
                prompt = self._prompt(task, min(self.lengths), item)
                room = self._room(prompt)
                if controls and room <= prompt.longest_fact:
                    raise ValueError(
                        f"trained_length: {task} and its answer leave {room:,} of {self.trained:,} tokens for the "
                        f"text, too few for {' and '.join(controls)}: allow a shorter answer (--answer-tokens) "
                        "or leave them out"
                    )

    def _most_confident(self, prompt: Prompt, room: int, answer_tokens: int) -> tuple[str, dict[str, Any]]:
        """The answer of the window that is surest of it, by the mean log-probability of its first line."""
        best, best_confidence, chosen = "", -float("inf"), 0
        expected = prompt.task.expected
        windows = spans(len(prompt.text), room, prompt.longest_fact)
        for number, (start, end) in enumerate(windows):

            def done(tokens: list[int]) -> bool:
                return "\n" in self._decode(tokens).lstrip("\n") and self._is_complete(expected, tokens)

            generation = generate(
                self.model, prompt.window(prompt.text[start:end]), answer_tokens, end_tokens=self.end_tokens, stop=done
            )
            first_line = self._first_line(generation.tokens)
            confidence = sum(generation.log_probabilities[:first_line]) / max(1, first_line)
            if generation.tokens and confidence > best_confidence:
                best, best_confidence, chosen = self._decode(generation.tokens), confidence, number
        return best, {"window": chosen, "windows": len(windows)}

    def _first_line(self, tokens: list[int]) -> int:
        """How many tokens the first line has that is not empty."""
        for count in range(1, len(tokens) + 1):
            if "\n" in self._decode(tokens[:count]).lstrip("\n"):
                return count
        return len(tokens)

    def _is_complete(self, expected: Sequence[str], tokens: list[int]) -> bool:
        """Whether the score is complete, which further tokens cannot change."""
        return score(self._decode(tokens), expected) == 1

    def _decode(self, tokens: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(tokens, skip_special_tokens=True)
        return text


def evaluate(
    model: nn.Module | str | Path,
    *,
    tasks: Iterable[str] = TASKS,
    lengths: Iterable[int] | None = None,
    methods: Iterable[str] = METHODS,
    documents: Iterable[str | Path] | Iterable[Document] = (),
    count: int = 20,
    depths: Iterable[float] = DEPTHS,
    scored: int = 512,
    answer_tokens: int | None = None,
    trained_length: int | None = None,
    out: str | Path | None = None,
    part: tuple[int, int] = (1, 1),
    search: Settings | None = None,
    tokenizer: Any = None,
    dtype: str = "auto",
    device: str = "cpu",
    trust_remote_code: bool = False,
    progress: Callable[[str], None] = lambda text: None,
) -> Evaluation:
    """Measure loss and retrieval of a causal model by length, under each method.

    Args:
        model: a live causal model of transformers, or its folder, or a GGUF file. It is left as it was.
        tasks: of ``perplexity``, ``niah_single``, ``niah_multikey``, ``niah_multivalue``, ``variable_tracking``;
            ``niah`` is the three that begin with it, ``ruler`` all but perplexity.
        lengths: tokens, in the order of measurement; None: a quarter of the trained length, that, and twice that.
        methods: ways of reading, in the order of measurement (see the module): as_is, cut, chunked, and methods of
            `posenc.hf.extend`.
        documents: files, folders, or documents; none: Python sources of the standard library.
        count: documents that are read: the first that are long enough, in the order of the hash of their names.
        depths: of the fact that is asked for, percent of the document.
        scored: tokens at the end of each document whose loss is measured.
        answer_tokens: of an answer at most; None: as many as RULER has, 128 (variable tracking: 30).
        trained_length: tokens that the model was trained on; None: as the configuration says.
        out: folder of the record; the same call goes on where it was. None: everything is kept in memory.
        part: ``(k, n)``: only documents k, k + n, … of the ``count``, for n processes that share a folder.
        search: sizes of LongRoPE's search.
        tokenizer: of a live model.
        dtype, device: of a model that is loaded.
        trust_remote_code: whether code of the folder may run.
        progress: is called with a line of text for each measurement.

    Returns:
        The readings that this call asked for, including readings of other parts where the folder has them.

    Raises:
        ValueError: for a request that makes no sense, too few long documents, or a model whose rotation cannot be read.
        OSError: for files that cannot be read or written.
    """
    check_flag("trust_remote_code", trust_remote_code)
    check_whole("count", count, least=1)
    check_whole("scored", scored, least=1)
    chosen_tasks, depths = check_tasks(tasks), _check_depths(depths)
    chosen_methods = [Method.parse(name) for name in dict.fromkeys(methods)]
    if not chosen_methods:
        raise ValueError("methods: at least one is needed, for example as_is")
    if not 1 <= part[0] <= part[1]:
        raise ValueError(f"part: (k, n) with 1 ≤ k ≤ n is needed, got {shown(part)}")
    checked_lengths = None if lengths is None else _check_lengths(lengths, scored)  # before a model is loaded
    live, tokenizer = opened(
        model, tokenizer, reads_text=True, dtype=dtype, device=device, trust_remote_code=trust_remote_code
    )
    if tokenizer is None:
        raise ValueError(
            "tokenizer: the model comes without one, and documents are text: give one, or a folder with it"
        )
    changed = any(method.name not in UNCHANGED for method in chosen_methods)
    rotations = RotaryModules(live) if changed else None
    trained = _trained(trained_length, live, rotations)
    chosen_lengths = checked_lengths or _check_lengths((trained // 4, trained, 2 * trained), scored)
    folder = None if out is None else Path(out)
    logs = _open_logs(folder, part)
    evaluator = Evaluator(
        live, tokenizer, trained=trained, lengths=chosen_lengths, scored=scored, answer_tokens=answer_tokens,
        depths=depths, log=logs[0], known=logs[1:], progress=progress,
    )  # fmt: skip
    longest = max(chosen_lengths)
    targets = [method.target(trained, longest) for method in chosen_methods if method.name in SEARCHES]
    items, pieces = _items(documents, evaluator.encode, longest, count, max(targets, default=None))
    check_vocabulary(torch.cat([*(item.tokens for item in items), *pieces]), live)
    evaluator.search = search_digest(evaluator.weights, trained, search or SIZES, pieces, scored)
    evaluator.check_room(chosen_methods, chosen_tasks, items)
    cells = [
        Cell(method, method.target(trained, longest), task, length, item)
        for method in chosen_methods for task in chosen_tasks if (method.name, task) != (CHUNKED, PERPLEXITY)
        for length in chosen_lengths for item in items
    ]  # fmt: skip
    _measure(evaluator, cells, rotations, part, search or SIZES, pieces, folder)
    if folder is not None:
        evaluator.known = _logs_of_others(folder, logs[0])  # which have grown in the meantime
    readings = tuple(evaluator.read(*cell) for cell in cells if evaluator.known_value(*cell) is not None)
    evaluation = evaluator.evaluation(name_of(model), readings, items)
    if folder is not None:
        _write(folder, evaluation)
    return evaluation


def check_tasks(tasks: Iterable[str]) -> tuple[str, ...]:
    """Tasks by name, ``niah`` and ``ruler`` expanded; a ValueError for any other."""
    groups = {"niah": tuple(kind for kind in KINDS if kind.startswith("niah")), "ruler": KINDS}
    chosen = [name for task in tasks for name in groups.get(task, (task,))]
    unknown = [task for task in chosen if task not in TASKS]
    if unknown or not chosen:
        raise ValueError(f"tasks: {', '.join((*TASKS, *groups))} are known, got {', '.join(unknown) or 'none'}")
    return tuple(dict.fromkeys(chosen))


def _check_depths(depths: Iterable[float]) -> tuple[float, ...]:
    checked = tuple(float(depth) for depth in depths)
    if not checked or any(not 0 <= depth <= 100 for depth in checked):
        raise ValueError(f"depths: percentages from 0 to 100 are needed, got {shown(checked)}")
    return checked


def name_of(model: nn.Module | str | Path) -> str:
    """How a record calls a model: by its folder or file, or by its class."""
    return Path(model).name if isinstance(model, str | Path) else type(model).__name__


def _measure(
    evaluator: Evaluator, cells: Sequence[Cell], rotations: RotaryModules | None, part: tuple[int, int],
    search: Settings, pieces: Sequence[Tensor], folder: Path | None,
) -> None:  # fmt: skip
    """Measure what is missing, method by method; a method that has nothing to do is not applied."""
    for method, asked in groupby(cells, key=attrgetter("method")):
        own = [cell for cell in asked if cell.item.number % part[1] == part[0] - 1]
        missing = [cell for cell in own if evaluator.known_value(*cell) is None]
        if not missing:
            continue
        evaluator.progress(f"{method}: {len(missing):,} of {len(own):,} readings to make")
        with applied(
            method, rotations, evaluator.trained, max(evaluator.lengths), search=search, pieces=pieces,
            scored=evaluator.scored, folder=folder,
        ):  # fmt: skip
            for cell in missing:
                evaluator.read(*cell)


def _trained(trained_length: int | None, model: nn.Module, rotations: RotaryModules | None) -> int:
    """Tokens that the model was trained on; models without a rotation that could be replaced have a length too."""
    if trained_length is None and rotations is not None:
        trained_length = rotations.original_length
    elif trained_length is None:
        trained_length = trained_by(read_facts(config_dict(model.config)))
    trained = trained_length
    if trained is None:
        raise ValueError("trained_length must be given: the configuration does not say the model's length")
    check_whole("trained_length", trained, least=2, most=TOKENS)
    return trained


def trained_by(facts: ModelFacts) -> int | None:
    """Tokens of training by the file: what its scaling counts from, but of Llama 3's recipe what the file declares."""
    ropes = [text_rope(rope) for rope in facts.rotations.values() if rope is not None]
    scaled = [
        step.original_length for rope in ropes for step in steps_of(rope.scaling)
        if not isinstance(step, Llama3) and getattr(step, "original_length", None)
    ]  # fmt: skip
    return min(scaled, default=start_of(facts))


def _check_lengths(lengths: Iterable[int], scored: int) -> tuple[int, ...]:
    """Each length once; a ValueError where one leaves no token before the scored ones."""
    chosen = tuple(dict.fromkeys(lengths))
    if not chosen or any(type(n) is not int or not scored < n <= TOKENS for n in chosen):
        raise ValueError(f"lengths: whole numbers of tokens above {scored} (scored) are needed, got {shown(chosen)}")
    return chosen


def _items(
    documents: Iterable[str | Path] | Iterable[Document],
    encode: Callable[[str], list[int]],
    longest: int,
    count: int,
    target: int | None,
) -> tuple[list[Item], list[Tensor]]:
    """The first ``count`` documents that are long enough, and the beginnings of the last ones, for LongRoPE's search.

    Taken from the end, the texts of the search are the same for every ``count``.

    Args:
        documents, count: of `evaluate`.
        encode: a text as tokens.
        longest: tokens that a document has at least.
        target: tokens of each text of the search; None: there is none.
    """
    sources = list(documents)
    candidates = [each for each in sources if isinstance(each, Document)]
    candidates += read_documents([str(each) for each in sources]) if not candidates else []

    def tokens_of(document: Document, least: int) -> Tensor | None:
        if len(document.text) < least:  # no tokenizer here has tokens of less than a character on average
            return None
        tokens = encode(document.text)
        return torch.tensor(tokens[:least], dtype=torch.long) if len(tokens) >= least else None

    def first(candidates: Iterable[Document], number: int, least: int) -> list[tuple[Document, Tensor]]:
        chosen = ((document, tokens) for document in candidates if (tokens := tokens_of(document, least)) is not None)
        return list(islice(chosen, number))

    evaluated = first(candidates, count, longest)
    extra, least = (0, longest) if target is None else (_SEARCH_DOCUMENTS, max(longest, target))
    read = {document.sha256 for document, _ in evaluated}
    searched = first((document for document in reversed(candidates) if document.sha256 not in read), extra, least)
    if len(evaluated) < count or len(searched) < extra:
        also = f" and {extra} others of at least {least:,} for LongRoPE's search" if extra else ""
        raise ValueError(
            f"documents: {count} of at least {longest:,} tokens{also} are needed, and of {len(candidates)} there are "
            f"{len(evaluated)}{f' and {len(searched)}' if extra else ''}: give more or longer ones, fewer with "
            "--count, or shorter lengths"
        )
    items = [Item(number, document, tokens) for number, (document, tokens) in enumerate(evaluated)]
    return items, [tokens for _, tokens in searched]


def _open_logs(folder: Path | None, part: tuple[int, int]) -> list[MeasurementLog]:
    """This process's log, then the logs of other parts."""
    if folder is None:
        return [MeasurementLog()]
    folder.mkdir(parents=True, exist_ok=True)
    log_path = folder / ("readings.jsonl" if part == (1, 1) else f"readings-{part[0]}of{part[1]}.jsonl")
    log = MeasurementLog(log_path, lock=True)
    return [log, *_logs_of_others(folder, log)]


def _logs_of_others(folder: Path, log: MeasurementLog) -> list[MeasurementLog]:
    return [MeasurementLog(path) for path in sorted(folder.glob("readings*.jsonl")) if path != log.path]


def _dtype(model: nn.Module) -> str:
    return str(next(model.parameters()).dtype).removeprefix("torch.")


def _write(folder: Path, evaluation: Evaluation) -> None:
    """The record that can be sent to others, and the table."""
    record, table = json.dumps(evaluation.record(), indent=1) + "\n", f"{evaluation}\n"
    for name, text in (("record.json", record), ("table.md", table)):
        write_atomically(folder / name, partial(Path.write_text, data=text, encoding="utf-8"), replace=True)
