"""A decoder with any encodings of the catalogue, as a model of transformers: `from_pretrained`, `generate`, training.

    tokens ─ embed ─ (+ embedding encodings) ─ [ norm ─ attention ─ + ─ norm ─ SwiGLU ─ + ] × layers ─ norm ─ head

Importing this module tells transformers' Auto classes the model type "posenc". Folders that such a model is saved in
also name a file that imports it, for ``trust_remote_code=True``. Parameters have the names and shapes of Llama's.
Needs the extra ``posenc[hf]``.

Validation of a model's inputs; token values are not read, since a GPU would have to wait for them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import zip_longest
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM
from transformers.cache_utils import Cache, DynamicCache
from transformers.generation.utils import GenerationMixin
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.modeling_utils import PreTrainedModel

from posenc.arguments import LONGEST, check_flag, check_whole, shown
from posenc.encoding import EmbeddingEncoding, Encoding, RotaryEncoding, Table
from posenc.hf.modeling.cache_layer import OUT, kv_caches, one_cache
from posenc.hf.modeling.model_config import PosencConfig as PosencConfig
from posenc.hf.modeling.packing import documents_of
from posenc.layers import KVCache, SelfAttention
from posenc.layers.default_positions import default_positions
from posenc.positions import checking as position


class Attention(SelfAttention):
    """Causal self-attention that owns some of its encodings; the others belong to the model, for all layers.

    Args:
        dim: width of x.
        num_heads: query heads.
        encodings: all of them, in their order.
        borrowed: those among them that the model owns, so that their parameters have one name.
        window: tokens that a token sees in this layer, itself included; None: all.
        options: of `SelfAttention`.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        encodings: Sequence[Encoding],
        borrowed: Collection[Encoding],
        window: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(dim, num_heads, encodings=encodings, **options)
        self.window = window
        # Caches keep positions even where no encoding of the layer reads any: the model's embeddings may, and they
        # tell where a document begins.
        self.axes = max(self.axes, 1)
        registered = [e for e in encodings if e not in borrowed]
        self.encodings = nn.ModuleList(registered)
        # A tuple registers nothing; an own one is found by its number, in case something wraps it.
        self._order = tuple(e if e in borrowed else registered.index(e) for e in encodings)

    def _acting(self) -> list[Encoding]:
        acting = [self.encodings[e] if isinstance(e, int) else e for e in self._order]
        return [e for e in acting if isinstance(e, Encoding)]

    def in_order(self) -> list[Encoding]:
        """All encodings that act here, own and borrowed."""
        return self._acting()


class SwiGLU(nn.Module):
    """The feed-forward layer: a gate times a value, projected back."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(dim, hidden, bias=False)
        self.up_proj = nn.Linear(dim, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """``x`` (batch, tokens, dim) to the same shape."""
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class PosencDecoderLayer(GradientCheckpointingLayer):
    """One layer: attention and feed-forward, each on the normalised stream and added to it."""

    def __init__(self, attention: Attention, *, hidden: int, eps: float) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(attention.dim, eps=eps)
        self.self_attn = attention
        self.post_attention_layernorm = nn.RMSNorm(attention.dim, eps=eps)
        self.mlp = SwiGLU(attention.dim, hidden)

    def forward(
        self,
        x: Tensor,
        positions: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        segments: Tensor | None = None,
        cache: KVCache | None = None,
        tables: dict[Encoding, Table] | None = None,
        length: int | None = None,
    ) -> Tensor:
        """``x`` (batch, tokens, dim) to the same shape; ``tables`` by rotation; see `SelfAttention` for the rest."""
        attend = self.self_attn
        acting = None if tables is None else [tables[e] for e in attend.in_order() if isinstance(e, RotaryEncoding)]
        x = x + attend(
            self.input_layernorm(x), positions,
            attention_mask=attention_mask, segments=segments, cache=cache, tables=acting, length=length,
            window=attend.window,
        )  # fmt: skip
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class PosencPreTrainedModel(PreTrainedModel):
    """What transformers asks of a model."""

    config: PosencConfig
    config_class = PosencConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules: ClassVar[list[str]] = ["PosencDecoderLayer"]
    _skip_keys_device_placement: ClassVar[list[str]] = ["cache", "past_key_values"]

    def __init__(self, config: PosencConfig) -> None:
        if not isinstance(config, PosencConfig):
            raise ValueError(f"config must be a PosencConfig, got {shown(config)}")
        super().__init__(config)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        reset = getattr(module, "reset_parameters", None) if isinstance(module, Encoding) else None
        if not isinstance(module, Encoding):
            super()._init_weights(module)
        elif reset is not None and not all(getattr(p, "_is_hf_initialized", False) for p in module.parameters()):
            reset()

    @classmethod
    def register_for_auto_class(cls, auto_class: str = "AutoModel") -> None:
        """Nothing: the configuration's ``auto_map`` names a file that imports this class, and writes that file."""


