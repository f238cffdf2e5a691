"""YaRN: slow pairs are interpolated, fast ones left alone, and attention is sharpened for the longer context.

    theta_j ← ramp_j · theta_j / factor + (1 − ramp_j) · theta_j,    gain = 0.1 ln(factor) + 1
    ramp_j = clip((j − low) / (high − low), 0, 1)                                         ramp="index"
    low, high = the index at which a pair makes beta_fast, beta_slow turns within the training length
    ramp_j = 1 − clip((turns_j − beta_slow) / (beta_fast − beta_slow), 0, 1)              ramp="rotations"

The gain multiplies rotated q and k, so scores get its square. Past factor × original_length the interpolated pairs meet
new angles as well. `DynamicYaRN` takes factor = length / original_length; undeclared it is no causal model, as earlier
tokens turn differently once later ones have come. Checkpoints: Yarn-Llama-2, Yarn-Mistral, Qwen2.5 and Qwen3 (factor 4,
original length 32768), DeepSeek-V2 and V3 (mscale pair), gpt-oss (truncate=False).

Source: Peng et al., YaRN, arXiv 2309.00071, section 3.4, eq. 22, with eq. 17 to 20.
Checked against: transformers' yarn type, the YaRN authors' classes (also the dynamic one), DeepSeek-V3, gpt-oss.
Departs from the source: the paper's ramp is linear in the number of rotations, every released code's in the index, up
    to three times apart; the default is the code's, which all checkpoints were trained with. ``mscale`` and
    ``mscale_all_dim`` count only together, as in transformers, vLLM and SGLang; DeepSeek's code takes 1 and 0 for a
    missing one. No frequency depends on earlier calls.
"""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

from posenc.arguments import check_flag, check_number
from posenc.frequencies.host import Array, Formula, check_factor, check_length, index_like, index_of
from posenc.frequencies.llama3 import by_turns

Ramp = Literal["index", "rotations"]


class YaRN(Formula):
    """Slow the slow pairs of channels, keep the fast ones, and sharpen attention: YaRN.

    Args:
        factor: context length divided by training length, at least 1.
        original_length: tokens that the model was trained at; not the extended length.
        beta_fast: rotations within it above which a pair stays as it is; not below ``beta_slow`` (equal: a step).
        beta_slow: rotations below which a pair is interpolated in full.
        truncate: whether the ends of the ramp are rounded outwards to whole indices.
        ramp: ``"index"`` as all released code, or ``"rotations"`` as the paper.
        attention_factor: the gain, instead of every rule for it.
        mscale, mscale_all_dim: DeepSeek's pair: gain = m(mscale) / m(mscale_all_dim), m(a) = 0.1 a ln(factor) + 1;
            one alone, or 0, does not change the gain; with the pair belongs `softmax_factor`.
        extrapolation_factor: share of plain frequencies where the ramp is 0, 0 … 1 (the authors' code).
        attn_factor: multiplies the gain (the authors' code).

    >>> from posenc import RoPE
    >>> spectrum = RoPE(128, scaling=YaRN(16.0, original_length=4096)).spectrum()
    >>> round(float(spectrum.gain), 4)
    1.2773
    """

    def __init__(
        self,
        factor: float,
        *,
        original_length: int,
        beta_fast: float = 32.0,
        beta_slow: float = 1.0,
        truncate: bool = True,
        ramp: Ramp = "index",
        attention_factor: float | None = None,
        mscale: float | None = None,
        mscale_all_dim: float | None = None,
        extrapolation_factor: float = 1.0,
        attn_factor: float = 1.0,
    ) -> None:
        super().__init__()
        check_factor(factor)
        check_length(original_length)
        check_ramp(beta_fast, beta_slow, ramp)
        if attention_factor is not None:
            check_number("attention_factor", attention_factor, above=0)
        check_number("attn_factor", attn_factor, above=0)
        for name, value in (("mscale", mscale), ("mscale_all_dim", mscale_all_dim)):
            if value is not None:
                check_number(name, value, least=0)
        check_number("extrapolation_factor", extrapolation_factor, least=0, most=1)
        self.factor, self.original_length = float(factor), original_length
        self.beta_fast, self.beta_slow, self.ramp = float(beta_fast), float(beta_slow), ramp
        self.truncate = check_flag("truncate", truncate)
        self.attention_factor, self.mscale, self.mscale_all_dim = attention_factor, mscale, mscale_all_dim
        self.extrapolation_factor, self.attn_factor = float(extrapolation_factor), float(attn_factor)

    @property
    def gain(self) -> float:
        """The factor on rotated q and k."""
        if self.attention_factor is not None:
            return float(self.attention_factor)
        if not (self.mscale and self.mscale_all_dim):  # one alone, or 0, counts as absent in every engine
            return mscale_gain(self.factor, 1.0) * self.attn_factor
        return mscale_gain(self.factor, self.mscale) / mscale_gain(self.factor, self.mscale_all_dim) * self.attn_factor

    @property
    def softmax_factor(self) -> float:
        """What DeepSeek's models multiply their softmax scale by: m(mscale_all_dim)²; 1 without that.

        It acts on whole scores, also of channels that are not rotated, so it is the caller's to apply:
        ``attention(..., scale=yarn.softmax_factor / sqrt(head_dim))``.
        """
        return mscale_gain(self.factor, self.mscale_all_dim or 0.0) ** 2

    def forward(self, spectrum: Any) -> Any:
        theta, options = spectrum.theta, (self.original_length, self.beta_fast, self.beta_slow)
        if self.ramp == "rotations":
            stays = by_turns(theta, self.original_length, self.beta_slow, self.beta_fast)
        else:
            stays = 1 - by_index(theta, *options, truncate=self.truncate, scaling="YaRN")
        stays = stays * self.extrapolation_factor
        return spectrum._replace(
            theta=theta / self.factor * (1 - stays) + theta * stays, gain=spectrum.gain * self.gain
        )

    def extra_repr(self) -> str:
        shown = [f"{self.factor:g}", f"original_length={self.original_length}"]
        shown += [
            f"{name}={value!r}"
            for name, default in _OPTIONS.items()
            if (value := getattr(self, name)) != default
        ]  # fmt: skip
        return ", ".join(shown)


