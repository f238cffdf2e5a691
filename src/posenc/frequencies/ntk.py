"""NTK-aware scaling: a larger base, so that the slowest pair is interpolated in full and the fastest not at all.

    theta_j ← theta_j · a^(−2j/(d−2)),   the frequencies of base · a^(d/(d−2)),   d = 2 · pairs
    a = factor                                                                       NTKAware
    a = max(1, factor · length/original_length − (factor − 1))                       DynamicNTK

``length`` = tokens that a row spans, found or declared. Pairs between the ends meet angles they never saw in training,
so a fixed factor has to be chosen larger than the text is longer. Undeclared, the dynamic form is no causal model:
earlier tokens' rotation changes as the sequence grows. Checkpoints: Qwen-1 (schedule="powers"), rope type "dynamic".
Code Llama trains with a base of 1e6 instead.

Source: bloc97 and emozilla (2023), written up in Peng et al., YaRN, arXiv 2309.00071, section 3.1 and 3.3.
Checked against: the YaRN authors' LlamaNTKScaled and LlamaDynamicScaled classes; transformers' dynamic type.
Departs from the source: the paper's dynamic form has factor 1; Hugging Face's factor above 1 (the authors' ntk=a) makes
    the scale at length = factor · original_length not factor but factor² − factor + 1. Frequencies never depend on
    earlier calls; both released classes keep a scaled table after a long text. vLLM's "ntk" is another formula.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from posenc.frequencies.host import Array, Formula, check_factor, check_length, index_like

Schedule = Literal["continuous", "powers"]


class NTKAware(Formula):
    """Raise the base by factor^(d/(d−2)), so that slower pairs are slowed more: NTK-aware scaling.

    Args:
        factor: context length divided by training length, at least 1.

    >>> from posenc import RoPE
    >>> theta, plain = RoPE(64, scaling=NTKAware(4.0)).spectrum().theta, RoPE(64).spectrum().theta
    >>> (plain / theta)[[0, -1]]
    tensor([1., 4.], dtype=torch.float64)
    """

    def __init__(self, factor: float) -> None:
        super().__init__()
        check_factor(factor)
        self.factor = float(factor)

    def forward(self, spectrum: Any) -> Any:
        return spectrum._replace(theta=with_larger_base(spectrum.theta, self.factor))

    def extra_repr(self) -> str:
        return f"{self.factor:g}"


class DynamicNTK(Formula):
    """NTK-aware scaling by the sequence length over the training length; plain RoPE up to the training length.

    Args:
        factor: 1 is the paper's form; Hugging Face multiplies the length by it, see above.
        original_length: tokens that the model was trained at (transformers: max_position_embeddings).
        schedule: ``"continuous"``, or ``"powers"``: Qwen-1's a = max(1, 2^ceil(log2(length/original_length) + 1) − 1),
            which ignores ``factor``.

    >>> from posenc import RoPE
    >>> rope = RoPE(64, scaling=DynamicNTK(original_length=1024))
    >>> (RoPE(64).spectrum().theta / rope.spectrum(4096).theta)[-1]
    tensor(4., dtype=torch.float64)
    """

    length_dependent = True

    def __init__(self, factor: float = 1.0, *, original_length: int, schedule: Schedule = "continuous") -> None:
        super().__init__()
        check_factor(factor)
        check_length(original_length)
        if schedule not in get_args(Schedule):
            raise ValueError(f"schedule must be one of {get_args(Schedule)}, got {schedule!r}")
        if schedule == "powers" and factor != 1:
            raise ValueError(f"factor must be 1 for schedule='powers', which makes its own, got {factor}")
        self.factor, self.original_length, self.schedule = float(factor), original_length, schedule

    def forward(self, spectrum: Any) -> Any:
        longer = spectrum.times_longer(self.original_length)
        if self.schedule == "powers":
            scale = ((longer.log2() + 1).ceil().exp2() - 1).where(longer > 1, longer.new_ones(longer.shape))
        else:
            scale = (self.factor * longer - (self.factor - 1)).clamp(min=1.0)
        return spectrum._replace(theta=with_larger_base(spectrum.theta, scale))

    def extra_repr(self) -> str:
        shown = "" if self.schedule == "continuous" else f", schedule={self.schedule!r}"
        return f"{self.factor:g}, original_length={self.original_length}{shown}"


def with_larger_base(theta: Array, scale: float | Array) -> Array:
    """``theta`` (..., pairs) as if its base were scale^(d/(d−2)) times larger."""
    pairs = theta.shape[-1]
    if pairs < 2:
        raise ValueError(f"NTK-aware scaling spreads a factor over the pairs and needs at least two, got {pairs}")
    scale = theta.new_tensor(scale) if isinstance(scale, int | float) else scale
    return theta * scale ** (-index_like(theta) / (pairs - 1))
