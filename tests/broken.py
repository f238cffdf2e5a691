"""Encodings with one fault each, as found in published code, and the check that must catch it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from posenc import ALiBi, AxialRoPE, BiasEncoding, Learned, RoPE, ScoreEncoding, Sinusoidal, T5Bias, WeightEncoding
from posenc.bias import DistanceBias
from posenc.dtypes import precision
from posenc.encoding import Context, EmbeddingEncoding, RotaryEncoding, Table
from posenc.frequencies.modules import DynamicPositionInterpolation
from posenc.positions.checking import has_no_position
from posenc.score import Shaw


class Sound(DistanceBias):
    """Nothing is wrong with this one: a learned slope a head."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        if num_heads < 1:
            raise ValueError(f"num_heads must be at least 1, got {num_heads}")
        self.num_heads = num_heads
        self.slope = nn.Parameter(torch.ones(num_heads))

    def reset_parameters(self) -> None:
        nn.init.ones_(self.slope)

    def extra_repr(self) -> str:
        return f"{self.num_heads}"

    def of_distance(self, distance: Tensor) -> Tensor:
        slope = self.slope.to(precision(distance, self.slope))
        return -distance.abs() * slope.view(-1, *[1] * distance.ndim)


class IndexBias(BiasEncoding):
    """Takes a token's index for its position."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads

    def forward(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        queries, keys = (torch.arange(p.shape[-1], dtype=p.dtype) for p in (q_pos, k_pos))
        return -(keys - queries[:, None]).abs().expand(*q_pos.shape[:-1], self.num_heads, -1, -1) * 0.5


class FloatBuffer(Sound):
    """Constants in a buffer, as most code has them."""

    def __init__(self, num_heads: int) -> None:
        super().__init__(num_heads)
        self.register_buffer("constants", torch.rand(num_heads))

    def of_distance(self, distance: Tensor) -> Tensor:
        bias = super().of_distance(distance)
        return bias * self.constants.to(bias).view(-1, *[1] * distance.ndim)


class Bare(Sound):
    """A parameter without an axis, which FSDP2 refuses, since it shards by the first."""

    def __init__(self, num_heads: int) -> None:
        super().__init__(num_heads)
        self.slope = nn.Parameter(torch.ones(()))

    def of_distance(self, distance: Tensor) -> Tensor:
        slope = self.slope.to(precision(distance, self.slope))
        return (-distance.abs() * slope).expand(self.num_heads, *distance.shape)


class HiddenBuffer(Sound):
    """Constants in a buffer that is left out of the state dict."""

    def __init__(self, num_heads: int) -> None:
        super().__init__(num_heads)
        self.register_buffer("constants", torch.rand(num_heads), persistent=False)

    def of_distance(self, distance: Tensor) -> Tensor:
        bias = super().of_distance(distance)
        return bias * self.constants.to(bias).view(-1, *[1] * distance.ndim)


class TensorAttribute(Sound):
    """Constants in a tensor that no module function moves, made with arange at construction."""

    def __init__(self, num_heads: int) -> None:
        super().__init__(num_heads)
        self.constants = (torch.arange(num_heads) + 1) / 3.7

    def of_distance(self, distance: Tensor) -> Tensor:
        return super().of_distance(distance) * self.constants.view(-1, *[1] * distance.ndim)


class DefaultDtype(TensorAttribute):
    """Constants in whatever default dtype a loader had set."""

    def __init__(self, num_heads: int) -> None:
        super().__init__(num_heads)
        self.constants = torch.tensor([(head + 1) / 3.7 for head in range(num_heads)])


class Remembers(Sound):
    """Keeps the farthest distance it has seen."""

    farthest: float = 1.0

    def of_distance(self, distance: Tensor) -> Tensor:
        self.farthest = max(self.farthest, float(distance.abs().max()))
        return super().of_distance(distance) / self.farthest


class LooksAtBatch(ALiBi):
    """Divides by the longest row of the batch."""

    def forward(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        return super().forward(q_pos, k_pos) * (1 + k_pos.max())


class LooksAtLength(ALiBi):
    """Divides by how many distances it is asked for, padding included."""

    def of_distance(self, distance: Tensor) -> Tensor:
        return super().of_distance(distance) / distance.shape[-1]


class WholeScores(ALiBi):
    """Rounds positions to whole numbers, without gradients of its own."""

    def forward(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        return super().forward(q_pos.floor(), k_pos.floor())


class Float32Bias(Sound):
    """Rounds its parameters where positions are integers."""

    def of_distance(self, distance: Tensor) -> Tensor:
        bias = super().of_distance(distance)
        return (bias if distance.is_floating_point() else (bias / 3).float() * 3).to(bias)


class Detached(T5Bias):
    """Cuts its table off from the loss."""

    def of_distance(self, distance: Tensor) -> Tensor:
        return super().of_distance(distance).detach()


class Spoils(ALiBi):
    """Works in place on the positions it was given."""

    def forward(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        q_pos += 1
        k_pos += 1
        return super().forward(q_pos, k_pos)


class Unlike(ALiBi):
    """States a structure that is not its bias."""

    def forward(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        return 2 * super().forward(q_pos, k_pos)


class Together(ScoreEncoding):
    """Takes from each score the mean over all queries of the call."""

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        return scores - scores.mean(2, keepdim=True)


class TwoDimensional(Sound):
    """An axis too few in the bias."""

    def forward(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        return super().forward(q_pos, k_pos).sum(-3)


class Specialised(Sound):
    """Branches on a value, so that a compiler must break its graph."""

    def of_distance(self, distance: Tensor) -> Tensor:
        return super().of_distance(distance) * (2 if float(distance.abs().max()) > 20 else 1)


class Shared(Sound):
    """Copies share the table."""

    def __deepcopy__(self, memo: dict[int, object]) -> Shared:
        return self


class Unpicklable(Sound):
    """Holds a function that cannot be pickled."""

    def __init__(self, num_heads: int) -> None:
        super().__init__(num_heads)
        self.rule = lambda distance: distance


class Renamed(Sound):
    """Has weights that its state dict does not show."""

    def __init__(self, num_heads: int) -> None:
        super().__init__(num_heads)
        self.hidden = [torch.rand(num_heads)]

    def of_distance(self, distance: Tensor) -> Tensor:
        bias = super().of_distance(distance)
        return bias * self.hidden[0].to(bias).view(-1, *[1] * distance.ndim)


class Nameless(Sound):
    """Prints as empty brackets."""

    def extra_repr(self) -> str:
        return ""


class Float32Angles(RoPE):
    """A float32 product of position and frequency."""

    def table(self, positions: Tensor, length: int | None = None, *, like: Tensor | None = None) -> Table:
        wide = torch.float64 if like is not None and like.dtype == torch.float64 else torch.float32
        angle = positions.to(wide)[..., None] * self.spectrum().theta.to(wide)
        return angle.cos(), angle.sin()


class InputAngles(RoPE):
    """Angles in the dtype of the input."""

    def table(self, positions: Tensor, length: int | None = None, *, like: Tensor | None = None) -> Table:
        dtype = torch.float32 if like is None else like.dtype
        angle = positions.to(dtype)[..., None] * self.spectrum().theta.to(dtype)
        return angle.cos(), angle.sin()


class MatmulAngles(RoPE):
    """Angles as a matrix product, which autocast rounds."""

    def table(self, positions: Tensor, length: int | None = None, *, like: Tensor | None = None) -> Table:
        wide = torch.float64 if like is not None and like.dtype == torch.float64 else torch.float32
        angle = positions.to(wide)[..., None] @ self.spectrum().theta[None].to(wide)
        return angle.cos(), angle.sin()


class OneTable(RoPE):
    """Forward does something else than table and rotate."""

    def forward(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        rotated, _ = super().forward(q, k, q_pos + 1, k_pos)
        return rotated, self.rotate(k, self.table(k_pos, like=k))


class Normalises(RoPE):
    """Normalises what it rotates."""

    def rotate(self, x: Tensor, table: Table) -> Tensor:
        return nn.functional.normalize(super().rotate(x, table), dim=-1)


class CachedRotated(RoPE):
    """Keeps keys as they were rotated when the row was shorter, as most caches do under dynamic scalings."""

    def __init__(self, head_dim: int) -> None:
        super().__init__(head_dim, scaling=DynamicPositionInterpolation(original_length=3))

    def cacheable(self, length: int | None = None) -> bool:
        return True


class LongestOfBatch(CachedRotated):
    """Takes the length of the longest row for all rows."""

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        q_pos: Tensor,
        k_pos: Tensor,
        length: int | tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        longest = k_pos.max() + 1
        return super().forward(q, k, q_pos, k_pos, (longest, longest))


class LongestSoFar(LongestOfBatch):
    """Goes on with the longest length that any call had."""

    longest = 0

    def cacheable(self, length: int | None = None) -> bool:
        return False

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        q_pos: Tensor,
        k_pos: Tensor,
        length: int | tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        self.longest = max(self.longest, int(k_pos.max()) + 1)
        return RoPE.forward(self, q, k, q_pos, k_pos, self.longest)


class Unchecked(RotaryEncoding):
    """Takes any width, odd ones too."""

    def __init__(self, head_dim: int) -> None:
        super().__init__()

    def table(self, positions: Tensor, length: int | None = None, *, like: Tensor | None = None) -> Table:
        return (positions.double().cos()[..., None, :, None],)

    def rotate(self, x: Tensor, table: Table) -> Tensor:
        return (x * table[0]).to(x.dtype)

    def forward(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        return self.rotate(q, self.table(q_pos)), self.rotate(k, self.table(k_pos))


class Wraps(Learned):
    """Starts its table again at its end."""

    def encode(self, positions: Tensor) -> Tensor:
        return super().encode(positions % self.max_length)


class Truncates(Sinusoidal):
    """Drops a token."""

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        return super().forward(x, positions)[:, 1:]


class Narrow(Sinusoidal):
    """Counts in small parts of a token, in the integers that it was given."""

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        return super().forward(x, positions * 2**29 / 2**29)


class Additive(EmbeddingEncoding):
    """Checks nothing of x and of the positions."""

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + positions[..., None].expand(*positions.shape, 1).to(x)


class Doubled(WeightEncoding):
    """Weights that sum to two."""

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        hidden = torch.zeros_like(scores) if context.mask is None else torch.where(context.mask, 0.0, -1e9)
        return 2 * (scores + hidden).softmax(-1)


class Careless(Sound):
    """Takes any number of heads, none too."""

    def __init__(self, num_heads: int) -> None:
        super().__init__(max(1, num_heads))


class AbsoluteProduct(ALiBi):
    """Depends on where tokens are, not on their distance."""

    def forward(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        return super().forward(q_pos, k_pos) * (1 + k_pos[..., None, None, :])


class Headless(ALiBi):
    """Does not tell for how many heads it is."""

    def __init__(self, num_heads: int) -> None:
        super().__init__(num_heads)
        del self.num_heads


class NoReset(Sound):
    """Has parameters that nothing can initialise after to_empty."""

    reset_parameters = None  # type: ignore[assignment]


class FixedValues(Shaw):
    """Reads values of the head's width, whatever width the values have."""

    def __init__(self, head_dim: int) -> None:
        super().__init__(head_dim, max_distance=4)


