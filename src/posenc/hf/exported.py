"""A trained byte-level decoder as a folder that transformers reads: its parameters, a tokenizer, and a model card.

    from_parameters     parameters by name become a `PosencForCausalLM`
    write_folder        written aside, read back, compared with the logits of the original, and only then in its place
    model_card          README.md: what it is, how to load it, what is known of it

Names of parameters are Llama's without "model."; those of encodings are ``encodings.<line>.<name>`` where layers share
them or they act on embeddings, and ``layers.<i>.encodings.<line>.<name>`` where each layer has its own, with the number
of the line in the configuration's ``encodings``. Needs the extra ``posenc[hf]``.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor
from transformers import GenerationConfig, LlamaForCausalLM
from transformers.utils import logging

from posenc.catalogue import encoding_info
from posenc.hf.byte_tokenizer import SEPARATOR, byte_tokenizer
from posenc.hf.llama import plain_llama
from posenc.hf.modeling import PosencConfig, PosencForCausalLM

NEW_BYTES = 256  # that `generate` adds if nobody says
ROUNDING = 1e-4  # of the largest logit; a wrong parameter or rotation is far above
_FRONT = """---
library_name: transformers
pipeline_tag: text-generation
tags:
- posenc
- positional-encoding
- byte-level
---
"""
_LOAD = """```python
{needed}from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("{name}")
tokenizer = AutoTokenizer.from_pretrained("{name}")
prompt = tokenizer("def ", return_tensors="pt")
print(tokenizer.decode(model.generate(**prompt, max_new_tokens=64)[0]))
```"""
_POSENC = "import posenc.hf.modeling  # pip install 'posenc[hf]'; or give trust_remote_code=True\n"


def from_parameters(config: PosencConfig, parameters: Mapping[str, Tensor]) -> PosencForCausalLM:
    """A model with these parameters, in evaluation mode.

    Args:
        config: sizes and encodings.
        parameters: by name, as above; all of them, and no others.

    Raises:
        ValueError: for names or shapes that are not those of the configuration's model.
    """
    lines = config.lines()
    inside = [encoding_info(line["name"]).hook_point != "embedding" for line in lines]
    own = [n for n, line in enumerate(lines) if not line["shared"] and inside[n]]

    def of_layer(layer: int) -> list[int]:
        return [n for n in own if layer in lines[n].get("layers", [layer])]

    named = {_name(name, of_layer): tensor for name, tensor in parameters.items()}
    model: PosencForCausalLM = PosencForCausalLM(config).eval()
    try:
        model.load_state_dict(named)
    except RuntimeError as error:
        raise ValueError(f"parameters are not those of {config.encodings}: {error}") from error
    return model


def _name(name: str, own: Callable[[int], list[int]]) -> str:
    """The name of a parameter in `PosencForCausalLM`, where a layer numbers the encodings that it owns."""
    if name == "lm_head.weight":
        return name
    found = re.fullmatch(r"layers\.(\d+)\.encodings\.(\d+)\.(.+)", name)
    if found is None or int(found[2]) not in own(int(found[1])):
        return f"model.{name}"
    at = own(int(found[1])).index(int(found[2]))
    return f"model.layers.{found[1]}.self_attn.encodings.{at}.{found[3]}"


def write_folder(
    model: PosencForCausalLM,
    to: Path,
    *,
    tokens: Tensor,
    logits: Tensor,
    card: Callable[[float], str],
    plain: bool = False,
) -> float:
    """Write a model with its tokenizer and card; returns the largest difference of its logits from the original's.

    Args:
        model: whose tokens are the 256 bytes.
        to: a folder that does not exist yet, or is empty.
        tokens: ``(batch, length)``, on which it is compared.
        logits: ``(batch, length, 256)``, what the original says.
        card: README.md for that difference.
        plain: write a `LlamaForCausalLM`, which needs no posenc.

    Raises:
        ValueError: where there is something already, where a plain Llama has no such encodings, and where what was
            written says something else than the original. Then nothing is written.
    """
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise ValueError(f"{to}: there is something already; choose another folder")
    written: PosencForCausalLM | LlamaForCausalLM = plain_llama(model) if plain else model
    written.generation_config = GenerationConfig(
        bos_token_id=SEPARATOR, eos_token_id=SEPARATOR, pad_token_id=SEPARATOR, max_new_tokens=NEW_BYTES
    )
    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=to.parent, prefix=f".{to.name}.") as temporary, _quiet():
        new = Path(temporary) / "model"
        written.save_pretrained(new)
        byte_tokenizer().save_pretrained(new)
        again = (LlamaForCausalLM if plain else PosencForCausalLM).from_pretrained(new).eval()
        with torch.no_grad():
            found = again(tokens, use_cache=False).logits
        difference: float = (logits - found).abs().max().item()
        if not difference <= ROUNDING * max(1.0, logits.abs().max().item()):
            raise ValueError(f"{to}: read back, its logits differ by {difference:.1e}; nothing was written")
        (new / "README.md").write_text(card(difference), encoding="utf-8")
        if to.exists():
            to.rmdir()
        new.rename(to)
    return difference


def model_card(
    name: str, title: str, about: str, parts: Mapping[str, str], *, difference: float, plain: bool = False
) -> str:
    """README.md of a model.

    Args:
        name: of its folder.
        title: headline.
        about: a paragraph.
        parts: further ones, by headline.
        difference: largest one between its logits and those of the original.
        plain: whether it is a `LlamaForCausalLM`.
    """
    kind, needed = ("a plain `LlamaForCausalLM`", "") if plain else ("a `PosencForCausalLM`", _POSENC)
    same = f"On bytes drawn at random its logits differ from those of the original by at most {difference:.1e}."
    told = [f"\n## {headline}\n\n{text}\n" for headline, text in parts.items()]
    load = _LOAD.format(needed=needed, name=name)
    return "\n".join([f"{_FRONT}\n# {title}\n", f"{about}\n", f"Here it is {kind}. {same}\n", load, *told])


@contextmanager
def _quiet() -> Iterator[None]:
    """No bars for files of a few megabytes."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
