"""A trained decoder of bytes or byte pairs as a folder that transformers reads: parameters and tokenizer.

    from_parameters     parameters by name become a `PosencForCausalLM`
    byte_tokenizer      bytes as tokens; byte 0 separates documents, and is the padding
    pair_tokenizer      byte pairs as tokens, from a tokenizer.json whose token 0 is byte 0
    write_folder        written aside, read back, compared with the logits of the original, and only then in its place

Names of parameters are Llama's without "model."; encodings' are ``encodings.<spec>.<name>`` where layers share
them or they act on embeddings, and ``layers.<i>.encodings.<line>.<name>`` where each layer has its own, with the number
of the line in the configuration's ``encodings``. Needs the extra ``posenc[hf]``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from torch import Tensor
from transformers import GenerationConfig, PreTrainedTokenizerFast
from transformers.utils import logging

from posenc.catalogue import encoding_info
from posenc.hf.atomic_write import write_atomically
from posenc.hf.byte_level import byte_letters
from posenc.hf.modeling.causal_lm import PosencConfig, PosencForCausalLM

SEPARATOR = 0


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Text to its UTF-8 bytes and back: ``decode(encode(text)) == text``.

    >>> byte_tokenizer()("Añ")["input_ids"]
    [65, 195, 177]
    """
    vocabulary = {letter: byte for byte, letter in enumerate(byte_letters())}
    tokenizer = Tokenizer(BPE(vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _for_transformers(tokenizer)


def pair_tokenizer(content: bytes) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer of byte pairs.

    Args:
        content: of its tokenizer.json, in which tokens 0 to 255 are the bytes.
    """
    return _for_transformers(Tokenizer.from_str(content.decode()))


def _for_transformers(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    letter = byte_letters()[SEPARATOR]
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=letter, eos_token=letter, pad_token=letter,
        # Otherwise the letter that stands for byte 0 would be taken for it in texts, and spaces would get lost.
        split_special_tokens=True, clean_up_tokenization_spaces=False,
        padding_side="left", model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip


NEW_BYTES = 256  # that `generate` adds if nobody says
ROUNDING = 1e-4  # of the largest logit; a wrong parameter or rotation is far above


def from_parameters(config: PosencConfig, parameters: Mapping[str, Tensor]) -> PosencForCausalLM:
    """A model with these parameters, in evaluation mode.

    Args:
        config: sizes and encodings.
        parameters: by name, as above; all of them, and no others.

    Raises:
        ValueError: for names or shapes that differ from the configuration's model.
    """
    lines = config.encoding_specs()
    inside = [encoding_info(line["name"]).hook_point != "embedding" for line in lines]
    per_layer = [n for n, line in enumerate(lines) if not line["shared"] and inside[n]]

    def of_layer(layer: int) -> list[int]:
        return [n for n in per_layer if layer in lines[n].get("layers", [layer])]

    named = {_name(name, of_layer): tensor for name, tensor in parameters.items()}
    model: PosencForCausalLM = PosencForCausalLM(config).eval()
    try:
        model.load_state_dict(named)
    except RuntimeError as error:
        raise ValueError(f"parameters do not fit {config.encodings}: {error}") from error
    return model


def _name(name: str, per_layer: Callable[[int], list[int]]) -> str:
    """The name of a parameter in `PosencForCausalLM`, where a layer numbers the encodings that it owns."""
    if name == "lm_head.weight":
        return name
    match = re.fullmatch(r"layers\.(\d+)\.encodings\.(\d+)\.(.+)", name)
    if match is None or int(match[2]) not in per_layer(int(match[1])):
        return f"model.{name}"
    at = per_layer(int(match[1])).index(int(match[2]))
    return f"model.layers.{match[1]}.self_attn.encodings.{at}.{match[3]}"


def write_folder(
    model: PosencForCausalLM,
    to: Path,
    *,
    tokens: Tensor,
    logits: Tensor,
    tokenizer: bytes = b"",
) -> float:
    """Write a model with its tokenizer; returns the largest difference of its logits from the original's.

    Args:
        model: whose tokens ``tokenizer`` defines.
        to: a folder that does not exist yet, or is empty.
        tokens: ``(batch, length)``, on which it is compared.
        logits: ``(batch, length, vocabulary)``, what the original says.
        tokenizer: content of a tokenizer.json of byte pairs; empty where the tokens are the 256 bytes.

    Raises:
        ValueError: where there is something already, and where what was written says something else than the original.
            Then nothing is written.
    """
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise ValueError(f"{to}: there is something already; choose another folder")
    model.generation_config = GenerationConfig(
        bos_token_id=SEPARATOR, eos_token_id=SEPARATOR, pad_token_id=SEPARATOR, max_new_tokens=NEW_BYTES
    )

    def make(folder: Path) -> float:
        model.save_pretrained(folder)
        (pair_tokenizer(tokenizer) if tokenizer else byte_tokenizer()).save_pretrained(folder)
        again = PosencForCausalLM.from_pretrained(folder).eval()
        with torch.no_grad():
            difference = float((logits - again(tokens, use_cache=False).logits).abs().max())
        if not difference <= ROUNDING * max(1.0, logits.abs().max().item()):
            raise ValueError(f"{to}: read back, its logits differ by {difference:.1e}; nothing was written")
        if to.exists():
            to.rmdir()  # an empty folder, which a rename would not replace on every system
        return difference

    with _quiet():
        return write_atomically(to, make)


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
