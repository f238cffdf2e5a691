"""LongRoPE2's search on a small model: needles, factors and the folder."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

from torch.nn import functional
from transformers import AutoModelForCausalLM

from posenc.evaluation import needle_documents
from posenc.evaluation.log import MeasurementLog
from posenc.hf import read_rope
from posenc.hf.attach.rotary_modules import RotaryModules
from posenc.hf.evaluate.methods import FactorSearch
from posenc.hf.extend import Extension, extend
from posenc.hf.modeling.export import byte_tokenizer
from posenc.search import critical_pairs
from tests.hf.extend.extended import FEW, small, text

TRAINED, TARGET = 300, 450  # of bytes: the sentences around a needle take 228
PAIRS, BASE = 8, 10_000.0


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
    log = MeasurementLog(tmp_path / "log.jsonl")
    factors = searcher.search_by_needles(documents, log=log, progress=lines.append)
    assert len(log.known) == FEW.population + 2
    best = min(log.known, key=lambda key: log.known[key])
    assert best.endswith(f"factors {list(factors)}")
    assert searcher._mean_loss(factors, documents) == pytest.approx(log.known[best], abs=1e-6)
    assert log.known[best] < max(log.known.values())
    assert lines[-1].startswith("critical pair")
    searcher._mean_loss = None  # type: ignore[assignment,method-assign]  # nothing is measured again
    assert searcher.search_by_needles(documents, log=MeasurementLog(tmp_path / "log.jsonl")) == factors


def test_a_stopped_search_goes_on(tmp_path: Path) -> None:
    def stop(line: str) -> None:
        if line.startswith("generation 0"):
            raise KeyboardInterrupt

    uninterrupted = extend(model_of(), TARGET, "longrope2", out=tmp_path / "whole", **arguments())
    with pytest.raises(KeyboardInterrupt):
        extend(model_of(), TARGET, "longrope2", out=tmp_path / "parts", progress=stop, **arguments())
    assert (tmp_path / "parts.work" / "readings.jsonl").read_text().count(", search ") == FEW.population
    parts = extend(model_of(), TARGET, "longrope2", out=tmp_path / "parts", **arguments())
    assert uninterrupted.config == parts.config
