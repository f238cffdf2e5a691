"""A trained model of transformers as each cell has it, and the logits of its last tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache
from typing_extensions import TypedDict

from posenc.hf.attach.checkpoint import load_model
from posenc.hf.extend.measure import fingerprint
from posenc.hf.extend.methods import DISTANCES, SCALED, check_method, moved
from posenc.hf.extend.rotary_modules import RotaryModules, apply, scaled
from posenc.hf.extend.search import FactorSearch
from posenc.hf.text_loss import called, last_logits
from posenc.lab.config import Config
from posenc.lab.files import write_json
from posenc.lab.schema import Number, read_record
from posenc.lab.tasks.cells import BASE, SEARCHED, WINDOWED, Cell, Row
from posenc.lab.tasks.checkpoint_data import Given
from posenc.lab.tasks.checkpoint_numbers import options_of
from posenc.lab.tasks.task import LabModel

CHUNK = 1024  # tokens that are read at a time under a sliding window
_LAST = 1024  # tokens of a piece that a search judges by, at most


class SearchedFactors(TypedDict):
    """What the file of a finished search holds."""

    factors: tuple[Number, ...]


class GivenModel(LabModel):
    """A model as one cell has it."""

    def __init__(self, model: nn.Module, cell: Cell) -> None:
        super().__init__()
        self.model, self.cell, self.lr_multipliers = model, cell, {}

    @torch.no_grad()
    def logits(self, tokens: Tensor, count: int, window: int) -> Tensor:
        """Logits ``(count, vocabulary)`` after the last tokens of ``tokens`` (length,)."""
        if self.cell.method == WINDOWED:
            return windowed(self.model, tokens[None], count, window)[0]
        return last_logits(self.model, tokens[None], count)[0]


def check_row(text: str) -> None:
    """Raise a ValueError unless a row can be measured."""
    row = Row.parse(text)
    if row.method != BASE:
        check_method(row.method)
    if row.method not in (BASE, SEARCHED, *DISTANCES) and row.method.partition("+")[0] not in SCALED:
        raise ValueError(f"{text}: --task checkpoint trains nothing and chooses nothing; posenc extend does")


def reaches(method: str, trained: int, target: int) -> bool:
    """Whether a method gets from a trained length to another."""
    if method not in DISTANCES:
        return True
    try:
        moved(method, trained, target)
    except ValueError:
        return False
    return True


def cell_of(spec: str, config: Config, data: Given) -> GivenModel:
    """The model of a job, on the processor."""
    cell, trained = Cell.parse(spec), config.training.train_length
    folder = Path(data.source) if data.source else _folder(data) / "model"
    dtype = getattr(torch, config.training.precision)
    model: Any = load_model(folder, torch.float32)
    if fingerprint(model) != data.model:
        raise ValueError(f"{folder}: its weights are not those that this run began with")
    model = model.to(dtype)
    rotations = RotaryModules(model)
    if cell.method in DISTANCES:
        apply(rotations, cell.method, trained, cell.target)
    elif cell.method == SEARCHED and cell.part is not None:
        searcher = _searcher(rotations, cell, config)
        rotations.put(searcher.config((1.0,) * searcher.pairs, _found(cell, data)))
    elif cell.method not in (BASE, WINDOWED, SEARCHED):
        rotations.put(scaled(rotations, cell.method, trained, cell.target))
    return GivenModel(model, cell)


def search(model: GivenModel, config: Config, data: Given) -> tuple[float, ...]:
    """LongRoPE's factors, each step of whose search is kept beside the data; jobs after it find them there."""
    cell, trained = model.cell, config.training.train_length
    found = _searcher(RotaryModules(model.model), cell, config).search(
        [piece[-cell.target :] for piece in data.pieces], trained=trained, factor=cell.target / trained,
        journal=_folder(data) / f"search-{cell.target}.jsonl",
    )  # fmt: skip
    write_json(_folder(data) / f"search-{cell.target}.json", {"factors": list(found)})
    return found


def _found(cell: Cell, data: Given) -> tuple[float, ...]:
    path = _folder(data) / f"search-{cell.target}.json"
    if not path.exists():
        raise ValueError(f"{path} is not there, since the search has not ended: run the same command again")
    factors: tuple[float, ...] = read_record(path, SearchedFactors)["factors"]
    return factors


def windowed(model: Any, tokens: Tensor, count: int, window: int) -> Tensor:
    """Logits ``(1, count, vocabulary)`` after the last tokens, if each token sees the last ``window`` in every layer.

    Args:
        model: of transformers, all of whose layers see everything.
        tokens: ``(1, tokens)``.
        count: of the last tokens.
        window: the token itself included.
    """
    kept, length = DynamicCache(config=model.config), tokens.shape[1]
    found = []
    for start in range(0, length, CHUNK):
        piece = tokens[:, start : start + CHUNK]
        before = min(start, window - 1)
        for layer in kept.layers if start else ():
            layer.keys, layer.values = (part[:, :, part.shape[2] - before :] for part in (layer.keys, layer.values))
        places = torch.arange(start, start + piece.shape[1], device=tokens.device)
        back = places[:, None] - torch.arange(start - before, int(places[-1]) + 1, device=tokens.device)
        wanted = min(piece.shape[1], max(0, int(places[-1]) + 1 - (length - count)))
        out = called(
            model, piece, max(1, wanted), use_cache=True, cache=kept, position_ids=places[None],
            attention_mask=((back >= 0) & (back < window))[None, None],
        )  # fmt: skip
        found.append(out.logits[:, out.logits.shape[1] - wanted :])
    return torch.cat(found, 1)


def _searcher(rotations: RotaryModules, cell: Cell, config: Config) -> FactorSearch:
    trained = config.training.train_length
    return FactorSearch(
        rotations, original_length=trained, length=cell.target, last=min(_LAST, trained // 8),
        settings=options_of(config).sizes, seed=0,
    )  # fmt: skip


def _folder(data: Given) -> Path:
    assert data.folder is not None
    return data.folder
