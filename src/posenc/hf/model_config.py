"""The configuration of `posenc.hf.modeling`: a decoder's sizes, and its encodings by their names in the catalogue.

"encodings": [{"name": "rope", "shared": true, "options": {"base": 10000.0}}]
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from huggingface_hub.dataclasses import strict
from transformers.configuration_utils import PreTrainedConfig

from posenc.catalogue import SHAPE, info
from posenc.encoding import Encoding

CODE = "modeling_posenc"
_CODE_TEXT = '''"""How transformers finds this model with trust_remote_code=True; it needs `pip install posenc`."""

from posenc.hf.modeling import PosencConfig, PosencForCausalLM, PosencModel
'''


class Line(TypedDict):
    """One encoding of a model."""

    name: str
    shared: bool
    options: dict[str, Any]


@strict
class PosencConfig(PreTrainedConfig):
    """Sizes and encodings of a decoder.

    Args:
        vocab_size: tokens.
        hidden_size: width of the stream.
        intermediate_size: width of the feed-forward layers, default 8/3 of ``hidden_size`` up to a multiple of 32.
        num_hidden_layers: layers.
        num_attention_heads: query heads.
        num_key_value_heads: key and value heads, default as many.
        head_dim: width of a head, default ``hidden_size // num_attention_heads``.
        encodings: names joined by ``+``, or a list with, for each, ``name``, ``options`` of its class (default none),
            and whether all layers have it ``shared`` (default: as the catalogue says). The empty list is NoPE.
        train_length: tokens of a text in training; length-like options follow it where they are not given.
        max_position_embeddings: the longest text, default ``train_length``; only learned tables end there.
        declared_length: tokens that length-dependent rotations shall span; None: those of each row so far, which leaves
            no use for a cache, since every new token would turn the old ones anew.
        qk_norm: RMS norm of queries and keys per head.
        attention_bias: whether attention's projections have one.
        rms_norm_eps: beside the mean square.
        initializer_range: standard deviation of initial matrices.

    >>> PosencConfig(encodings="rope+alibi").lines()
    [{'name': 'rope', 'shared': True, 'options': {}}, {'name': 'alibi', 'shared': True, 'options': {}}]
    """

    model_type = "posenc"
    keys_to_ignore_at_inference = ("past_key_values",)

    vocab_size: int = 256
    hidden_size: int = 128
    intermediate_size: Any = None  # this and the other three are integers, once filled in
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    num_key_value_heads: Any = None
    head_dim: Any = None
    encodings: Any = "rope"
    train_length: int = 2048
    max_position_embeddings: Any = None
    declared_length: int | None = None
    qk_norm: bool = False
    attention_bias: bool = False
    rms_norm_eps: float = 1e-6
    initializer_range: float = 0.02
    use_cache: bool = True
    tie_word_embeddings: bool = False
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    pad_token_id: int | None = None
    auto_map: dict[str, str] | None = None

    def validate_sizes(self) -> None:
        """Fill in the sizes that follow from others; transformers calls this after all else."""
        if self.intermediate_size is None:
            self.intermediate_size = 32 * -(-8 * self.hidden_size // 96)
        if self.num_key_value_heads is None:
            self.num_key_value_heads = self.num_attention_heads
        if self.head_dim is None:
            self.head_dim = self.hidden_size // self.num_attention_heads
        if self.max_position_embeddings is None:
            self.max_position_embeddings = self.train_length
        self.auto_map = {
            "AutoConfig": f"{CODE}.PosencConfig",
            "AutoModel": f"{CODE}.PosencModel",
            "AutoModelForCausalLM": f"{CODE}.PosencForCausalLM",
        }

    def lines(self) -> list[Line]:
        """The encodings, each with everything that decides it.

        Raises:
            ValueError: for one that is not known or cannot be built at these sizes, and for one that wants positions
                that are not places in a text.
        """
        return [self._line(line) for line in _lines(self.encodings)]

    def create(self, line: Line) -> Encoding:
        """One encoding of one line of ``encodings``."""
        words = {
            "dim": self.hidden_size,
            "num_heads": self.num_attention_heads,
            "kv_heads": self.num_key_value_heads,
            "head_dim": self.head_dim,
            "max_length": self.max_position_embeddings,
            "train_length": self.train_length,
        }
        return info(line["name"]).create(**{**words, **line["options"]})

    def to_json_file(self, json_file_path: str | os.PathLike[str], use_diff: bool = True) -> None:
        """Write the configuration, and beside it the file that its ``auto_map`` names."""
        super().to_json_file(json_file_path, use_diff=use_diff)
        Path(json_file_path).with_name(f"{CODE}.py").write_text(_CODE_TEXT)

    @classmethod
    def register_for_auto_class(cls, auto_class: str = "AutoConfig") -> None:
        """Nothing: ``auto_map`` names a file that imports this class, and `to_json_file` writes it."""

    def _line(self, given: Mapping[str, Any]) -> Line:
        """A line with everything that decides the encoding, checked."""
        unknown = set(given) - {"name", "shared", "options"}
        if unknown or "name" not in given:
            raise ValueError(f"encodings: name is needed, shared and options are possible, got {dict(given)}")
        entry = info(given["name"])
        lengths = {key: value for key, value in entry.lengths(self.train_length).items() if key not in SHAPE}
        options = {**lengths, **given.get("options", {})}
        line: Line = {"name": entry.name, "shared": bool(given.get("shared", entry.shared)), "options": options}
        if entry.own_positions:
            raise ValueError(
                f"encodings: positions of {entry.name} are not places in a text, which is all there is here"
            )
        axes = self.create(line).axes
        if axes > 1:
            raise ValueError(f"encodings: positions of {entry.name} have {axes} coordinates, those of text one")
        return line


def _lines(given: Any) -> list[Mapping[str, Any]]:
    if isinstance(given, str):
        names = [name.strip() for name in given.split("+")]
        return [{"name": name} for name in names if name.lower() != "nope"]
    if not isinstance(given, Sequence) or not all(isinstance(line, Mapping) for line in given):
        raise ValueError(f"encodings must be names joined by +, or a list of objects with a name, got {given!r}")
    return list(given)