class PosencModel(PosencPreTrainedModel):
    """The decoder without its head."""

    def __init__(self, config: PosencConfig) -> None:
        super().__init__(config)
        config.windows, config.encodings = config.layer_windows(), config.encoding_specs()
        layers = config.num_hidden_layers
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        # Encodings that all layers share, under their number in the configuration; a layer owns the others.
        self.encodings = nn.ModuleDict()
        acting: list[list[Encoding]] = [[] for _ in range(layers)]
        for number, line in enumerate(config.encodings):
            first = config.create(line)
            once = isinstance(first, EmbeddingEncoding) or line["shared"]
            if once:
                self.encodings[str(number)] = first
            if not isinstance(first, EmbeddingEncoding):
                for at, place in enumerate(line.get("layers", range(layers))):
                    acting[place].append(first if once or at == 0 else config.create(line))
        windows = config.windows or [None] * layers
        self.layers = nn.ModuleList(map(self._layer, acting, windows))
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_init()

    def _layer(self, encodings: list[Encoding], window: int | None) -> PosencDecoderLayer:
        config = self.config
        attention = Attention(
            config.hidden_size, config.num_attention_heads,
            encodings=encodings, borrowed=self.shared(), num_kv_heads=config.num_key_value_heads,
            head_dim=config.head_dim, qk_norm=config.qk_norm, bias=config.attention_bias,
            window=window,
        )  # fmt: skip
        return PosencDecoderLayer(attention, hidden=config.intermediate_size, eps=config.rms_norm_eps)

    def shared(self) -> list[Encoding]:
        """The encodings that are there once, for all layers."""
        return [e for e in self.encodings.values() if isinstance(e, Encoding)]

    def decoder_layers(self) -> list[PosencDecoderLayer]:
        """The layers."""
        return [layer for layer in self.layers if isinstance(layer, PosencDecoderLayer)]

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        *,
        cache: Cache | None = None,
        seq_idx: Tensor | None = None,
        cu_seq_lens_q: Tensor | None = None,
        cu_seq_lens_k: Tensor | None = None,
        max_length_q: int | None = None,
        max_length_k: int | None = None,
    ) -> BaseModelOutputWithPast | tuple[Any, ...]:
        """The stream after the last norm.

        The documents of a packed row do not see each other. They are told apart by ``position_ids`` that start again,
        with or without a mask or a cache, by ``seq_idx``, or by ``cu_seq_lens_q`` and ``cu_seq_lens_k``.

        Args:
            input_ids: ``(batch, tokens)``, or ``inputs_embeds`` ``(batch, tokens, hidden_size)`` in their place.
            attention_mask: ``(batch, tokens in the cache + tokens)``, 1 at real tokens.
            position_ids: ``(batch | 1, tokens)``; default: the real tokens of each document count from 0, wherever the
                padding is.
            past_key_values, cache: a `DynamicCache`, empty or from an earlier call, under either of its names.
            use_cache: whether to make one; default: as the configuration says, and not while training.
            output_hidden_states: whether to return the stream before each layer, and at the end.
            return_dict: False returns a tuple.
            seq_idx: the document of each token, ``(batch | 1, tokens)``.
            cu_seq_lens_q, cu_seq_lens_k: where the documents of a batch of one row begin, and the number of its
                tokens, ``(documents + 1,)``; both alike.
            max_length_q, max_length_k: not read; collators give them with ``cu_seq_lens_q``.
        """
        check_tokens(input_ids, inputs_embeds, self.config.hidden_size)
        check_flags({"use_cache": use_cache, "output_hidden_states": output_hidden_states, "return_dict": return_dict})
        x: Tensor = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        cache = one_cache(cache, past_key_values)
        if use_cache is None:
            use_cache = self.config.use_cache and not self.training and not self.rotates_cached_keys_anew()
        if cache is not None or use_cache:
            self.check_cache()
        if cache is None and use_cache:
            cache = DynamicCache()
        caches = [] if cache is None else kv_caches(cache, len(self.layers))
        first = caches[0] if caches else None
        past = 0 if first is None else first.seen
        padding = _padding(attention_mask, past, x)
        if position_ids is not None:
            position.check("position_ids", position_ids, x.shape[1], x.shape[0])
        documents = documents_of(
            x, position_ids=position_ids, padding=padding, cache=first,
            seq_idx=seq_idx, cu_seq_lens_q=cu_seq_lens_q, cu_seq_lens_k=cu_seq_lens_k,
        )  # fmt: skip
        here = position_ids
        if here is None:
            here = default_positions(x.shape[1], x.device, attention_mask=padding, segments=documents, cache=first)
        positions = here if here.ndim > 1 else None  # where they only count on from the cache, layers do so themselves
        for encoding in self.shared():
            if isinstance(encoding, EmbeddingEncoding):
                x = encoding(x, here)
        tables, length, seen = self._tables(here, x), self.config.declared_length, []
        for layer, kv in zip_longest(self.layers, caches):
            seen.append(x)
            x = layer(x, positions, attention_mask=padding, segments=documents, cache=kv, tables=tables, length=length)
        x = self.norm(x)
        with_states = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        hidden_states = (*seen, x) if with_states else None
        out = BaseModelOutputWithPast(last_hidden_state=x, hidden_states=hidden_states, **{OUT: cache})
        return out.to_tuple() if return_dict is False else out

    def _tables(self, positions: Tensor, like: Tensor) -> dict[Encoding, Table] | None:
        """Made once where layers share their rotations, and these need a token's position alone; by rotation."""
        rotary, length = self.rotary(), self.config.declared_length
        if not rotary or not all(e in self.shared() and e.cacheable(length) for e in rotary):
            return None
        return {e: e.table(positions, length, like=like) for e in rotary}

    def rotary(self) -> list[RotaryEncoding]:
        """What rotates queries and keys in some layer, each once."""
        every = (e for layer in self.decoder_layers() for e in layer.self_attn.in_order())
        return [e for e in dict.fromkeys(every) if isinstance(e, RotaryEncoding)]

    def check_cache(self) -> None:
        """Raise a ValueError if keys and values of earlier calls do not serve later ones."""
        if self.training and torch.is_grad_enabled() and any(each.gradient_checkpointing for each in self.layers):
            raise ValueError(
                "cache, past_key_values, use_cache: activation checkpointing runs the layers a second time, which "
                "would keep all tokens twice: give use_cache=False"
            )
        if self.rotates_cached_keys_anew():
            raise ValueError(
                "cache, past_key_values: these frequencies depend on the length of a row, so every new token rotates "
                "all earlier ones anew, in all layers; give use_cache=False, or the configuration a declared_length"
            )

    def rotates_cached_keys_anew(self) -> bool:
        """Whether a longer row rotates all its tokens differently, so that no cache serves."""
        return self.config.declared_length is None and any(e.length_dependent for e in self.rotary())


