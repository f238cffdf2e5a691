"""The page on vision transformers at another size: its blocks run as they stand, and the libraries' own rules agree."""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.reference
pytest.importorskip("transformers")
timm = pytest.importorskip("timm")

from posenc import LearnedGrid  # noqa: E402
from posenc.bias import BEiTBias, SwinBias  # noqa: E402
from tests.samples import gap  # noqa: E402
from tests.test_documentation import HOWTO, run_blocks  # noqa: E402


def test_the_page_runs_as_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    run_blocks(HOWTO / "vision-transformer-at-another-size.md", capsys)


@pytest.mark.parametrize("size", [(20, 16), (7, 9)])
def test_tables_are_resized_as_timm_does(size: tuple[int, int]) -> None:
    table = torch.randn(1, 197, 8)
    expected = timm.layers.resample_abs_pos_embed(table, list(size))
    assert gap(LearnedGrid.from_table(table).resized(size, antialias=True).table[None], expected) < 1e-5


@pytest.mark.parametrize("window", [(8, 8), (12, 10)])
def test_tables_of_differences_are_resized_as_timm_does(window: tuple[int, int]) -> None:
    rows = (2 * window[0] - 1) * (2 * window[1] - 1)
    for bias, more in ((SwinBias(2, window=(7, 7)), 0), (BEiTBias(2, window=(7, 7)), 3)):
        torch.nn.init.normal_(bias.table)
        expected = timm.layers.resize_rel_pos_bias_table(
            bias.table.detach(), new_window_size=window, new_bias_shape=(rows + more, 2)
        )
        assert gap(bias.resized(window, mode="geometric").table, expected) < 1e-4
