"""Abacus: each digit gets an embedding of its place inside its number, so that digits of equal value align.

    x_t ← x_t + table[id_t]
    id_t = 1, 2, 3, … along each run of digits, 0 at all other tokens
    id_t ← id_t + k where id_t > 0                                       in training; k one random number for the batch

`positions.abacus` makes the ids, and its `shift` is k: it trains rows that only longer numbers will ask for. Numbers
must be written with the least significant digit first; only then is a digit's id its worth, whatever the length. Ids
are no places in the text, and SelfAttention hands all encodings of its list the same positions: so call this module
on x yourself, and leave the text's order to others: ``x = abacus(x, ids)``, then ``SelfAttention(…, [FIRE(8)])``.
Source: McLeish et al., Transformers Can Do Arithmetic with the Right Embeddings, arXiv 2405.17399, section 3.1.
Checked against: the ids of the authors' abacus.py (mcleish7/arithmetic).
Departs from the source: the ids are the caller's to make and k the caller's to draw (theirs is 0 … 99), so that the
    module draws no random number and a decoding step can continue a number.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from posenc.arguments import LONGEST, check_number, check_table, check_whole
from posenc.embedding._join import checked_positions, join
from posenc.embedding._rows import rows_at
from posenc.encoding import EmbeddingEncoding
from posenc.entry import Entry
from posenc.factory_kwargs import Device, place_parameters


class Abacus(EmbeddingEncoding):
    """Abacus embedding. Its positions are ids inside numbers, from `positions.abacus`.

    Args:
        dim: width of x.
        max_length: ids 0 … max_length − 1 have a row: more than digits of the longest number + largest shift.
        init_std: standard deviation of the initial rows; best equal to the token embeddings'. 1 is `nn.Embedding`'s, as
            in the authors' module; in their training both started at dim^−0.5.
        device, dtype: of the parameters, as in torch.nn.

    Raises:
        ValueError: at construction for sizes or a deviation not above 0; at a call for ids out of the table or not
            integer.

    >>> from posenc import positions
    >>> ids = positions.abacus(torch.tensor([[7, 3, 10, 4, 4, 1]]), digit_tokens=range(10))  # 37 + 144, 10 is the plus
    >>> ids
    tensor([[1, 2, 0, 1, 2, 3]])
    >>> Abacus(8, max_length=16)(torch.zeros(1, 6, 8), ids).shape
    torch.Size([1, 6, 8])
    """

    lr_multiplier = 10.0
    table_bound = True

    def __init__(
        self,
        dim: int,
        *,
        max_length: int = 1024,
        init_std: float = 1.0,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_whole("dim", dim)
        check_whole("max_length", max_length, most=LONGEST)
        check_table("max_length and dim", max_length, dim)
        check_number("init_std", init_std, above=0)
        self.dim, self.max_length, self.init_std = dim, max_length, init_std
        self.table = nn.Parameter(torch.empty(max_length, dim))
        self.reset_parameters()
        place_parameters(self, device, dtype)

    @classmethod
    def lengths_for(cls, train_length: int) -> dict[str, int]:
        """As many rows as tokens in training: more than a number has digits."""
        return {"max_length": train_length}

    def reset_parameters(self) -> None:
        """Draw the table anew, normal."""
        nn.init.normal_(self.table, std=self.init_std)

    def encode(self, positions: Tensor) -> Tensor:
        """The encoding alone, ``(*batch, tokens, dim)``, in the table's dtype."""
        return rows_at(positions, self.table, remedy="; max_length must exceed digits + shift")

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        if positions is None:
            raise ValueError(
                "positions must be given, places inside numbers: posenc.positions.abacus(ids, digit_tokens)"
            )
        return join(x, self.encode(checked_positions(x, positions, self.dim, "add")), "add")

    def extra_repr(self) -> str:
        return f"{self.dim}, max_length={self.max_length}"


ENTRY = Entry(
    name="abacus",
    encoding=Abacus,
    title="Abacus embedding: a digit's position inside its number",
    formula="x_t ← x_t + table[id],  id = 1, 2, … along a run of digits, 0 elsewhere",
    source="McLeish et al., arXiv 2405.17399, section 3.1",
    parameters="max_length × dim",
    cost="one lookup and addition per token, once",
    past_training="longer numbers use rows that random shifts reached in training; undefined beyond the table",
    reads="content",
    extension="starts drawn from a wide range in training, so that far rows are trained",
    used_in="its paper's own models; no other is known to us",
    avoid="to encode token order: all tokens outside numbers have the same row",
    own_positions=True,
    exempt={
        "fractional_positions": "a table has no rows between rows",
        "far_positions": "a table ends",
    },
)
