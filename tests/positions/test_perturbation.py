"""Positions drawn in training: their ranges, and what they may not touch."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from posenc import positions
from posenc.positions import augmented, centred, grid, perturbed, signed, with_prefix
from tests.samples import bounded, gap


@bounded
@given(st.integers(1, 40), st.integers(0, 60), st.none() | st.integers(1, 3), st.integers(0, 2**31))
def test_randomised_positions_rise_within_range(tokens, more, batch, seed):
    max_length, source = tokens + more, torch.Generator()
    samples = positions.randomised(tokens, max_length, batch=batch, generator=source.manual_seed(seed))
    assert samples.dtype == torch.int64
    assert samples.shape == ((tokens,) if batch is None else (batch, tokens))
    assert (samples.diff(dim=-1) > 0).all(), "in order, none twice"
    assert samples.min() >= 0
    assert samples.max() < max_length
    again = positions.randomised(tokens, max_length, batch=batch, generator=source.manual_seed(seed))
    assert torch.equal(samples, again)


def test_randomised_positions_are_equally_likely():
    source = torch.Generator().manual_seed(0)
    samples = positions.randomised(3, 10, batch=20_000, generator=source)
    share = (
        samples.flatten().bincount(minlength=10) / 20_000
    )  # of draws that hold a position; standard deviation 0.0032
    assert (share - 0.3).abs().max() < 0.015
    pairs = (samples[:, 0] * 100 + samples[:, 1] * 10 + samples[:, 2]).unique(return_counts=True)[1]
    assert len(pairs) == 120, "each set of 3 out of 10"
    assert ((pairs - 20_000 / 120) ** 2 / (20_000 / 120)).sum() < 180  # chi squared, 119 degrees: mean 119, std 15.4


def test_randomised_rows_differ_and_reach_far():
    source = torch.Generator().manual_seed(0)
    samples = positions.randomised(512, 100_000, batch=4, generator=source)
    assert len(samples.unique(dim=0)) == 4
    assert (samples[:, -1] > 95_000).all()


def test_perturbed_stays_in_its_patch():
    source = torch.Generator().manual_seed(0)
    video = with_prefix(grid(3, 4, 5), 2)
    for _ in range(5):
        moved = perturbed(video, (3, 4, 5), intensity=3.0, generator=source)
        assert torch.equal(moved[:2], video[:2].float()), "no place, none taken"
        apart = (moved[2:] - centred(grid(3, 4, 5), (3, 4, 5))) * torch.tensor([3.0, 4.0, 5.0])
        assert not apart[:, 0].any(), "frames do not tremble"
        assert 0.4 < apart.abs().max() <= 0.5 + 1e-5
    everything = perturbed(grid(3, 4, 5), (3, 4, 5), still_axes=(), generator=source)
    assert (everything - centred(grid(3, 4, 5), (3, 4, 5)))[:, 0].any()


def test_perturbed_rows_draw_for_themselves():
    rows = grid(2, 2).expand(3, 4, 2)
    moved = perturbed(rows, 2, offset=1.0, generator=torch.Generator().manual_seed(0))
    assert len(moved.unique(dim=0)) == 3
    apart = perturbed(rows, 2, intensity=0.0, offset=1.0, generator=torch.Generator().manual_seed(0)) - centred(rows, 2)
    assert gap(apart, apart[:, :1].expand_as(apart)) < 1e-6, "one offset a row"
    assert perturbed(rows.double(), 2).dtype == torch.float64


def test_augmented_leaves_tokens_without_a_place():
    counted = with_prefix(signed(grid(4, 4), 4), 3)
    changed = augmented(counted, shift=0.5, jitter=2.0, rescale=2.0, generator=torch.Generator().manual_seed(0))
    assert torch.equal(changed[:3], counted[:3])
    assert (changed[3:] != counted[3:]).all()
    assert torch.equal(augmented(counted), counted)
    assert augmented(counted.double(), rescale=2.0).dtype == torch.float64
