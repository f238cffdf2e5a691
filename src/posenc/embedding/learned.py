"""Learned position embedding: one trained vector a position, added to the token embeddings.

    e(p) = scale · table[p + offset]

p integer positions in tokens, −offset ≤ p < max_length. There is nothing past the last row: the encoding is
undefined there, and asking for it is an error. Positions between −offset and −1 read the rows before position 0,
which is how fairseq and OPT place padding.
Source: Gehring et al., Convolutional Sequence to Sequence Learning, arXiv 1705.03122, section 3.1; as used by
    Devlin et al., BERT, arXiv 1810.04805, section 3 and by GPT-2.
Checked against: transformers' BertEmbeddings and OPTLearnedPositionalEmbedding; fairseq's LearnedPositionalEmbedding.
Departs from the source: nothing; BERT's layer norm (eps 1e-12) and dropout act on the sum, so they sit here as options.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from posenc.arguments import LONGEST, check_number, check_table, check_whole
from posenc.embedding._join import Combine, check_combine, checked_positions, join
from posenc.embedding._rows import rows_at
from posenc.encoding import EmbeddingEncoding
from posenc.entry import Entry
from posenc.factory_kwargs import Device, place_parameters

Grow = Literal["interpolate", "tile"]


class Learned(EmbeddingEncoding):
    """Add one learned vector per position to token embeddings, as BERT and GPT-2 do.

    Args:
        dim: channels of the table; for ``combine="add"`` the width of x.
        max_length: positions 0 … max_length − 1 have a row.
        offset: rows before the one of position 0 (fairseq: padding_idx + 1; OPT: 2).
        padding_idx: a row that stays zero and gets no gradient (fairseq), or None.
        scale: factor on the rows.
        layer_norm: eps of a layer norm over the sum (BERT: 1e-12), or None.
        dropout: probability on the result, while training.
        combine: ``"add"`` to x, or ``"concat"`` after x's channels.
        init_std: standard deviation of the initial rows (BERT 0.02, GPT-2 0.01, fairseq dim^−0.5).
        device, dtype: of the parameters, as in torch.nn.

    Raises:
        ValueError: at construction for sizes that do not fit; at a call for positions out of the table or not integer.

    >>> Learned(8, max_length=16)(torch.zeros(2, 5, 8), torch.arange(5)).shape
    torch.Size([2, 5, 8])
    """

    lr_multiplier = 10.0
    table_bound = True

    def __init__(
        self,
        dim: int,
        *,
        max_length: int,
        offset: int = 0,
        padding_idx: int | None = None,
        scale: float = 1.0,
        layer_norm: float | None = None,
        dropout: float = 0.0,
        combine: Combine = "add",
        init_std: float = 0.02,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_whole("dim", dim)
        check_whole("max_length", max_length, most=LONGEST)
        check_whole("offset", offset, least=0, most=LONGEST)
        check_table("max_length and dim", offset + max_length, dim)
        if padding_idx is not None:
            check_whole("padding_idx", padding_idx, least=0, most=LONGEST)
        if layer_norm is not None:
            check_number("layer_norm", layer_norm, least=0)
        check_number("scale", scale)
        check_number("dropout", dropout, least=0, most=1)
        check_number("init_std", init_std, least=0)
        if padding_idx is not None and not 0 <= padding_idx < offset + max_length:
            raise ValueError(f"padding_idx must be a row, 0..{offset + max_length - 1}, got {padding_idx}")
        if layer_norm is not None and combine == "concat":
            raise ValueError("layer_norm acts on the sum of tokens and positions: it needs combine='add'")
        check_combine(combine)
        self.dim, self.max_length, self.offset, self.padding_idx = dim, max_length, offset, padding_idx
        self.scale, self.combine, self.init_std = scale, combine, init_std
        self.table = nn.Parameter(torch.empty(offset + max_length, dim))
        self.norm = None if layer_norm is None else nn.LayerNorm(dim, eps=layer_norm)
        self.dropout = nn.Dropout(dropout)
        self.reset_parameters()
        place_parameters(self, device, dtype)

    @classmethod
    def lengths_for(cls, train_length: int) -> dict[str, int]:
        """A row for each trained position."""
        return {"max_length": train_length}

    def reset_parameters(self) -> None:
        """Draw the table anew: normal, truncated at two standard deviations."""
        if not self.init_std:
            nn.init.zeros_(self.table)
            return
        nn.init.trunc_normal_(self.table, std=self.init_std, a=-2 * self.init_std, b=2 * self.init_std)
        if self.padding_idx is not None:
            with torch.no_grad():
                self.table[self.padding_idx] = 0.0

    def encode(self, positions: Tensor) -> Tensor:
        """The encoding alone, ``(*batch, tokens, dim)``, in the table's dtype."""
        rows = rows_at(
            positions,
            self.table,
            offset=self.offset,
            padding_idx=self.padding_idx,
            remedy="; grow_table(encoding, length) makes a longer one",
        )
        return rows if self.scale == 1.0 else rows * self.scale

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        joined = join(x, self.encode(checked_positions(x, positions, self.dim, self.combine)), self.combine)
        out: Tensor = self.dropout(joined if self.norm is None else _normalise(joined, self.norm))
        return out

    def extra_repr(self) -> str:
        return f"{self.dim}, max_length={self.max_length}, offset={self.offset}, combine={self.combine!r}"


