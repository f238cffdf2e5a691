"""Swin's table: resizing goes axis by axis."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from posenc.bias import SwinBias
from tests.samples import gap


def test_resizing_goes_axis_by_axis():
    swin = SwinBias(2, window=(3, 4)).double()
    table = swin.table.T.view(1, 2, 5, 7)
    for mode in ("bicubic", "bilinear"):
        expected = F.interpolate(table, size=(9, 3), mode=mode).flatten(2)[0].T
        assert gap(swin.resized((5, 2), mode=mode).table, expected) < 1e-12
        assert gap(swin.resized((3, 4), mode=mode).table, swin.table) == 0
    line = SwinBias(2, window=(4,)).bfloat16()
    assert line.resized((9,)).table.shape == (17, 2)
    assert line.resized((9,)).table.dtype == torch.bfloat16
    video = SwinBias(2, window=(2, 3, 4))
    with torch.no_grad():
        video.table.fill_(0.5)
    assert gap(video.resized((4, 5, 3)).table, torch.full((7 * 9 * 5, 2), 0.5)) < 1e-6