_OPTIONS: dict[str, object] = {
    "beta_fast": 32.0, "beta_slow": 1.0, "truncate": True, "ramp": "index", "attention_factor": None, "mscale": None,
    "mscale_all_dim": None, "extrapolation_factor": 1.0, "attn_factor": 1.0,
}  # fmt: skip


class DynamicYaRN(Formula):
    """YaRN with the factor that the length of a row asks for; plain RoPE, without a gain, up to the training length.

    Args:
        original_length: tokens that the model was trained at.
        beta_fast, beta_slow, truncate, ramp: as for `YaRN`.

    >>> from posenc import RoPE
    >>> RoPE(64, scaling=DynamicYaRN(original_length=1024)).spectrum(1024).gain
    tensor(1., dtype=torch.float64)
    """

    length_dependent = True

    def __init__(
        self,
        *,
        original_length: int,
        beta_fast: float = 32.0,
        beta_slow: float = 1.0,
        truncate: bool = True,
        ramp: Ramp = "index",
    ) -> None:
        super().__init__()
        check_length(original_length)
        check_ramp(beta_fast, beta_slow, ramp)
        self.original_length, self.truncate, self.ramp = original_length, check_flag("truncate", truncate), ramp
        self.beta_fast, self.beta_slow = float(beta_fast), float(beta_slow)

    def forward(self, spectrum: Any) -> Any:
        theta, options = spectrum.theta, (self.original_length, self.beta_fast, self.beta_slow)
        longer = spectrum.times_longer(self.original_length)
        if self.ramp == "rotations":
            stays = by_turns(theta, self.original_length, self.beta_slow, self.beta_fast)
        else:
            stays = 1 - by_index(theta, *options, truncate=self.truncate, scaling="DynamicYaRN")
        gain = 0.1 * longer.log() + 1  # 1 up to the trained length, where longer is 1
        return spectrum._replace(theta=theta / longer * (1 - stays) + theta * stays, gain=spectrum.gain * gain)

    def extra_repr(self) -> str:
        return f"original_length={self.original_length}"


def mscale_gain(factor: float, mscale: float) -> float:
    """0.1 · mscale · ln(factor) + 1."""
    return 0.1 * mscale * math.log(factor) + 1.0


def by_index(
    theta: Array,
    original_length: int,
    beta_fast: float,
    beta_slow: float,
    *,
    truncate: bool,
    scaling: str,
    last: int | None = None,
) -> Array:
    """How far each pair is on the way from plain, 0, to interpolated, 1: a ramp in its index, as released code has it.

    The ends are clamped to 0 and d − 1, not d/2 − 1, as in that code; or to ``last``.
    """
    # a pair with beta rotations over the training length has theta = 2π · beta / length; its index may be fractional
    low, high = (index_of(theta, 2 * math.pi * beta / original_length, scaling) for beta in (beta_fast, beta_slow))
    if truncate:
        low, high = low.floor(), high.ceil()
    low, high = low.clamp(min=0.0), high.clamp(max=2.0 * theta.shape[-1] - 1 if last is None else float(last))
    high = (high + 0.001).where(low == high, high)  # a step instead of 0/0
    return ((index_like(theta) - low) / (high - low)).clamp(0.0, 1.0)


def check_ramp(beta_fast: float, beta_slow: float, ramp: str) -> None:
    """Raise a ValueError unless the ends of a ramp make sense."""
    check_number("beta_slow", beta_slow, above=0)
    check_number("beta_fast", beta_fast)
    if beta_fast < beta_slow:  # equal ends make the ramp a step, as in Kimi-K2's released configuration
        raise ValueError(f"beta_fast must be a finite number not below beta_slow = {beta_slow}, got {beta_fast!r}")
    if ramp not in get_args(Ramp):
        raise ValueError(f"ramp must be one of {get_args(Ramp)}, got {ramp!r}")
