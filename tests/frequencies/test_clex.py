"""CLEX: its scales, its solver's gradient and memory; how its training draws."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from posenc.frequencies import Spectrum
from posenc.frequencies.clex import CLEX
from posenc.frequencies.host import geometric
from posenc.frequencies.spectrum import host_float64
from tests.samples import bounded, gap

THETA = host_float64(geometric(8, 10_000.0))


def trained(pairs: int = 4, *, seed: int = 0, std: float = 0.05, **options) -> CLEX:
    """One whose dynamics differ from NTK's."""
    options = {"original_length": 10, "max_factor": 5, "step": 0.25, "dtype": torch.float64, **options}
    generator = torch.Generator().manual_seed(seed)
    clex = CLEX(pairs, **options)
    for parameter, scale in ((clex.up_proj, 0.3), (clex.down_proj, std)):
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * scale)
    return clex


def forget() -> None:
    """Solve so many other equations that no solution of the test is among the recent ones any more."""
    for seed in range(90, 98):
        trained(seed=seed).frequencies(THETA, host_float64([1.3]))


def forgotten(clex: CLEX, scales: Tensor, theta: Tensor = THETA) -> Tensor:
    """The frequencies as a process that never solved anything gives them."""
    forget()
    return clex.frequencies(theta, scales).detach()


def relative(got: Tensor, expected: Tensor) -> float:
    return (got.detach() / expected - 1).abs().max().item()


class TestParameters:
    def test_initial_weights(self):
        clex = CLEX(32, original_length=2048, param_factor=2)
        assert clex.up_proj.shape == (32, 128)
        assert clex.up_proj.abs().max() <= 128**-0.5 < 1.05 * clex.up_proj.abs().max()
        assert not clex.down_proj.any()


class TestScales:
    def test_between_two_points_of_the_grid(self):
        fine, coarse = trained(step=0.001), trained(step=0.3)  # 0.3 does not divide 1
        scales = host_float64([1.05, 2.0, 3.3, 4.999])
        assert relative(coarse.frequencies(THETA, scales), fine.frequencies(THETA, scales).detach()) < 2e-3
        assert torch.equal(coarse.frequencies(THETA, host_float64([0.5])), THETA[None])

    def test_none_touches_no_parameter(self):
        clex = CLEX(4, original_length=10, device="meta")
        assert torch.equal(clex(Spectrum(THETA)).theta, THETA)
        assert clex(Spectrum(THETA.to("meta"), torch.empty(3, 1, device="meta"))).theta.shape == (3, 4)


def by_autograd(clex: CLEX, scale: float, theta: Tensor) -> Tensor:
    """theta at a scale, one step after another, differentiated by PyTorch."""
    j = torch.arange(clex.pairs, dtype=torch.float64)
    z, t = theta.log(), 1.0
    act = torch.tanh if clex.activation == "tanh" else nn.functional.silu

    def rate(t, z):
        ntk = theta.log() - j / (clex.pairs - 1) * torch.tensor(2 * t - 1, dtype=torch.float64).log()
        return act((z + ntk) @ clex.up_proj) @ clex.down_proj - j / (clex.pairs - 1) * 2 / (2 * t - 1)

    while t < scale - 1e-9:
        h = min(clex.step, scale - t)
        k1 = rate(t, z)
        k2 = rate(t + h / 3, z + h * k1 / 3)
        k3 = rate(t + h * 2 / 3, z + h * (k2 - k1 / 3))
        k4 = rate(t + h, z + h * (k1 - k2 + k3))
        z, t = z + h / 8 * (k1 + 3 * k2 + 3 * k3 + k4), t + h
    return z.exp()


