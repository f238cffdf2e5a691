"""The attention of one layer of a model as posenc computes it, built from the model's configuration.

    facts = model_from_config("my-model").layers[3]
    attend = LayerAttention(facts)
    out = attend(q, k, v)        # as the layer's projections and norms give them: nothing rotated, nothing scaled

Rotation, window or chunk, temperature, sink, scale and cap of the layer act; the result is what the model's output
projection (or its gate) is given. Learned numbers, of a sink and of Mistral Large 4's temperature, are parameters that
begin as their classes begin them: copy the model's own into ``attend.encodings``.

Checked against: transformers' own eager attention, every layer of a small model of each family except where
    `posenc.hf.families` says ``not_compared``.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from posenc.arguments import check_heads, check_number, shown
from posenc.attend import attention
from posenc.backends import Backend
from posenc.encoding import Encoding, RotaryEncoding
from posenc.hf.config.layers import CHUNKED, LEARNED, LayerFacts
from posenc.hf.config.rotation import text_rope
from posenc.rotary._leading import Leading
from posenc.rotary.mrope import MRoPE
from posenc.validate import check_segments
from posenc.weight.sink import AttentionSink

_FARTHEST = 2**31  # more chunks than a text has: numbers of documents lie that far apart


class LayerAttention(nn.Module):
    """Attention as one layer has it: ``q, k, v (batch, heads, tokens, width)`` as `posenc.attention` takes them.

    Args:
        facts: what the layer has, of `model_from_config`.
        num_heads: query heads, where a sink needs them and the configuration does not say.
        scale: factor on the scores, where the configuration does not say.
        norms: of queries and of keys, in families whose norms follow the rotation (`LayerFacts.normed_after`).

    Attributes:
        encodings: rotation, temperature and sink, those that there are, as `posenc.attention` takes them.

    Raises:
        ValueError: for a layer without attention, for one whose sink each token makes, for norms that are missing or
            have no place, and where the scale or the number of heads is neither in the configuration nor given.

    >>> from posenc.hf import model_from_config
    >>> config = {"model_type": "gpt_oss", "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 64}
    >>> attend = LayerAttention(model_from_config(config).layers[0])
    >>> [type(encoding).__name__ for encoding in attend.encodings], attend.facts.window
    (['RoPE', 'AttentionSink'], 128)
    >>> q, k, v = torch.randn(3, 1, 4, 16, 64)
    >>> attend(q, k, v).shape
    torch.Size([1, 4, 16, 64])
    """

    def __init__(
        self,
        facts: LayerFacts,
        *,
        num_heads: int | None = None,
        scale: float | None = None,
        norms: tuple[nn.Module, nn.Module] | None = None,
    ) -> None:
        super().__init__()
        encodings = encodings_of(facts, num_heads)
        if facts.causal is None:
            raise ValueError("facts: which tokens attend to which is not read of this model: give causal")
        if scale is not None:
            check_number("scale", scale, above=0)
        self.facts = facts
        self.norms = _checked(norms, needed=facts.normed_after and facts.rotation is not None)
        self.scale = facts.scale if scale is None else scale
        if self.scale is None:
            raise ValueError("scale: the configuration does not say what the scores are multiplied by: give scale")
        self.encodings = nn.ModuleList(encodings)

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        q_pos: Tensor | None = None,
        k_pos: Tensor | None = None,
        mask: Tensor | None = None,
        segments: Tensor | tuple[Tensor, Tensor] | None = None,
        backend: Backend = "auto",
    ) -> Tensor:
        """Attend.

        Args:
            q, k, v: as the layer's projections and norms give them. Of latent attention k has its shared part in
                every head and behind the rest, as transformers has it.
            q_pos, k_pos: positions, default 0 … n − 1 and queries the last of them; of a layer with M-RoPE with a
                last axis of three coordinates, all three the same by default.
            mask, segments, backend: as for `posenc.attention`.

        Raises:
            ValueError: as `posenc.attention`.
        """
        facts = self.facts
        if facts.rotates_last and facts.rotation is not None:
            width = text_rope(facts.rotation).rotary_dim
            q, k = q.roll(width, -1), k.roll(width, -1)  # scores do not depend on the order of channels
        q_pos, k_pos = self._places(q, k, q_pos, k_pos)
        acting = [encoding for encoding in self.encodings if isinstance(encoding, Encoding)]
        if self.norms is not None and facts.rotation is not None:
            q, k = self._normed(q, k, q_pos, k_pos)
            acting = acting[1:]
        chunked = facts.kind == CHUNKED and facts.window is not None
        if chunked:
            segments = _chunks(facts.window or 1, q, k, q_pos, k_pos, segments)
        window = None if chunked else facts.window
        if window is not None and facts.ahead > window - 1:  # which no one number says
            mask, window = _cut(window, q, k, mask), facts.ahead + 1
        return attention(
            q, k, v, acting, q_pos=q_pos, k_pos=k_pos, mask=mask, segments=segments, backend=backend,
            causal=bool(facts.causal), scale=self.scale, window=window, softcap=facts.softcap,
        )  # fmt: skip

    def _normed(self, q: Tensor, k: Tensor, q_pos: Tensor | None, k_pos: Tensor | None) -> tuple[Tensor, Tensor]:
        """Queries and keys rotated, and normed after that."""
        rope = self.encodings[0]
        assert isinstance(rope, RotaryEncoding)
        assert self.norms is not None
        of_keys = _of_keys(k, q_pos, k_pos)
        q, k = rope(q, k, q_pos if q_pos is not None else of_keys[..., k.shape[2] - q.shape[2] :], of_keys)
        return self.norms[0](q), self.norms[1](k)

    def _places(
        self, q: Tensor, k: Tensor, q_pos: Tensor | None, k_pos: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Positions; M-RoPE's three coordinates of a text where none are given."""
        rope = self.facts.rotation
        if q_pos is not None or k_pos is not None or not isinstance(rope, MRoPE):
            return q_pos, k_pos
        of_keys = torch.arange(k.shape[2], device=k.device)[:, None].expand(-1, rope.axes)
        return of_keys[k.shape[2] - q.shape[2] :], of_keys

    def extra_repr(self) -> str:
        facts = self.facts
        window = f"window={facts.window}, " if facts.window is not None else ""
        return f"{facts.kind!r}, {window}scale={self.scale:g}"


def encodings_of(facts: LayerFacts, num_heads: int | None = None) -> list[Encoding]:
    """The rotation, temperature and sink of a layer, if it has them, as `posenc.attention` takes them.

    A rotation of latent attention rotates the first channels of a head: see `LayerFacts.rotates_last`.

    Args:
        facts: what the layer has, of `model_from_config`.
        num_heads: query heads, where a sink needs them and the configuration does not say.

    Raises:
        ValueError: for a layer without attention, a sink that each token makes, and one of heads that nobody says.
    """
    if not isinstance(facts, LayerFacts):
        raise ValueError(f"facts must be LayerFacts, as model_from_config gives them, got {shown(facts)}")
    if not facts.attends:
        raise ValueError(f"facts: a layer of kind {facts.kind!r} has no attention")
    if num_heads is not None:
        check_heads("num_heads", num_heads)
    encodings: list[Encoding] = []
    if facts.rotation is not None:
        rope = facts.rotation
        encodings.append(Leading(rope, rope.head_dim) if facts.rotates_last else rope)
    if facts.temperature is not None:
        encodings.append(facts.temperature.build())
    if facts.sink == LEARNED:
        heads = facts.heads if num_heads is None else num_heads
        if heads is None:
            raise ValueError("num_heads: the configuration does not say how many heads have a sink: give num_heads")
        encodings.append(AttentionSink(heads))
    elif facts.sink:
        raise ValueError("facts: each token of this layer makes its own sink, which AttentionSink does not take")
    return encodings


def _checked(norms: object, *, needed: bool) -> nn.ModuleList | None:
    """The norms of queries and of keys as modules of a layer."""
    if norms is None and not needed:
        return None
    two = isinstance(norms, tuple | list) and len(norms) == 2 and all(isinstance(module, nn.Module) for module in norms)
    if not needed or not isinstance(norms, tuple | list) or not two:
        text = "two modules, which follow the rotation of queries and of keys" if needed else "None: none follows here"
        raise ValueError(f"norms must be {text}, got {shown(norms)}")
    return nn.ModuleList(norms)


def _chunks(
    size: int,
    q: Tensor,
    k: Tensor,
    q_pos: Tensor | None,
    k_pos: Tensor | None,
    segments: Tensor | tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor]:
    """Documents of queries and of keys: chunks of ``size`` tokens, each within its own document."""
    queries, keys = q.shape[2], k.shape[2]
    of_keys = _of_keys(k, q_pos, k_pos)
    of_queries = q_pos if q_pos is not None else of_keys[..., keys - queries :]
    chunks = (of_queries // size, of_keys // size)
    if segments is None:
        return chunks
    parts = check_segments(segments, q, k)
    return chunks if parts is None else (parts[0] * _FARTHEST + chunks[0], parts[1] * _FARTHEST + chunks[1])


def _cut(window: int, q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
    """A mask that hides what lies ``window`` tokens and more before a query, which are the last of the keys."""
    keys = torch.arange(k.shape[2], device=k.device)
    near = keys > keys[k.shape[2] - q.shape[2] :, None] - window
    return near if mask is None else near & mask


def _of_keys(k: Tensor, q_pos: Tensor | None, k_pos: Tensor | None) -> Tensor:
    """Positions of the keys: given, the positions of the queries, or 0 … n − 1."""
    if k_pos is not None:
        return k_pos
    return q_pos if q_pos is not None else torch.arange(k.shape[2], device=k.device)