def _normalise(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    """The layer norm in float32 or better, whatever the dtypes of x and of the module."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    weight, bias = norm.weight.to(dtype), norm.bias.to(dtype)
    return nn.functional.layer_norm(x.to(dtype), norm.normalized_shape, weight, bias, norm.eps).to(x.dtype)


def grow_table(encoding: Learned, max_length: int, *, mode: Grow = "interpolate") -> Learned:
    """A copy of a learned encoding with rows up to ``max_length``; the given one stays as it is.

    Args:
        encoding: the trained one; its rows before position 0 are kept as they are.
        max_length: positions of the new table, at least as many as the old one has.
        mode: ``"interpolate"`` resamples the rows linearly, first on first and last on last;
            ``"tile"`` repeats them from the start. Both want fine-tuning.

    >>> grow_table(Learned(8, max_length=4), 6, mode="tile").table.shape
    torch.Size([6, 8])
    """
    if max_length < encoding.max_length:
        raise ValueError(f"max_length must be at least the table's {encoding.max_length}, got {max_length}")
    if mode not in get_args(Grow):
        raise ValueError(f"mode must be one of {get_args(Grow)}, got {mode!r}")
    table = encoding.table.detach()
    prefix_rows, rows = table[: encoding.offset], table[encoding.offset :]
    if mode == "tile":
        grown = rows.repeat(-(-max_length // len(rows)), 1)[:max_length]
    else:
        wide = rows.to(torch.promote_types(rows.dtype, torch.float32)).T[None]  # (1, dim, rows), as interpolate wants
        grown = nn.functional.interpolate(wide, max_length, mode="linear", align_corners=True)[0].T.to(rows.dtype)
    longer = Learned(
        encoding.dim,
        max_length=max_length,
        offset=encoding.offset,
        padding_idx=encoding.padding_idx,
        scale=encoding.scale,
        layer_norm=None if encoding.norm is None else encoding.norm.eps,
        dropout=encoding.dropout.p,
        combine=encoding.combine,
        init_std=encoding.init_std,
    ).to(rows.device, rows.dtype)
    with torch.no_grad():
        longer.table.copy_(torch.cat([prefix_rows, grown]))
        if encoding.padding_idx is not None:
            longer.table[encoding.padding_idx] = 0.0
    if encoding.norm is not None and longer.norm is not None:
        longer.norm.load_state_dict(encoding.norm.state_dict())
    longer.table.requires_grad_(encoding.table.requires_grad)
    return longer.train(encoding.training)


ENTRY = Entry(
    name="learned",
    encoding=Learned,
    title="Learned position embedding",
    formula="x_t ← x_t + table[p]",
    source="Gehring et al., arXiv 1705.03122; Devlin et al., arXiv 1810.04805",
    parameters="max_length × dim",
    cost="one lookup and addition per token, once",
    past_training="undefined beyond the table",
    reads="positions",
    extension="new rows (grow_table), and training of them",
    used_in="BERT (arXiv 1810.04805); OPT (arXiv 2205.01068); Whisper's decoder (arXiv 2212.04356)",
    avoid="for sequences longer than max_length: their positions have no row",
    exempt={
        "fractional_positions": "a table has no rows between rows",
        "far_positions": "a table ends",
    },
)