class TestGradient:
    @pytest.mark.parametrize("activation", ["tanh", "silu"])
    def test_of_many_steps(self, activation):
        clex, theta = trained(step=0.01, activation=activation), THETA.clone().requires_grad_()
        inputs = (theta, clex.up_proj, clex.down_proj)
        weights = host_float64([1.0, -2.0, 3.0, 500.0])
        expected = torch.stack([by_autograd(clex, scale, theta) for scale in (1.255, 4.005)])
        got = clex.frequencies(theta, host_float64([1.255, 4.005]))
        assert relative(got, expected) < 1e-12
        for a, b in zip(*(torch.autograd.grad((w * weights).sum(), inputs) for w in (got, expected)), strict=True):
            assert gap(a, b) < 1e-11 * (1 + b.abs().max())

    def test_of_the_trained_length_is_zero(self):
        clex = trained()
        clex(Spectrum(THETA, 10)).theta.sum().backward()
        assert not clex.up_proj.grad.any()
        assert not clex.down_proj.grad.any()


CHANGES = {
    "data": lambda clex: clex.up_proj.data.mul_(1.5),
    "no_grad": lambda clex: torch.no_grad()(lambda: clex.down_proj.mul_(1.5))(),
    "inference_mode": lambda clex: torch.inference_mode()(lambda: clex.down_proj.mul_(1.5))(),
    "one entry": lambda clex: clex.down_proj.data[0, 0].add_(1e-9),
    "load_state_dict": lambda clex: clex.load_state_dict(trained(seed=1).state_dict()),
    "optimizer": lambda clex: (
        clex(Spectrum(THETA, 30)).theta.sum().backward(),
        torch.optim.SGD(clex.parameters(), lr=0.1).step(),
    ),
    "numpy": lambda clex: clex.up_proj.detach().numpy().__imul__(1.5),
    "cast": lambda clex: clex.bfloat16(),
    "new data": lambda clex: setattr(clex.up_proj, "data", clex.up_proj.data + 1),
}


class TestMemory:
    @pytest.mark.parametrize("how", CHANGES)
    @pytest.mark.parametrize("grad", [True, False])
    def test_a_changed_parameter_is_noticed(self, how, grad):
        clex, scales = trained(), host_float64([2.0, 5.0])
        with torch.set_grad_enabled(grad):
            before = clex.frequencies(THETA, scales).detach()
        CHANGES[how](clex)
        with torch.set_grad_enabled(grad):
            after = clex.frequencies(THETA, scales).detach()
        assert not torch.equal(before, after)
        assert torch.equal(after, forgotten(clex, scales))

    def test_threads_come_back(self):
        before = torch.get_num_threads()
        trained().frequencies(THETA, host_float64([3.0])).sum().backward()
        assert torch.get_num_threads() == before


SIZES = {
    "tokens": st.integers(2, 300),
    "original_length": st.integers(1, 80),
    "max_factor": st.integers(1, 9),
    "continuous": st.booleans(),
    "seed": st.integers(0, 2**31),
}


class TestSampling:
    @bounded
    @given(**SIZES)
    def test_draws(self, tokens, original_length, max_factor, continuous, seed):
        clex = CLEX(2, original_length=original_length, max_factor=max_factor, continuous=continuous)
        state = torch.get_rng_state()
        draws = [clex.sample(tokens, generator=torch.Generator().manual_seed(seed)) for _ in range(2)]
        (positions, length), (again, same) = draws
        assert torch.equal(torch.get_rng_state(), state), "the global generator is not touched"
        assert torch.equal(positions, again)
        assert length == same
        assert original_length <= length <= original_length * max_factor
        assert continuous or length % original_length == 0
        assert positions.shape == (tokens,)
        assert positions[0] == 0
        assert (positions.diff() > 0).all()
        squeeze = max(1, tokens // original_length)
        assert positions[-1] == (tokens * length // original_length - 1) / squeeze
        assert positions[-1] < length * (2 if tokens >= original_length else 1)
        assert positions.dtype == (torch.int64 if squeeze == 1 else torch.float64)

    def test_every_scale_comes(self):
        torch.manual_seed(0)
        clex = CLEX(2, original_length=16, max_factor=4)
        draws = [clex.sample(16) for _ in range(200)]
        assert {length for _, length in draws} == {16, 32, 48, 64}
        assert all(torch.equal(positions, torch.arange(16)) for positions, length in draws if length == 16)
        assert len({length for _, length in (trained(continuous=True).sample(16) for _ in range(200))}) > 20
