"""A score encoding of your own, in ten lines: ALiBi whose slope each query decides; checked, then held against ALiBi.

Needs `pip install posenc[lab]`. `attention` hands it scores and their `Context`; see `posenc.encoding`. In this folder
`posenc compare custom_score:QueryALiBi` trains it like any other: ``module:Class`` stands wherever a name can stand.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import torch
from torch import Tensor, nn

from posenc import Context, ScoreEncoding
from posenc.bias import alibi_slopes
from posenc.testing import check_encoding


class QueryALiBi(ScoreEncoding):
    """s_ij ← s_ij − 2 sigmoid(q_i · gate_h) · slope_h · |p_i − p_j|: plain ALiBi at first, then each query's own."""

    def __init__(self, num_heads: int, head_dim: int) -> None:
        super().__init__()
        self.slopes = alibi_slopes(num_heads)  # plain numbers: no cast of the module can round them
        self.gate = nn.Parameter(torch.zeros(num_heads, head_dim))

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.gate)

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        slopes = torch.tensor(self.slopes, dtype=scores.dtype, device=scores.device)
        by_query = 2 * torch.einsum("bhqd,hd->bhq", context.q, self.gate.to(scores.dtype)).sigmoid() * slopes[:, None]
        distance = (context.q_pos.unsqueeze(-1) - context.k_pos.unsqueeze(-2)).abs().unsqueeze(-3)
        return scores - by_query.unsqueeze(-1) * distance.to(scores.dtype)

    def extra_repr(self) -> str:
        return "num_heads={}, head_dim={}".format(*self.gate.shape)


if __name__ == "__main__":  # compare imports this file, and must find the class alone
    check_encoding(QueryALiBi)
    print("QueryALiBi passes the conformance suite")

    command = "posenc compare alibi custom_score:QueryALiBi --workers 1 --device cpu"
    numbers = "--train-length 64 --lengths 1,4 --steps 150 --batch-size 16 --windows 16 --dim 64 --layers 2 --heads 4"
    with TemporaryDirectory() as out:
        arguments = [*command.split(), *numbers.split(), "--out", out]
        subprocess.run([sys.executable, "-m", *arguments], cwd=Path(__file__).parent, check=True)
        cells = pd.read_csv(Path(out) / "cells.csv")
        print(cells[cells["view"] == "full"][["encoding", "length", "mean"]].to_string(index=False))