class PosencForCausalLM(PosencPreTrainedModel, GenerationMixin):
    """The decoder with its head: logits of the next token.

    >>> config = PosencConfig(vocab_size=256, hidden_size=32, num_attention_heads=4, encodings="rope+alibi")
    >>> PosencForCausalLM(config)(torch.tensor([[80, 97]])).logits.shape
    torch.Size([1, 2, 256])
    """

    _tied_weights_keys: ClassVar[dict[str, str]] = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: PosencConfig) -> None:
        super().__init__(config)
        self.model = PosencModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()
        if self.model.rotates_cached_keys_anew():
            self.generation_config.use_cache = False

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        *,
        cache: Cache | None = None,
        seq_idx: Tensor | None = None,
        cu_seq_lens_q: Tensor | None = None,
        cu_seq_lens_k: Tensor | None = None,
        max_length_q: int | None = None,
        max_length_k: int | None = None,
    ) -> CausalLMOutputWithPast | tuple[Any, ...]:
        """Logits ``(batch, tokens, vocab_size)``; see `PosencModel.forward` for what is not named here.

        Args:
            labels: ``(batch, tokens)``, the tokens themselves, -100 where none counts: the loss shifts them.
            logits_to_keep: of how many tokens at the end, or of which; 0: of all.
        """
        check_flags({"return_dict": return_dict})
        check_kept(logits_to_keep)
        out = self.model(
            input_ids, attention_mask, position_ids, past_key_values, inputs_embeds, use_cache, output_hidden_states,
            cache=cache, seq_idx=seq_idx, cu_seq_lens_q=cu_seq_lens_q, cu_seq_lens_k=cu_seq_lens_k,
        )  # fmt: skip
        x = out.last_hidden_state
        scored = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(x[:, scored])
        check_labels(labels, logits)
        loss = None if labels is None else self.loss_function(logits, labels, vocab_size=self.config.vocab_size)
        full = CausalLMOutputWithPast(
            loss=loss, logits=logits, hidden_states=out.hidden_states, **{OUT: getattr(out, OUT)}
        )
        return full.to_tuple() if return_dict is False else full


