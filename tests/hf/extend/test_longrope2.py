"""LongRoPE2 on a small model: needles, the search and its folder, and mixed windows against losses made by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForCausalLM

import posenc_cli
from posenc.evaluation import needle_documents
from posenc.evaluation.likelihood import token_losses, windows_of
from posenc.hf import read_rope
from posenc.hf.extend import Extension, Recipe, extend
from posenc.hf.extend.rotary_modules import RotaryModules
from posenc.hf.extend.search import FactorSearch
from posenc.hf.extend.tuning import Row, check_documents_masked, draw_rows, draw_short_rows, draw_step, row_loss
from posenc.hf.modeling.export import byte_tokenizer
from posenc.search import critical_pairs
from tests.hf.extend.extended import FEW, saved, small, text

TRAINED, TARGET = 300, 450  # of bytes: the sentences around a needle take 228
PAIRS, BASE = 8, 10_000.0
MIXED = Recipe(steps=4, batch=2, warmup=1, lr=1e-3, save_every=1, short_share=0.5)


def model_of(name: str = "llama", **changes: Any) -> Any:
    model = small(name, **changes)
    model.config.max_position_embeddings = TRAINED
    return model


def searcher_of(model: Any) -> FactorSearch:
    """As the extension makes one."""
    return FactorSearch(
        RotaryModules(model), original_length=TRAINED, length=TARGET, last=1, settings=FEW, seed=0, gain=1.0
    )


def arguments(**changes: Any) -> dict[str, Any]:
    return {
        "text": text(1600), "tokenizer": byte_tokenizer(), "windows": 2, "last": 8, "lengths": [TARGET], "search": FEW,
        "pieces": 1, **changes,
    }  # fmt: skip


# Needles


def test_a_needle_document_is_what_the_paper_describes() -> None:
    tokenizer, numbers = byte_tokenizer(), set()
    for document in needle_documents(text(1600), tokenizer, TARGET, 3):
        assert document.tokens.shape == (TARGET,)
        number = tokenizer.decode(document.tokens[-document.last :]).strip()
        content = tokenizer.decode(document.tokens)
        assert len(number) == 7
        assert number.isdecimal()
        assert content.count(number) == 2
        assert content.index(number) < 200  # at the beginning, behind the instruction
        assert content[: -document.last].endswith(" is")
        numbers.add(number)
    assert len(numbers) == 3


def test_needles_need_a_tokenizer_and_room() -> None:
    with pytest.raises(ValueError, match="comes without a tokenizer"):
        needle_documents(text(1600), None, TARGET, 1)
    with pytest.raises(ValueError, match="have no room"):
        needle_documents(text(1600), byte_tokenizer(), 200, 1)


def test_only_the_number_is_scored() -> None:
    """The objective of the search equals a cross-entropy of the number's tokens, under the candidate's factors."""
    model, document = model_of(), needle_documents(text(1600), byte_tokenizer(), TARGET, 1)[0]
    factors = [1.5**j for j in range(PAIRS)]
    searcher = searcher_of(model)
    actual = searcher._mean_loss(factors, [document])
    searcher.rotations.rebuild(searcher.config(factors, factors))
    with torch.no_grad():
        logits = model(document.tokens[None]).logits[0]
    last = slice(TARGET - document.last - 1, TARGET - 1)
    expected = functional.cross_entropy(logits[last], document.tokens[-document.last :])
    assert actual == pytest.approx(float(expected), abs=1e-5)


# The search


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Extension, Path]:
    out = tmp_path_factory.mktemp("longrope2") / "out"
    return extend(model_of(), TARGET, "longrope2", out=out, **arguments()), out


def test_the_folder_opens_in_plain_transformers_and_short_texts_are_those_of_before(searched) -> None:
    extension, out = searched
    reopened = AutoModelForCausalLM.from_pretrained(out).eval()
    short, long = text(1600)[None, :TRAINED], text(1600)[None, :TARGET]
    with torch.no_grad():
        torch.testing.assert_close(reopened(short).logits, model_of()(short).logits, atol=1e-5, rtol=0)
        torch.testing.assert_close(reopened(long).logits, extension.model(long).logits, atol=1e-5, rtol=0)
        assert (reopened(long).logits - model_of()(long).logits).abs().max() > 1e-3


def test_the_block_obeys_the_paper(searched) -> None:
    extension, out = searched
    block = json.loads((out / "config.json").read_text())["rope_parameters"]
    assert block["rope_type"] == "longrope"
    assert block["attention_factor"] == 1.0
    assert block["short_factor"] == [1.0] * PAIRS
    assert block["original_max_position_embeddings"] == TRAINED
    factors, factor = block["long_factor"], TARGET / TRAINED
    assert all(a <= b for a, b in pairwise(factors))
    first, last = critical_pairs(PAIRS, BASE, TRAINED)
    critical = next(r for r in range(first, last + 1) if factors[r] >= factor - 1e-9)
    assert factors[:critical] == pytest.approx([factors[critical] ** (j / critical) for j in range(critical)])
    assert factors[-1] <= 2 * factor
    assert extension.method == "longrope2"
    assert read_rope(out).layers


def test_the_search_takes_the_lowest_needle_loss(tmp_path: Path) -> None:
    searcher = searcher_of(model_of())
    documents, lines = needle_documents(text(1600), byte_tokenizer(), TARGET, 2), list[str]()
    factors = searcher.search_by_needles(documents, journal=tmp_path / "journal.jsonl", progress=lines.append)
    journal = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()[1:]]
    assert len(journal) == FEW.population + 2
    best = min(journal, key=lambda record: record["fitness"])
    assert tuple(best["factors"]) == factors
    assert searcher._mean_loss(factors, documents) == pytest.approx(best["fitness"], abs=1e-6)
    assert best["fitness"] < max(record["fitness"] for record in journal)
    assert lines[-1].startswith("critical pair")


def test_a_stopped_search_goes_on(tmp_path: Path) -> None:
    def stop(line: str) -> None:
        if line.startswith("generation 0"):
            raise KeyboardInterrupt

    uninterrupted = extend(model_of(), TARGET, "longrope2", out=tmp_path / "whole", **arguments())
    with pytest.raises(KeyboardInterrupt):
        extend(model_of(), TARGET, "longrope2", out=tmp_path / "parts", progress=stop, **arguments())
    assert (tmp_path / "parts.work" / "search.jsonl").read_text().count("\n") == 1 + FEW.population
    parts = extend(model_of(), TARGET, "longrope2", out=tmp_path / "parts", **arguments())
    assert uninterrupted.config == parts.config


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tokenizer": None}, "comes without a tokenizer"),
        ({"recipe": MIXED}, "short_share mixes the windows of method progressive"),
    ],
)
def test_refusals_of_the_search(options, words) -> None:
    with pytest.raises(ValueError, match=words):
        extend(model_of(), TARGET, "longrope2", **arguments(**options))


# Mixed windows


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
    done = extend(model_of(), TARGET, "progressive", out=tmp_path / "out", **arguments(recipe=recipe))
    block = done.model.config.rope_parameters
    model = model_of()
    searcher = searcher_of(model)
    searcher.rotations.rebuild(searcher.config((1.0,) * PAIRS, block["long_factor"]))
    before = windows_of(text(1600), TARGET, 2, 8).before  # tokens that no window scores
    short, long = draw_step(before, recipe, TARGET, 0, original_length=TRAINED)
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
    done = extend(
        model_of(), TARGET, "progressive", out=tmp_path / "out", progress=lines.append, **arguments(recipe=MIXED)
    )  # fmt: skip
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


def test_a_stopped_training_ends_as_one_left_alone(tmp_path: Path) -> None:
    def stop(line: str) -> None:
        if line.startswith("step 2 "):
            raise KeyboardInterrupt

    options = arguments(recipe=replace(MIXED, batch=1, steps=5))
    uninterrupted = extend(model_of(), TARGET, "progressive", out=tmp_path / "whole", **options)
    with pytest.raises(KeyboardInterrupt):
        extend(model_of(), TARGET, "progressive", out=tmp_path / "parts", progress=stop, **options)
    assert (tmp_path / "parts.work" / "tuned.pt").exists()
    parts = extend(model_of(), TARGET, "progressive", out=tmp_path / "parts", **options)
    assert uninterrupted.config == parts.config
    for name, weight in uninterrupted.model.state_dict().items():
        assert torch.equal(weight, parts.model.state_dict()[name]), name


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        (replace(MIXED, intermediate=400), "intermediate must be the target, 450"),
        (replace(MIXED, tokens=TRAINED), "rows must have more than the 300 tokens"),
    ],
)
def test_refusals_of_mixed_windows(tmp_path: Path, recipe: Recipe, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        extend(model_of(), TARGET, "progressive", out=tmp_path / "out", **arguments(recipe=recipe))
    assert not (tmp_path / "out.work").exists()


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


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved(tmp_path / "model", model_of())
    (tmp_path / "text").write_text("the position of a token, and its distance from another. " * 40)
    command = ["extend", str(tmp_path / "model"), "--length", str(TARGET), "--text", str(tmp_path / "text")]
    command += ["--windows", "2", "--last", "8", "--lengths", str(TARGET), "--search", "4", "--generations", "1"]
    command += ["--pieces", "1"]
    assert posenc_cli.run([*command, "--method", "longrope2", "--out", str(tmp_path / "searched")]) == 0
    mixed = ["--method", "progressive", "--short-share", "0.3", "--steps", "2", "--out", str(tmp_path / "mixed")]
    assert posenc_cli.run([*command, *mixed]) == 0
    assert "longrope2" in capsys.readouterr().out
    for name in ("searched", "mixed"):
        block = json.loads((tmp_path / name / "config.json").read_text())["rope_parameters"]
        assert (block["rope_type"], block["attention_factor"]) == ("longrope", 1.0)
        assert posenc_cli.run(["doctor", str(tmp_path / name)]) in (0, 1)
        assert "longrope" in capsys.readouterr().out.lower()
