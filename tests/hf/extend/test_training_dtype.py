"""What training does to weights of 16 bits, and to a model whose loss is not finite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from posenc.evaluation import token_losses
from posenc.hf.extend import Recipe, extend
from tests.hf.extend.extended import TARGET, TRAINED, request, saved, small

GENTLE = Recipe(steps=6, warmup=1, lr=2e-5, save_every=2)


def trained(folder: Path, dtype: torch.dtype, name: str = "new", **options: Any) -> tuple[Any, dict[str, torch.Tensor]]:
    """The extended model of a folder in one dtype, and the weights before."""
    model = small().to(dtype)
    before = {name: weight.detach().float() for name, weight in model.named_parameters()}
    if not (folder / "model").exists():
        saved(folder / "model", model)
    done = extend(folder / "model", TARGET, "drope", out=folder / name, **request(recipe=GENTLE, **options))
    return done.model, before


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit_weights_are_trained_as_float32_ones_are(dtype: torch.dtype, tmp_path: Path) -> None:
    model, before = trained(tmp_path, dtype)
    assert {weight.dtype for weight in model.parameters()} == {dtype}
    assert all(weight.isfinite().all() for weight in model.parameters())
    wide = small()
    wide.load_state_dict(before)
    reference: Any = extend(wide, TARGET, "drope", out=tmp_path / "wide", **request(recipe=GENTLE)).model
    for name, weight in reference.named_parameters():
        assert torch.equal(model.get_parameter(name), weight.to(dtype))


def test_a_stopped_training_of_16_bit_weights_ends_with_the_same_ones(tmp_path: Path) -> None:
    def stop(line: str) -> None:
        if line.startswith("step 4"):
            raise KeyboardInterrupt

    uninterrupted, _ = trained(tmp_path, torch.bfloat16)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path, torch.bfloat16, "stopped", progress=stop)
    resumed, _ = trained(tmp_path, torch.bfloat16, "stopped")
    for name, weight in uninterrupted.named_parameters():
        assert torch.equal(resumed.get_parameter(name), weight)


def test_a_loss_that_is_not_finite_is_an_error_with_its_cause(tmp_path: Path) -> None:
    model = small()
    with pytest.raises(ValueError, match=r"lr: the loss of step \d is"):
        extend(model, TARGET, "drope", out=tmp_path / "new", **request(recipe=Recipe(steps=4, warmup=0, lr=1e30)))
    model = small()
    model.model.embed_tokens.weight.data[7] = torch.nan
    with pytest.raises(ValueError, match="its loss at 3 tokens is not finite"):
        token_losses(model, torch.tensor([7, 8, 9]), 1)


@pytest.mark.parametrize(("method", "tokens"), [("drope", TRAINED), ("progressive", 96)])
def test_a_lack_of_memory_in_training_is_one_line(
    method: str, tokens: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_memory(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    monkeypatch.setattr("posenc.hf.extend.tuning.row_loss", out_of_memory)
    with pytest.raises(ValueError, match=f"training on rows of {tokens} tokens: use fewer --tokens"):
        extend(small(), TARGET, method, out=tmp_path / "new", **request())