class TurnsEverything(AxialRoPE):
    """Takes the mark of tokens without a place for a place."""

    def table(self, positions: Tensor, length: int | Tensor | None = None, *, like: Tensor | None = None) -> Table:
        return super().table(positions + (has_no_position(positions, 2) * 256)[..., None], length, like=like)


class TableOfCount(AxialRoPE):
    """Keeps its table while the number of tokens stays the same."""

    def __init__(self, head_dim: int) -> None:
        super().__init__(head_dim)
        self.seen: dict[torch.Size, Tensor] = {}

    def table(self, positions: Tensor, length: int | Tensor | None = None, *, like: Tensor | None = None) -> Table:
        return super().table(self.seen.setdefault(positions.shape, positions), length, like=like)


class RowsOnly(AxialRoPE):
    """Does not look at columns."""

    def table(self, positions: Tensor, length: int | Tensor | None = None, *, like: Tensor | None = None) -> Table:
        return super().table(positions[..., :1].expand_as(positions), length, like=like)


class WholeColumns(AxialRoPE):
    """Rounds columns to whole numbers."""

    def table(self, positions: Tensor, length: int | Tensor | None = None, *, like: Tensor | None = None) -> Table:
        return super().table(torch.cat([positions[..., :1], positions[..., 1:].floor()], -1), length, like=like)


