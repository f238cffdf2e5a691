"""LongRoPE's and LongRoPE2's recipes on a small model: rows, mixed windows against losses made by hand, resumption."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from examples.long_context.progressive import train
from examples.long_context.tuning import (
    Recipe,
    Row,
    check_documents_masked,
    draw_rows,
    draw_short_rows,
    draw_step,
    row_loss,
)
from torch import Tensor
from transformers import AutoModelForCausalLM

from posenc.evaluation.likelihood import token_losses
from posenc.hf.extend.folder import write_folder
from posenc.hf.modeling.export import byte_tokenizer
from tests.hf.extend.extended import FEW, saved, small, text
from tests.hf.extend.test_longrope2 import PAIRS, TARGET, TRAINED, model_of, searcher_of

ROOT = Path(__file__).parents[2]
MIXED = Recipe(steps=4, batch=2, warmup=1, lr=1e-3, save_every=1, short_share=0.5)
BRIEF: dict[str, Any] = {"tokenizer": byte_tokenizer(), "sizes": FEW, "pieces": 1, "progress": lambda line: None}


def documents_of(row: Row, number: int) -> list[Tensor]:
    """The documents of a row: they begin where positions are 0."""
    starts = [*(row.positions[number] == 0).nonzero().flatten().tolist(), row.tokens.shape[1]]
    return [row.tokens[number, a:b] for a, b in pairwise(starts)]


def test_short_rows_are_documents_of_the_training_length() -> None:
    tokens = text(1600)
    row = draw_short_rows(tokens, MIXED, TARGET, TRAINED, step=3)
    assert row.tokens.shape == row.positions.shape == row.scored.shape == (2, TARGET)
    stream = tokens.tolist()
    for number in range(2):
        documents = documents_of(row, number)
        assert [len(document) for document in documents] == [TRAINED, TARGET - TRAINED]
        for document in documents:
            piece = document.tolist()
            assert any(stream[at : at + len(piece)] == piece for at in range(len(stream)))
    assert int(row.positions.max()) < TRAINED
    assert torch.equal(row.scored, row.positions > 0)
    again = draw_short_rows(tokens, MIXED, TARGET, TRAINED, step=3)
    assert torch.equal(again.tokens, row.tokens)
    assert not torch.equal(draw_short_rows(tokens, MIXED, TARGET, TRAINED, step=4).tokens, row.tokens)


@pytest.mark.parametrize(("batch", "share", "steps"), [(1, 0.3, 10), (4, 0.3, 5), (3, 0.5, 4), (2, 0.25, 8)])
def test_the_share_of_short_rows(batch: int, share: float, steps: int) -> None:
    recipe = replace(MIXED, batch=batch, short_share=share)
    short = rows = 0
    for step in range(steps):
        parts = draw_step(text(1600), recipe, TARGET, step, original_length=TRAINED)
        short += sum(len(part.tokens) for part in parts if part.packed)
        rows += sum(len(part.tokens) for part in parts)
    assert (short, rows) == (round(batch * share * steps), batch * steps)


def test_without_a_share_rows_are_as_before() -> None:
    (row,) = draw_step(text(1600), replace(MIXED, short_share=0.0), TARGET, 2)
    assert torch.equal(row.tokens, draw_rows(text(1600), replace(MIXED, short_share=0.0), TARGET, 2).tokens)
    assert not row.packed


def rotated(factors: list[float]) -> Any:
    """A model whose frequencies are divided by these factors at every length, set by hand."""
    model = model_of()
    for module in model.modules():
        if hasattr(module, "inv_freq"):
            module.inv_freq = module.inv_freq / torch.tensor(factors)
    return model


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_each_kind_of_window_has_its_own_factors(implementation: str) -> None:
    """Short windows: each document alone in the original model; long ones: a model with the long factors."""
    long_factors = [1.5 * 1.04**j for j in range(PAIRS)]
    model = model_of()
    model.set_attn_implementation(implementation)
    searcher = searcher_of(model)
    searcher.rotations.rebuild(searcher.config((1.0,) * PAIRS, long_factors))
    short, long = draw_step(text(1600), MIXED, TARGET, 0, original_length=TRAINED)
    assert (short.packed, long.packed) == (True, False)

    original, scaled = model_of(), rotated(long_factors)
    losses = torch.cat([token_losses(original, d, len(d) - 1) for d in documents_of(short, 0)])
    assert len(losses) == int(short.scored.sum())
    with torch.no_grad():
        assert float(row_loss(model, short)) == pytest.approx(float(losses.mean()), abs=2e-5)
        long_loss = token_losses(scaled, long.tokens[0], TARGET - 1).mean()
        assert float(row_loss(model, long)) == pytest.approx(float(long_loss), abs=2e-5)
        # The other factors, or a document that attends to the one before, would give other losses.
        assert abs(float(token_losses(original, long.tokens[0], TARGET - 1).mean() - long_loss)) > 1e-3
        assert abs(float(row_loss(model, short._replace(packed=False)) - losses.mean())) > 1e-3


def test_a_step_is_the_weighted_mean_of_its_windows(tmp_path: Path) -> None:
    """One step of the training moves the weights along the gradient of the mixed loss, made by hand."""
    recipe = replace(MIXED, batch=4, short_share=0.25, steps=1, warmup=0)
    done = train(model_of(), text(1600), TARGET, recipe=recipe, work=tmp_path, **BRIEF)
    block = done.model.config.rope_parameters
    model = model_of()
    searcher = searcher_of(model)
    searcher.rotations.rebuild(searcher.config((1.0,) * PAIRS, block["long_factor"]))
    short, long = draw_step(text(1600), recipe, TARGET, 0, original_length=TRAINED)
    assert (len(short.tokens), len(long.tokens)) == (1, 3)
    model.train()
    (0.25 * row_loss(model, short) + 0.75 * row_loss(model, long)).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.lr, betas=(0.9, 0.95), weight_decay=0.0)
    optimizer.step()
    expected, moved = dict(model.named_parameters()), 0.0
    for name, weight in done.model.named_parameters():
        torch.testing.assert_close(weight, expected[name], atol=1e-5, rtol=0)
        moved += float((weight - dict(model_of().named_parameters())[name]).detach().abs().sum())
    assert moved > 0


def test_the_trained_folder_keeps_the_original_rotation_for_short_texts(tmp_path: Path) -> None:
    lines: list[str] = []
    done = train(model_of(), text(1600), TARGET, recipe=MIXED, work=tmp_path, **{**BRIEF, "progress": lines.append})
    (tmp_path / "work").mkdir()
    write_folder(tmp_path / "out", done.model, None, length=TARGET, original_length=TRAINED, work=tmp_path / "work")
    reopened = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    assert reopened.config.rope_parameters["short_factor"] == [1.0] * PAIRS
    assert reopened.config.rope_parameters["attention_factor"] == 1.0
    original = model_of()
    original.load_state_dict(reopened.state_dict())  # the trained weights under the rotation of before
    tokens = text(1600)[None]
    with torch.no_grad():
        torch.testing.assert_close(
            reopened(tokens[:, :TRAINED]).logits, original(tokens[:, :TRAINED]).logits, atol=1e-5, rtol=0
        )
        torch.testing.assert_close(
            reopened(tokens[:, :TARGET]).logits, done.model(tokens[:, :TARGET]).logits, atol=1e-5, rtol=0
        )
    assert any(line.startswith("critical pair") for line in lines)
    assert (original.lm_head.weight - model_of().lm_head.weight).abs().max() > 0


@pytest.mark.parametrize("recipe", [replace(MIXED, batch=1, steps=5), replace(MIXED, short_share=0.0, tokens=40)])
def test_a_stopped_training_ends_as_one_left_alone(recipe: Recipe, tmp_path: Path) -> None:
    def run(name: str, stop: str) -> Any:
        def tell(line: str) -> None:
            if stop and line.startswith(stop):
                raise KeyboardInterrupt

        (tmp_path / name).mkdir(exist_ok=True)
        options = {**BRIEF, "progress": tell}
        return train(model_of(), text(1600), TARGET, recipe=recipe, work=tmp_path / name, **options).model

    uninterrupted = run("whole", "")
    for stop in ("middle length, generation 0" if not recipe.short_share else "generation 0", "step 2 "):
        with pytest.raises(KeyboardInterrupt):
            run("parts", stop)
    assert (tmp_path / "parts" / "tuned.pt").exists()
    parts = run("parts", "")
    assert uninterrupted.config.rope_parameters == parts.config.rope_parameters
    for name, weight in uninterrupted.state_dict().items():
        assert torch.equal(weight, parts.state_dict()[name]), name


@pytest.mark.parametrize(
    ("recipe", "options", "words"),
    [
        (MIXED, {"intermediate": 400}, "intermediate must be the target, 450"),
        (replace(MIXED, tokens=TRAINED), {}, "rows must have more than the 300 tokens"),
        (replace(MIXED, short_share=0.0), {"intermediate": TARGET + 1}, "intermediate must lie"),
        (replace(MIXED, short_share=0.0), {"original_length": TARGET}, "no layer|intermediate must lie"),
    ],
)
def test_refusals(tmp_path: Path, recipe: Recipe, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        train(model_of(), text(1600), TARGET, recipe=recipe, work=tmp_path, **{**BRIEF, **options})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("share", [-0.1, 1.0, math.nan, True])
def test_the_share_is_checked(share: Any) -> None:
    with pytest.raises(ValueError, match="short_share must be"):
        Recipe(short_share=share)


def test_a_model_that_does_not_mask_documents_is_refused() -> None:
    model = model_of()
    check_documents_masked(model)
    forward = model.forward

    def unmasked(**inputs: Any) -> Any:
        return forward(**{**inputs, "attention_mask": torch.ones_like(inputs["input_ids"])})

    model.forward = unmasked
    with pytest.raises(ValueError, match="does not mask packed documents"):
        check_documents_masked(model)


def test_skipped_positions_are_one_text() -> None:
    row = draw_rows(text(), Recipe(tokens=24, batch=3), 200, step=5)
    assert (row.positions.diff(dim=-1) > 1).any()
    assert torch.equal(row.scored[:, 1:], (row.tokens[:, 1:] >= 0) & row.scored[:, 1:])
    first = row.positions.diff(dim=-1).argmax(-1) + 1
    model = small()
    later = torch.arange(24) > first[:, None]
    seen = Row(row.tokens, row.positions, row.scored & later)
    other = row.tokens.clone()
    other[:, 0] = 255 - other[:, 0]
    with torch.no_grad():  # the second chunk sees the first one
        assert row_loss(model, seen) != row_loss(model, seen._replace(tokens=other))


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["progressive", "drope"])
def test_the_commands(recipe: str, tmp_path: Path) -> None:
    saved(tmp_path / "model", model_of())
    (tmp_path / "text").write_text("the position of a token, and its distance from another. " * 40)
    command = [sys.executable, "-m", f"examples.long_context.{recipe}", str(tmp_path / "model"), str(tmp_path / "new")]
    command += ["--length", str(TARGET), "--steps", "2", "--text", str(tmp_path / "text"), "--pieces", "1"]
    command += ["--short-share", "0.3", "--search", "4", "--generations", "1"] if recipe == "progressive" else []
    subprocess.run(command, check=True, cwd=ROOT)
    block = json.loads((tmp_path / "new" / "config.json").read_text())["rope_parameters"]
    assert block["rope_type"] == "longrope"
    assert (tmp_path / "new" / "SERVING.md").exists()
    assert not (tmp_path / "new.work").exists()