def _padding(mask: Tensor | None, past: int, x: Tensor) -> Tensor | None:
    """Which of the tokens of ``x`` are real, bool ``(batch, tokens)``; None if no row has any padding."""
    if mask is None:
        return None
    check_mask(mask, past, x)
    if not torch.compiler.is_compiling() and bool(mask.all()):
        return None
    return mask[:, past:].bool()


AutoConfig.register("posenc", PosencConfig, exist_ok=True)
AutoModel.register(PosencConfig, PosencModel, exist_ok=True)
AutoModelForCausalLM.register(PosencConfig, PosencForCausalLM, exist_ok=True)


def check_tokens(input_ids: Tensor | None, inputs_embeds: Tensor | None, width: int) -> None:
    """Raise a ValueError unless one of the two is given, in the shape and the numbers that a model reads."""
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("input_ids or inputs_embeds must be given, and not both")
    if input_ids is not None:
        fits = isinstance(input_ids, Tensor) and input_ids.ndim == 2 and input_ids.dtype in (torch.int32, torch.int64)
        if not fits:
            raise ValueError(f"input_ids must be int64 or int32 (batch, tokens), got {shown(input_ids)}")
    elif not (
        isinstance(inputs_embeds, Tensor) and inputs_embeds.ndim == 3 and inputs_embeds.shape[-1] == width
        and inputs_embeds.is_floating_point()
    ):  # fmt: skip
        raise ValueError(f"inputs_embeds must be floats (batch, tokens, {width}), got {shown(inputs_embeds)}")


def check_flags(flags: dict[str, bool | None]) -> None:
    """Raise a ValueError unless each of these, by its name, is true, false or None."""
    for name, value in flags.items():
        if value is not None:
            check_flag(name, value)


def check_mask(mask: Tensor, past: int, x: Tensor) -> None:
    """Raise a ValueError unless an attention mask covers the tokens of the cache and of ``x``."""
    tokens = past + x.shape[1]
    if isinstance(mask, Tensor) and not mask.is_complex() and mask.shape == (x.shape[0], tokens):
        return
    text = f"(batch, tokens in the cache + tokens) = {(x.shape[0], tokens)}"
    packed = "; position_ids or seq_idx tell the documents of packed rows apart" if getattr(mask, "ndim", 2) > 2 else ""
    raise ValueError(f"attention_mask must be {text}, got {shown(mask)}{packed}")


def check_kept(logits_to_keep: int | Tensor) -> None:
    """Raise a ValueError unless this says of how many tokens at the end logits are wanted, or of which."""
    if not isinstance(logits_to_keep, Tensor):
        check_whole("logits_to_keep", logits_to_keep, least=0, most=LONGEST)
    elif logits_to_keep.ndim != 1 or logits_to_keep.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"logits_to_keep must be an integer or integers (tokens,), got {shown(logits_to_keep)}")


def check_labels(labels: Tensor | None, logits: Tensor) -> None:
    """Raise a ValueError unless there is a label for each token that has logits."""
    if labels is None:
        return
    if not isinstance(labels, Tensor) or labels.dtype != torch.int64 or labels.shape != logits.shape[:2]:
        raise ValueError(f"labels must be int64 (batch, tokens) = {tuple(logits.shape[:2])}, got {shown(labels)}")