class SquaredColumns(AxialRoPE):
    """Squares columns, so that their differences do not decide."""

    def table(self, positions: Tensor, length: int | Tensor | None = None, *, like: Tensor | None = None) -> Table:
        return super().table(torch.cat([positions[..., :1], positions[..., 1:] ** 2], -1), length, like=like)


CAUGHT: tuple[tuple[type, str], ...] = (
    (Truncates, "embedding_shapes"),
    (OneTable, "rotary_shapes"),
    (Normalises, "rotation_is_linear"),
    (TwoDimensional, "bias_shapes"),
    (FixedValues, "attention_shapes"),
    (InputAngles, "dtype_in_dtype_out"),
    (MatmulAngles, "autocast_changes_nothing"),
    (Narrow, "explicit_positions"),
    (IndexBias, "positions_matter"),
    (IndexBias, "shuffled_positions"),
    (LooksAtLength, "offset_positions"),
    (AbsoluteProduct, "common_shift"),
    (LooksAtBatch, "per_row_positions"),
    (WholeScores, "fractional_positions"),
    (Float32Angles, "far_positions"),
    (Spoils, "inputs_unharmed"),
    (RowsOnly, "positions_matter"),
    (WholeColumns, "fractional_positions"),
    (SquaredColumns, "common_shift"),
    (TableOfCount, "grids_of_any_shape"),
    (TurnsEverything, "tokens_without_a_place"),
    (IndexBias, "decode_step_by_step"),
    (IndexBias, "decode_in_chunks"),
    (CachedRotated, "decode_step_by_step"),
    (CachedRotated, "decode_in_chunks"),
    (CachedRotated, "decode_padded_batch"),
    (LongestOfBatch, "per_row_positions"),
    (LongestSoFar, "no_trace_of_a_call"),
    (LooksAtLength, "decode_padded_batch"),
    (LooksAtLength, "packed_documents"),
    (LooksAtLength, "left_padding"),
    (LooksAtLength, "batch_mates"),
    (Remembers, "no_trace_of_a_call"),
    (FloatBuffer, "bfloat16_round_trip"),
    (HiddenBuffer, "meta_device"),
    (TensorAttribute, "meta_device"),
    (NoReset, "reset_parameters"),
    (TensorAttribute, "patched_arange"),
    (DefaultDtype, "default_dtype"),
    (Float32Bias, "double_parameters"),
    (Detached, "gradients"),
    (Bare, "state_dict_is_parameters"),
    (FloatBuffer, "state_dict_is_parameters"),
    (HiddenBuffer, "state_dict_is_parameters"),
    (Renamed, "strict_load"),
    (Shared, "deep_copy"),
    (Unpicklable, "pickled"),
    (Nameless, "readable"),
    (Unlike, "distance_structure"),
    (Unlike, "backends_equal_dense"),
    (Together, "scores_are_read"),
    (Doubled, "rows_without_keys"),
    (Doubled, "weights_are_weights"),
    (Additive, "wrong_positions_raise"),
    (Additive, "inexact_positions_raise"),
    (Wraps, "past_the_table_raises"),
    (Headless, "wrong_heads_raise"),
    (Unchecked, "wrong_widths_raise"),
    (Unchecked, "odd_head_dim_raises"),
    (Careless, "no_heads_raise"),
    (Specialised, "compiles_once"),
    (Specialised, "exports"),
)
