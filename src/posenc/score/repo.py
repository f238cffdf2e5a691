"""RePo: tokens choose their own positions, one per head, and RoPE rotates queries and keys by these positions.

    p_t = final · (silu(gate · x_t) ⊙ content · x_t)          one real number of any sign per token and key head
    p_t ← (1 − rho) · p_t + rho · n_t                         in training, n_t the token's ordinary position
    s_ij = scale · R(p_i) q_i · R(p_j) k_j                    R: RoPE, p in tokens

x is the layer's input; base, layout and scaling are RoPE's. A position depends on its own token alone, so the order of
the text enters only through the causal mask. Positions have no bound and are computed in float32 or better, as bfloat16
has no fractions beyond 128. RePo changes only queries and keys, so every backend serves it unless another encoding
reads these. Caches keep positions together with unrotated keys. Past the training length positions stay in their
trained range as far as the tokens resemble those of training.

Source: Li et al., RePo: Language Models with Context Re-Positioning, arXiv 2512.14391, section on the
    module f_phi; network, mixing and initial values as in the authors' code.
Checked against: SakanaAI/repo Olmo2Attention.dynamic_position_encoding_swigluex_multihead: positions, rotated queries
    and keys.
Departs from the source: under grouped queries there is one position per key head, which its query heads share; the
    authors' code needs as many key heads as query heads. Angles are exact, where that code multiplies in float32. RePo
    is a score encoding here, because rotary encodings of posenc get positions only.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posenc.arguments import check_heads, check_number, check_whole
from posenc.encoding import Context, Reads, ScoreEncoding, Table, float64_if_supported
from posenc.entry import Entry, a_key_head_per_query_head
from posenc.factory_kwargs import Device, place_parameters
from posenc.frequencies.rotation import Layout
from posenc.head_shares import KEYS, HeadAxis
from posenc.rotary.rope import RoPE
from posenc.score._inputs import check_key_heads, check_width, token_state_of, wide_linear
from posenc.score._qk_rotation import replace_products, rotate_by_table, table_of_queries


class RePo(ScoreEncoding):
    """RoPE at positions that a small network predicts from each token. It needs ``attention(..., x=x)``.

    Args:
        dim: width of the layer's input.
        num_kv_heads: key heads, each with its own positions.
        head_dim: width of a head.
        hidden: width of the network; default ``dim // 8``, as in the source, but at least 1.
        base, layout, rotary_dim, scaling: as for `RoPE`; a scaling may not depend on the length.
        rho: share of a token's ordinary position in training, 0 to 1; 0 in evaluation. If it is above 0 here, training
            loops may set the attribute ``rho`` between steps, for example to anneal it.
        init_std: standard deviation of the initial weights, which are normal and truncated at 3 standard deviations.
        device, dtype: of the parameters, as in torch.nn.

    Raises:
        ValueError: at construction for sizes that do not fit and for a length-dependent scaling; at a call for another
            ``head_dim``, without x or token_states, or for x of another width.

    >>> from posenc import attention
    >>> x, (q, k, v) = torch.randn(1, 16, 512), torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [RePo(512, head_dim=64, num_kv_heads=8)], x=x).shape
    torch.Size([1, 8, 16, 64])
    """

    reads = Reads(own_key=True)
    shared_by_layers = False

    def __init__(
        self,
        dim: int,
        *,
        num_kv_heads: int,
        head_dim: int,
        hidden: int | None = None,
        base: float = 10_000.0,
        layout: Layout = "half",
        rotary_dim: int | None = None,
        scaling: nn.Module | None = None,
        rho: float = 0.0,
        init_std: float = 0.02,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_whole("dim", dim)
        check_whole("head_dim", head_dim)
        check_heads("num_kv_heads", num_kv_heads)
        hidden = max(1, dim // 8) if hidden is None else hidden
        check_whole("hidden", hidden)
        check_number("rho", rho, least=0, most=1)
        check_number("init_std", init_std, above=0)
        self.dim, self.num_kv_heads, self.head_dim = dim, num_kv_heads, head_dim
        self.hidden, self.init_std = hidden, init_std
        self.rope = RoPE(head_dim, base=base, layout=layout, rotary_dim=rotary_dim, scaling=scaling)
        if self.rope.length_dependent:
            raise ValueError(
                "scaling must not depend on the length of a row: positions of RePo do not count tokens; take one "
                f"with fixed frequencies, such as YaRN, got {scaling!r}"
            )
        if self.rope.spectrum().theta.ndim > 1:
            raise ValueError(f"scaling must give the same frequencies to all heads, got {scaling!r}")
        self.axes = 1 if rho else 0  # without mixing no position is read
        self._rho = float(rho)
        self.gate, self.content = (nn.Parameter(torch.empty(hidden, dim)) for _ in range(2))
        self.final = nn.Parameter(torch.empty(num_kv_heads, hidden))
        self.reset_parameters()
        place_parameters(self, device, dtype, given=scaling)

    @property
    def rho(self) -> float:
        """Share of a token's ordinary position in training."""
        return self._rho

    @rho.setter
    def rho(self, rho: float) -> None:
        check_number("rho", rho, least=0, most=1)
        if rho and not self.axes:
            raise ValueError(
                f"rho must be above 0 at construction to be set later, so that positions are read, got {rho}"
            )
        self._rho = float(rho)

    def reset_parameters(self) -> None:
        """Weights drawn anew, normal within three standard deviations: positions start near 0."""
        for weight in (self.gate, self.content, self.final):
            nn.init.trunc_normal_(weight, std=self.init_std, a=-3 * self.init_std, b=3 * self.init_std)

    def head_axes(self) -> dict[str, HeadAxis]:
        return {"final": KEYS}

    def token_state(self, x: Tensor) -> Tensor | None:
        """Positions before any mixing, ``(batch, num_kv_heads, tokens)``, in float32 or better."""
        inner = F.silu(wide_linear(x, self.gate)) * wide_linear(x, self.content)
        return wide_linear(inner, self.final).transpose(1, 2)

    def absorb_into_qk(self, context: Context) -> tuple[Tensor, Tensor]:
        q, k = context.q, context.k
        check_width(self, self.head_dim, q)
        check_key_heads(self, self.num_kv_heads, k)
        predicted = token_state_of("RePo", context, (self.num_kv_heads,), k.dtype)
        rho = self.rho if self.training else 0.0
        if not rho:
            key_table = self.rope.table(predicted, like=k)
            return self._rotated(q, k, table_of_queries(key_table, q.shape[2]), key_table)
        wide = float64_if_supported(k.device)
        before = max(0, q.shape[2] - k.shape[2])  # queries before the first key, which attend to none
        query_places, key_places = F.pad(predicted, (before, 0))[..., before + k.shape[2] - q.shape[2] :], predicted
        query_places, key_places = (
            (1 - rho) * p.to(wide) + rho * at.unsqueeze(-2).to(wide)  # float32 has no fractions left at far positions
            for p, at in ((query_places, context.q_pos), (key_places, context.k_pos))
        )
        return self._rotated(q, k, self.rope.table(query_places, like=q), self.rope.table(key_places, like=k))

    def _rotated(self, q: Tensor, k: Tensor, query_table: Table, key_table: Table) -> tuple[Tensor, Tensor]:
        layout = self.rope.layout
        return rotate_by_table(q, query_table, layout), rotate_by_table(k, key_table, layout)

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        return replace_products(scores, context, *self.absorb_into_qk(context))

    def extra_repr(self) -> str:
        sizes = f"{self.dim}, head_dim={self.head_dim}, num_kv_heads={self.num_kv_heads}, hidden={self.hidden}"
        return f"{sizes}, rho={self.rho:g}" if self.axes else sizes


ENTRY = Entry(
    name="repo",
    encoding=RePo,
    title="RePo: RoPE at positions that each token chooses",
    formula="s_ij = scale · R(p_i)q_i · R(p_j)k_j,  p_t = final · (silu(gate·x_t) ⊙ content·x_t)",
    source="Li et al., arXiv 2512.14391",
    parameters="(2 · dim + num_kv_heads) × dim/8 per layer",
    cost="a network of width dim/8, a rotation of q and all keys; one number per key head and key in the cache",
    past_training="positions do not count tokens: familiar tokens get no new angles",
    reads="content",
    extension="a fixed scaling of its frequencies, untested by its authors",
    used_in="SakanaAI/RePo-OLMo2-1B-stage2-L5, from layer 5 on (OLMo2-1B-stage2-seed42-SEXMH-L5.yaml)",
    avoid="on a checkpoint that cannot be trained further: a network predicts the positions",
    defaults=a_key_head_per_query_head,
    exempt={"positions_matter": "a position is chosen by its token; indices are not read"},
)
