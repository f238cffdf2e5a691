"""The configuration of `posenc.hf.modeling`: a decoder's sizes, and its encodings by their names in the catalogue.

"encodings": [{"name": "rope", "shared": true, "options": {"base": 10000.0}}]
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from huggingface_hub.dataclasses import strict
from transformers.configuration_utils import PreTrainedConfig

from posenc.arguments import shown
from posenc.encoding import Encoding
from posenc.hf.config import encoding_spec
from posenc.hf.config.encoding_spec import EncodingSpec, Sizes
from posenc.hf.config.text_config import DEFAULTS, MODEL_TYPE

CODE = "modeling_posenc"
_CODE_TEXT = '''"""How transformers finds this model with trust_remote_code=True; it needs `pip install posenc`."""

from posenc.hf.modeling import PosencConfig, PosencForCausalLM, PosencModel
'''


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
        encodings: names joined by ``+``, a schedule over layers such as ``"rope@64/nope:4"`` (`posenc.schedule`), or a
            list with, for each, ``name``, ``options`` of its class (default none), whether all layers have it
            ``shared`` (default: as the catalogue says), and in which ``layers`` it acts (default all). The empty list
            is NoPE.
        windows: tokens that a token sees, itself included, for each layer, null for all; None: no layer has a window.
            A schedule with windows fills it in.
        train_length: tokens of a text in training; length-like options follow it where they are not given.
        max_position_embeddings: the longest text, default ``train_length``; only learned tables end there.
        declared_length: tokens that length-dependent rotations shall span; None: those of each row so far, which leaves
            no use for a cache, since every new token would rotate the old ones anew.
        qk_norm: RMS norm of queries and keys per head.
        attention_bias: whether attention's projections have one.
        rms_norm_eps: beside the mean square.
        initializer_range: standard deviation of initial matrices.

    >>> PosencConfig(encodings="rope+alibi").encoding_specs()
    [{'name': 'rope', 'shared': True, 'options': {}}, {'name': 'alibi', 'shared': True, 'options': {}}]
    """

    model_type = MODEL_TYPE
    keys_to_ignore_at_inference = ("cache", "past_key_values")

    # `encoding_spec.check_size` knows what each may be, so that what is wrong is a ValueError that names the key
    vocab_size: Any = 256
    hidden_size: Any = DEFAULTS["hidden_size"]
    intermediate_size: Any = None
    num_hidden_layers: Any = DEFAULTS["num_hidden_layers"]
    num_attention_heads: Any = DEFAULTS["num_attention_heads"]
    num_key_value_heads: Any = None
    head_dim: Any = None
    encodings: Any = DEFAULTS["encodings"]
    windows: Any = None
    train_length: Any = DEFAULTS["train_length"]
    max_position_embeddings: Any = None
    declared_length: Any = None
    qk_norm: Any = False
    attention_bias: Any = False
    rms_norm_eps: Any = 1e-6
    initializer_range: Any = 0.02
    use_cache: Any = True
    tie_word_embeddings: Any = False
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    pad_token_id: int | None = None
    auto_map: dict[str, str] | None = None

    def __setattr__(self, name: str, value: object) -> None:
        """Check what the value of a key may be; a ValueError names the key."""
        encoding_spec.check_size(name, value)
        super().__setattr__(name, value)

    def validate_sizes(self) -> None:
        """Fill in the sizes that follow from others; transformers calls this after all else."""
        sizes = self.sizes()
        if self.intermediate_size is None:
            self.intermediate_size = 32 * -(-8 * self.hidden_size // 96)
        self.num_key_value_heads, self.head_dim = sizes["num_kv_heads"], sizes["head_dim"]
        self.max_position_embeddings = sizes["max_length"]
        self.auto_map = {
            "AutoConfig": f"{CODE}.PosencConfig",
            "AutoModel": f"{CODE}.PosencModel",
            "AutoModelForCausalLM": f"{CODE}.PosencForCausalLM",
        }

    def sizes(self) -> Sizes:
        """What of the shape decides the encodings."""
        return encoding_spec.sizes_of(vars(self))

    def encoding_specs(self) -> list[EncodingSpec]:
        """The encodings, each with everything that decides it.

        Raises:
            ValueError: for an encoding that is unknown, cannot be built at these sizes, or takes positions
                other than indices of tokens.
        """
        return encoding_spec.encoding_specs(self.encodings, self.sizes())

    def layer_windows(self) -> list[int | None] | None:
        """The window of each layer, as given or as a schedule has them; None where no layer has one."""
        encoding_spec.check_windows(self.windows, self.num_hidden_layers)
        if self.windows is None and isinstance(self.encodings, str):
            return encoding_spec.scheduled(self.encodings, self.num_hidden_layers)[1]
        return None if self.windows is None else list(self.windows)

    def create(self, spec: EncodingSpec) -> Encoding:
        """The encoding of one entry of ``encodings``."""
        return encoding_spec.create(spec, self.sizes())

    def to_json_file(self, json_file_path: str | os.PathLike[str], use_diff: bool = True) -> None:
        """Write the configuration, and next to it the file that its ``auto_map`` names."""
        if not isinstance(json_file_path, str | os.PathLike):  # an integer would be a file that is open already
            raise ValueError(f"json_file_path must be a path, got {shown(json_file_path)}")
        super().to_json_file(json_file_path, use_diff=use_diff)
        Path(json_file_path).with_name(f"{CODE}.py").write_text(_CODE_TEXT)

    @classmethod
    def register_for_auto_class(cls, auto_class: str = "AutoConfig") -> None:
        """Nothing: ``auto_map`` names a file that imports this class, and `to_json_file` writes it."""
