"""Remapped distances: queries and keys are rotated differently for each range of distances, without any training.

    s_ij = R(a_i) q_i · R(b_j) k_j · scale · gain²,   a_i − b_j = p_i − p_j among near keys; of far ones:
    Self-Extend      a_i = floor(p_i / group) + window − floor(window / group),  b_j = floor(p_j / group)
    ReRoPE           a_i − b_j = window
    leaky ReRoPE     a_i − b_j = window + (p_i − p_j − window) / factor
    STRING           a_i − b_j = p_i − p_j − shift + local
    LM-Infinite      a_i − b_j = limit,                               p_j < sinks alone are seen
    StreamingLLM     a_i = min(p_i, sinks + window − 1),  b_j = p_j,  p_j < sinks alone are seen
    dual chunk       b_j = p_j mod c,  c = size − local;  a_i = p_i mod c in the same chunk of c tokens,
                     min(p_i mod c + c, size) in the chunk before,  min(2c − 1, size) in any earlier one

Near are keys at p_i − p_j < window (STRING: shift). Each of these keeps a model at distances that it was trained on,
up to some length or any. Terms that are added to scores, and factors on them, combine with it as with any rotation and
read the true positions; a list with `LogN` after it is Self-Extend with its authors' scale_base, and its author's form
of ReRoPE. Keys are cached unrotated, and rotated in every call.
A decoding step equals its row of the whole call in all of them, and near is what lies near by position, which under
padding in front is what lies near by index.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import count

import torch
from torch import Tensor

from posenc.arguments import LONGEST, check_flag, check_number, check_whole, shown
from posenc.encoding import Context, Reads, RotaryEncoding, Scope, ScoreEncoding, float64_if_supported, softcapped
from posenc.entry import Entry, Shape
from posenc.rotary.rope import RoPE
from posenc.score._inputs import products
from posenc.structure import Range, Ranges


class _Remapped(ScoreEncoding):
    """Helper level: subclasses say their `ranges` of distance, and in ``_sizes`` the arguments that decide them."""

    causal_only = True
    reads = Reads(rotated=False, unrotated=True)
    scope = Scope(replaces=True)
    chunk: int | None = None  # tokens of a chunk, where ranges count these
    _sizes: tuple[str, ...] = ()

    def __init__(self, rotation: RotaryEncoding, *, gain: float = 1.0) -> None:
        super().__init__()
        if not isinstance(rotation, RotaryEncoding):
            raise ValueError(f"rotation must be a rotary encoding such as RoPE(64), got {shown(rotation)}")
        name = type(rotation).__name__
        if rotation.axes != 1:
            raise ValueError(
                f"rotation must have one coordinate, the position in a sequence; {name} has {rotation.axes}"
            )
        check_number("gain", gain, above=0)
        self.rotation, self.gain = rotation, float(gain)
        self.length_dependent = rotation.length_dependent
        self.head_dim = int(getattr(rotation, "head_dim", 0))

    def ranges(self, q_pos: Tensor, k_pos: Tensor) -> tuple[Range, ...]:
        """The ranges of tokens at these positions ``(*batch, queries)`` and ``(*batch, keys)``, the nearest first."""
        raise NotImplementedError

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        (ranges,) = self.structure(context.with_qk(context.q_content, context.k_content), future=False)
        remapped = torch.zeros_like(scores)
        for part in ranges.parts:
            q = ranges.rotate(context.q_content, part.q_pos, ranges.spans[0])
            k = ranges.rotate(context.k_content, part.k_pos, ranges.spans[1])
            held = ranges.holds(part, context.q_pos, context.k_pos)
            held = held.unsqueeze(-3) if held.ndim == 3 else held
            remapped = torch.where(held, products(context.with_qk(q, k)), remapped)
        # what other encodings added to the scores stays, so the true products are exchanged for these, each as the
        # softcap lets it through
        return scores + (softcapped(remapped, context.softcap) - softcapped(products(context), context.softcap))

    def structure(self, context: Context, *, future: bool) -> tuple[Ranges]:
        length = context.sequence.row_lengths
        spans = length if isinstance(length, tuple) else (length, length)
        parts = self.ranges(context.q_pos, context.k_pos)
        return (Ranges(parts, self._rotated, self.chunk, context.q_content, context.k_content, spans),)

    def visible(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        ranges = Ranges(self.ranges(q_pos, k_pos), self._rotated, self.chunk)
        held = ranges.holds(ranges.parts[0], q_pos, k_pos)
        for part in ranges.parts[1:]:
            held = held | ranges.holds(part, q_pos, k_pos)
        return held

    def _rotated(self, x: Tensor, positions: Tensor, span: Tensor | int | None) -> Tensor:
        """``x`` (batch, heads, tokens, head_dim) rotated to ``positions``, times the gain."""
        out = self.rotation.rotate(x, self.rotation.table(positions, span, like=x))
        return out if self.gain == 1.0 else out * self.gain

    def extra_repr(self) -> str:
        values = ((name, getattr(self, name)) for name in self._sizes)
        return ", ".join(
            f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in values
        )


class SelfExtend(_Remapped):
    """Self-Extend: near keys at their true distance, far ones by groups of neighbouring positions.

    A model trained at L tokens reads (L − window) · group + window of them without a new position where group divides
    window, else down to a group fewer. Among far keys, equal distances may get positions that differ by one.
    ``group=1`` is the rotation alone.
    Source: Jin et al., LLM Maybe LongLM: Self-Extend LLM Context Window Without Tuning, arXiv 2401.01325, section 3.
    Checked against: the authors' code (LongLM, self_extend_patch), values and gradients.
    Departs from the source: the code divides window by group in two ways, with and without its fraction; here the
        paper's floor is the default in every call, and ``exact`` is the other.

    Args:
        rotation: what rotates queries and keys, such as ``RoPE(64)``, with any scaling.
        window: tokens whose distance stays true, the own one included (the authors' neighbor window).
        group: neighbouring positions that far keys share.
        exact: whether the far queries' offset is window − window / group, fractions and all.

    Raises:
        ValueError: for sizes below 1, or a rotation that is not rotated by one coordinate.

    >>> from posenc import RoPE, attention
    >>> q, k, v = torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [SelfExtend(RoPE(64), window=4, group=2)]).shape
    torch.Size([1, 8, 16, 64])
    """

    _sizes = ("window", "group", "exact")

    def __init__(
        self,
        rotation: RotaryEncoding,
        *,
        window: int = 1024,
        group: int = 8,
        exact: bool = False,
    ) -> None:
        super().__init__(rotation)
        check_whole("window", window, most=LONGEST)
        check_whole("group", group, most=LONGEST)
        self.window, self.group, self.exact = window, group, check_flag("exact", exact)

    @classmethod
    def lengths_for(cls, train_length: int) -> dict[str, int]:
        return {"window": max(1, train_length // 4)}  # 1024 of Llama 2's 4096

    def ranges(self, q_pos: Tensor, k_pos: Tensor) -> tuple[Range, ...]:
        q_group, k_group = (p.div(self.group, rounding_mode="floor") for p in (q_pos, k_pos))
        offset: float = self.window - self.window // self.group
        if self.exact and self.window % self.group:
            # only a true fraction makes positions float: integers keep the exact angles of far tokens
            offset = self.window - self.window / self.group
            q_group = q_group.to(float64_if_supported(q_group.device))
        return Range(q_pos, k_pos, None, self.window), Range(q_group + offset, k_group, self.window, None)


class ReRoPE(_Remapped):
    """ReRoPE: exact distances up to a window; keys beyond it all count as at the window's distance.

    A model that was trained at more than ``window`` tokens meets no distance that it does not know.
    Source: Su, post 9708 of kexue.fm (2023), no paper; the rotation: Su et al., RoFormer, arXiv 2104.09864, section
        3.2.2.
    Checked against: the author's code (bojone/rerope, rerope_patch), values and gradients.
    Departs from the source: the logarithm is left to `LogN`. The author's form does not rotate far keys; nor does this.

    Args:
        rotation: what rotates queries and keys, such as ``RoPE(64)``, with any scaling.
        window: the largest distance. The post found a quarter to a half of the training length best; the author's
            code has an eighth.

    Raises:
        ValueError: for a window below 1, or a rotation that is not rotated by one coordinate.

    >>> from posenc import RoPE, attention
    >>> q, k, v = torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [ReRoPE(RoPE(64), window=4)]).shape
    torch.Size([1, 8, 16, 64])
    """

    _sizes = ("window",)

    def __init__(
        self,
        rotation: RotaryEncoding,
        *,
        window: int = 512,
    ) -> None:
        super().__init__(rotation)
        check_whole("window", window, most=LONGEST)
        self.window = window

    @classmethod
    def lengths_for(cls, train_length: int) -> dict[str, int]:
        return _an_eighth(train_length)

    def ranges(self, q_pos: Tensor, k_pos: Tensor) -> tuple[Range, ...]:
        # far keys stay unrotated and far queries all stand at the window, as in the author's code
        far = Range(torch.full_like(q_pos, self.window), torch.zeros_like(k_pos), self.window, None)
        return Range(q_pos, k_pos, None, self.window), far


class LeakyReRoPE(_Remapped):
    """Leaky ReRoPE: distances up to a window, and more slowly growing ones beyond.

    A model trained at L tokens meets no larger distance up to window + factor · (L − window) tokens. An endless factor
    would be ReRoPE.
    Source: Su, post 9708 of kexue.fm (2023), no paper; the rotation: Su et al., RoFormer, arXiv 2104.09864, section
        3.2.2.
    Checked against: the author's code (bojone/rerope, leaky_rerope_patch), values and gradients.
    Departs from the source: the logarithm is left to `LogN`. The author's form rotates far keys by fractions of their
        position; so does this.

    Args:
        rotation: what rotates queries and keys, such as ``RoPE(64)``, with any scaling.
        window: the largest distance that stays true.
        factor: how many times more slowly distances grow beyond, at least 1.

    Raises:
        ValueError: for a window or a factor below 1, or a rotation that is not rotated by one coordinate.

    >>> from posenc import RoPE, attention
    >>> q, k, v = torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [LeakyReRoPE(RoPE(64), window=4, factor=4)]).shape
    torch.Size([1, 8, 16, 64])
    """

    _sizes = ("window", "factor")

    def __init__(
        self,
        rotation: RotaryEncoding,
        *,
        window: int = 512,
        factor: float = 16.0,
    ) -> None:
        super().__init__(rotation)
        check_whole("window", window, most=LONGEST)
        check_number("factor", factor, least=1)
        self.window, self.factor = window, float(factor)

    @classmethod
    def lengths_for(cls, train_length: int) -> dict[str, int]:
        return _an_eighth(train_length)

    def ranges(self, q_pos: Tensor, k_pos: Tensor) -> tuple[Range, ...]:
        # float64, as a far position divided by the factor has more digits than float32 holds
        q_slow, k_slow = (p.to(float64_if_supported(p.device)) / self.factor for p in (q_pos, k_pos))
        far = Range(q_slow + (self.window - self.window / self.factor), k_slow, self.window, None)
        return Range(q_pos, k_pos, None, self.window), far


class DualChunk(_Remapped):
    """Dual chunk attention: true distances in a chunk and to the end of the one before, one for all earlier chunks.

    No distance exceeds ``size``, which a training length of at least that many tokens covers. To the chunk before,
    distances are true for the first ``local`` tokens of a chunk; later ones meet nearer positions than they have.
    Source: An et al., Training-Free Long-Context Scaling of Large Language Models, arXiv 2402.17463, section 3.
    Checked against: the authors' code (ChunkLlama), values and gradients, and vLLM's DualChunkRotaryEmbedding.
    Departs from the source: the code's constant for earlier chunks, min(2c − 1, size), instead of the paper's trained
        length − 1; merged exactly, where the code rounds its shares to bfloat16. The code's gain on cos and sin for
        long texts, 0.05 · ln(length / trained) + 1, which the paper does not have, is ``gain``, of every length.

    Args:
        rotation: what rotates queries and keys, such as ``RoPE(64)``, with any scaling.
        size: the largest position of a query (the authors' chunk_size); by default three quarters of 4096.
        local: tokens of a chunk that attend to the chunk before at true distances (their local_window); below ``size``.
        gain: on rotated q and k.

    Raises:
        ValueError: for sizes below 1, ``local`` not below ``size``, a gain not above 0, or a rotation that does not
            turn by one coordinate.

    >>> from posenc import RoPE, attention
    >>> q, k, v = torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [DualChunk(RoPE(64), size=6, local=2)]).shape
    torch.Size([1, 8, 16, 64])
    """

    _sizes = ("size", "local", "gain")

    def __init__(
        self,
        rotation: RotaryEncoding,
        *,
        size: int = 3072,
        local: int = 512,
        gain: float = 1.0,
    ) -> None:
        super().__init__(rotation, gain=gain)
        check_whole("size", size, least=2, most=LONGEST)
        check_whole("local", local, most=LONGEST)
        if local >= size:
            raise ValueError(f"local must be below size = {size}, got {local}")
        self.size, self.local, self.chunk = size, local, size - local

    @classmethod
    def lengths_for(cls, train_length: int) -> dict[str, int]:
        return {"size": max(2, train_length * 3 // 4), "local": max(1, train_length // 8)}

    def ranges(self, q_pos: Tensor, k_pos: Tensor) -> tuple[Range, ...]:
        chunk = self.size - self.local
        q_place, k_place = q_pos.remainder(chunk), k_pos.remainder(chunk)
        before = (q_place + chunk).clamp(max=self.size)
        earlier = torch.full_like(q_place, min(2 * chunk - 1, self.size))
        # first and last of these ranges count chunks apart, not tokens: see ``chunk``
        return Range(q_place, k_place, None, 1), Range(before, k_place, 1, 2), Range(earlier, k_place, 2, None)


class STRING(_Remapped):
    """Shifted rotary position embedding: far distances are shifted down to ones that a model has seen often.

    Most texts of a training are short, so that the largest distances are rare in it, also within its length; the shift
    puts frequent ones in their place. ``local`` keeps far keys that many positions away from the query.
    Source: An et al., Why Does the Effective Context Length of LLMs Fall Short?, arXiv 2410.18745, section 4.
    Checked against: the authors' code (HKUNLP/STRING), its decoding and the form of its prefill that counts each pair
        once, values and gradients.
    Departs from the source: the prefill of the code counts keys exactly ``shift`` away twice, near and far, its
        decoding once; here they are far in both. The code multiplies cos and sin by 0.1 · ln 2 + 1 at every length:
        that is ``gain``, here 1 by default as in the paper's formula.

    Args:
        rotation: what rotates queries and keys, such as ``RoPE(64)``, with any scaling.
        shift: distance from which on distances are shifted (the authors' shifted_offset); a third of the trained
            length or more.
        local: the smallest shifted distance; at most ``shift``.
        gain: on rotated q and k; the authors' code has 0.1 · ln 2 + 1 at every length.

    Raises:
        ValueError: for a shift below 1, ``local`` below 0 or above it, a gain not above 0, or a rotation that does not
            turn by one coordinate.

    >>> from posenc import RoPE, attention
    >>> q, k, v = torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [STRING(RoPE(64), shift=6, local=2)]).shape
    torch.Size([1, 8, 16, 64])
    """

    _sizes = ("shift", "local", "gain")

    def __init__(
        self,
        rotation: RotaryEncoding,
        *,
        shift: int,
        local: int = 128,
        gain: float = 1.0,
    ) -> None:
        super().__init__(rotation, gain=gain)
        check_whole("shift", shift, most=LONGEST)
        check_whole("local", local, least=0, most=LONGEST)
        if local > shift:
            raise ValueError(f"local must be at most shift = {shift}, got {local}")
        self.shift, self.local = shift, local

    @classmethod
    def lengths_for(cls, train_length: int) -> dict[str, int]:
        shift = max(1, train_length // 3)
        return {"shift": shift, "local": min(128, shift // 2)}

    def ranges(self, q_pos: Tensor, k_pos: Tensor) -> tuple[Range, ...]:
        near = Range(q_pos, k_pos, None, self.shift)
        return near, Range(q_pos - (self.shift - self.local), k_pos, self.shift, None)


class LMInfinite(_Remapped):
    """LM-Infinite: a window of true distances, and the first tokens of the sequence at one fixed distance.

    No query attends to more than window + sinks keys (without sinks: to all).
    Source: Han et al., LM-Infinite: Zero-Shot Extreme Length Generalization for Large Language Models,
        arXiv 2308.16137, section 4.
    Checked against: the authors' code (Glaciohound/LM-Infinite), values and gradients.
    Departs from the source: the code's limit is never more than the keys of a call − 1, which changes results only
        where it is larger than the window and a text shorter than that; here it is the same in all calls. Without
        sinks and with another limit than the window the code leaves out or adds scores: here each pair has one. A mask
        of the most relevant keys, which the code offers, is not here.

    Args:
        rotation: what rotates queries and keys, such as ``RoPE(64)``, with any scaling.
        window: tokens that are seen at their true distance, the own one included (the authors' local_branch).
        sinks: first tokens that are seen from everywhere (their global_branch); None: all keys are.
        limit: distance of those beyond the window (their limit_distance); None: the window.

    Raises:
        ValueError: for sizes below 1, or a rotation that is not rotated by one coordinate.

    >>> from posenc import RoPE, attention
    >>> q, k, v = torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [LMInfinite(RoPE(64), window=4, sinks=2)]).shape
    torch.Size([1, 8, 16, 64])
    """

    _sizes = ("window", "sinks", "limit")

    def __init__(
        self,
        rotation: RotaryEncoding,
        *,
        window: int = 4096,
        sinks: int | None = 10,
        limit: int | None = None,
    ) -> None:
        super().__init__(rotation)
        check_whole("window", window, most=LONGEST)
        for name, value in (("sinks", sinks), ("limit", limit)):
            if value is not None:
                check_whole(name, value, most=LONGEST)
        self.window, self.sinks, self.limit = window, sinks, window if limit is None else limit
        self.scope = Scope(replaces=True, narrows=sinks is not None)

    @classmethod
    def lengths_for(cls, train_length: int) -> dict[str, int]:
        return {"window": train_length}

    def ranges(self, q_pos: Tensor, k_pos: Tensor) -> tuple[Range, ...]:
        at_limit = torch.full_like(q_pos, self.limit)
        far = Range(at_limit, torch.zeros_like(k_pos), self.window, None, self.sinks)
        return Range(q_pos, k_pos, None, self.window), far


class StreamingLLM(_Remapped):
    """StreamingLLM: a window and the first tokens of the sequence, at the places they have in a cache of that size.

    Once tokens have been forgotten, the first ones are as far away as their slots in the cache are, so that no distance
    is larger than sinks + window − 1, however long the text. A `KVCache` of the same window and sinks keeps no more
    tokens.
    Source: Xiao et al., Efficient Streaming Language Models with Attention Sinks, arXiv 2309.17453, section 3.2.
    Checked against: the authors' code (mit-han-lab/streaming-llm), token by token and in chunks.
    Departs from the source: the code attends to all of a prompt, however long, and chunks of tokens see what is left of
        the cache once room was made for them; here every token attends to what it would attend to token by token. The
        code's perplexity script, which forgets after a step, has window = recent_size + 1; its generation, which makes
        room before, window = recent_size.

    Args:
        rotation: what rotates queries and keys, such as ``RoPE(64)``, with any scaling.
        window: newest tokens that are seen, the own one included.
        sinks: first tokens that are seen from everywhere.

    Raises:
        ValueError: for a window below 1 or sinks below 0, or a rotation that is not rotated by one coordinate.

    >>> from posenc import RoPE, attention
    >>> q, k, v = torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [StreamingLLM(RoPE(64), window=4, sinks=2)]).shape
    torch.Size([1, 8, 16, 64])
    """

    scope = Scope(replaces=True, narrows=True)
    _sizes = ("window", "sinks")

    def __init__(
        self,
        rotation: RotaryEncoding,
        *,
        window: int = 1020,
        sinks: int = 4,
    ) -> None:
        super().__init__(rotation)
        check_whole("window", window, most=LONGEST)
        check_whole("sinks", sinks, least=0, most=LONGEST)
        self.window, self.sinks = window, sinks

    @classmethod
    def lengths_for(cls, train_length: int) -> dict[str, int]:
        return {"window": max(1, train_length - 4)}

    def ranges(self, q_pos: Tensor, k_pos: Tensor) -> tuple[Range, ...]:
        slots = q_pos.clamp(max=self.sinks + self.window - 1)
        return Range(q_pos, k_pos, None, self.window), Range(slots, k_pos, self.window, None, self.sinks)


def _an_eighth(train_length: int) -> dict[str, int]:
    """The window of ReRoPE's author, 512 where 4096 tokens were trained with."""
    return {"window": max(1, train_length // 8)}


def _plain_rotation(shape: Shape) -> dict[str, object]:
    """Plain RoPE, unless a rotation is given."""
    head_dim = shape.get("head_dim")
    return {"rotation": RoPE(head_dim)} if "rotation" not in shape and isinstance(head_dim, int) else {}


def _lengths(shape: Shape) -> tuple[int, int, int] | None:
    """Longest and trained length and the window, where distances have to be moved at all."""
    longest, trained, window = shape.get("max_length"), shape.get("train_length"), shape.get("window")
    if not (isinstance(longest, int) and isinstance(trained, int) and isinstance(window, int)):
        return None
    return (longest, trained, window) if window < trained < longest else None


def _leaky_defaults(shape: Shape) -> dict[str, object]:
    """Plain RoPE, and the smallest factor under which all positions up to the longest length are known ones."""
    if (lengths := _lengths(shape)) is None:
        return _plain_rotation(shape)
    longest, trained, window = lengths
    return {**_plain_rotation(shape), "factor": float(math.ceil((longest - window) / (trained - window)))}


def _self_extend_defaults(shape: Shape) -> dict[str, object]:
    """Plain RoPE, and the smallest group under which all positions up to the longest length are known ones."""
    if (lengths := _lengths(shape)) is None:
        return _plain_rotation(shape)
    longest, trained, window = lengths
    # groups are whole: a group size that does not divide the window can fall a position short of the leaky factor
    least = max(2, math.ceil((longest - window) / (trained - window)) - 1)
    fits = (g for g in count(least) if (longest - 1) // g + window - window // g < trained)
    return {**_plain_rotation(shape), "group": next(fits)}


_entry = partial(
    Entry,
    parameters="none",
    cost="one rotation of queries and keys per range in every call; keys are cached unrotated",
    extension="is itself one",
    extends_context=True,
)
_FIRST_TOKENS = {"common_shift": "the first tokens of a text are those at the first positions"}
_AT_INFERENCE = "models that were trained without it, at inference"

ENTRIES = (
    _entry(
        name="self_extend",
        encoding=SelfExtend,
        title="Self-Extend: true distances in a window, grouped positions beyond",
        formula="far: a_i − b_j = floor(p_i/group) − floor(p_j/group) + window − floor(window/group)",
        source="Jin et al., arXiv 2401.01325, section 3",
        past_training="no new position up to (training length − window) · group + window tokens, for whole groups",
        reads="distances and positions",
        used_in=_AT_INFERENCE,
        avoid="where the exact order of far tokens matters: neighbours share a position in groups",
        defaults=_self_extend_defaults,
        exempt={"common_shift": "groups begin at multiples of their size"},
    ),
    _entry(
        name="rerope",
        encoding=ReRoPE,
        title="ReRoPE: exact distances up to a window, the window's distance beyond",
        formula="a_i − b_j = min(p_i − p_j, window)",
        source="Su (2023), kexue.fm 9708, no paper; the rotation: arXiv 2104.09864, section 3.2.2",
        past_training="no new distance at any length; all far keys get the same distance",
        reads="distances",
        used_in=_AT_INFERENCE,
        avoid="where far tokens must be told apart: all keys beyond the window have the same distance",
        defaults=_plain_rotation,
    ),
    _entry(
        name="leaky_rerope",
        encoding=LeakyReRoPE,
        title="Leaky ReRoPE: distances that grow more slowly beyond a window",
        formula="far: a_i − b_j = window + (p_i − p_j − window) / factor",
        source="Su (2023), kexue.fm 9708, no paper; the rotation: arXiv 2104.09864, section 3.2.2",
        past_training="no larger distance up to window + factor · (training length − window) tokens, but fractions",
        reads="distances",
        used_in=_AT_INFERENCE,
        avoid="where distances must be integers: far ones become fractions, which training never had",
        defaults=_leaky_defaults,
    ),
    _entry(
        name="dual_chunk",
        encoding=DualChunk,
        title="Dual chunk attention: positions within chunks",
        formula="b_j = p_j mod c,  a_i = p_i mod c | min(p_i mod c + c, size) | min(2c − 1, size) by chunks apart",
        source="An et al., arXiv 2402.17463, section 3",
        past_training="no new distance at any length; all earlier chunks get the same query position",
        reads="distances and positions",
        used_in="Qwen2.5-1M (arXiv 2501.15383), at inference",
        avoid="where distances across chunks must be exact: all earlier chunks have one query position",
        defaults=_plain_rotation,
        exempt={"common_shift": "chunks begin at multiples of their size"},
    ),
    _entry(
        name="string",
        encoding=STRING,
        title="STRING: far distances shifted down to frequent ones",
        formula="far: a_i − b_j = p_i − p_j − shift + local",
        source="An et al., arXiv 2410.18745, section 4",
        past_training="new distances from the training length + shift − local on",
        reads="distances",
        used_in=_AT_INFERENCE,
        avoid="for sequences longer than the training length + shift − local: they have new distances",
        defaults=_plain_rotation,
    ),
    _entry(
        name="lm_infinite",
        encoding=LMInfinite,
        title="LM-Infinite: a distance limit and a Λ-shaped mask",
        formula="far: a_i − b_j = limit, and p_j < sinks alone are seen",
        source="Han et al., arXiv 2308.16137, section 4",
        past_training="no new distance at any length; a query attends to window + sinks keys",
        reads="distances and positions",
        used_in=_AT_INFERENCE,
        avoid="where the middle of a long sequence matters: a query attends to window + sinks keys",
        defaults=_plain_rotation,
        exempt=_FIRST_TOKENS,
    ),
    _entry(
        name="streaming_llm",
        encoding=StreamingLLM,
        title="StreamingLLM: a sliding window and the first tokens, at their cache positions",
        formula="far: a_i = min(p_i, sinks + window − 1), b_j = p_j, and p_j < sinks alone are seen",
        source="Xiao et al., arXiv 2309.17453, section 3.2",
        past_training="no new distance at any length; a query attends to window + sinks keys",
        reads="distances and positions",
        used_in=_AT_INFERENCE,
        avoid="where the middle of a long sequence matters: a query attends to window + sinks keys",
        defaults=_plain_rotation,
        exempt=_FIRST_TOKENS,
    ),
)
