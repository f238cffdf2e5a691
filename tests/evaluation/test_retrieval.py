"""Prompts of retrieval tasks: exact lengths, facts where they belong, answers that count."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from posenc.evaluation.retrieval import ANSWER_TOKENS, KINDS, Kind, build_prompt, draw_task, score, spans

DOCUMENT = [ord(c) for c in "A sentence of some words. Another one, with more of them!\n" * 200]


def encode(text: str) -> list[int]:
    return list(text.encode())


def prompt_of(kind: Kind, seed: int = 3, length: int = 4000, depth: float = 0.5, **options: Any) -> Any:
    ends = options.pop("ends", lambda token: chr(token) in ".!\n")
    return build_prompt(draw_task(kind, seed), DOCUMENT, length, depth, encode=encode, ends=ends, seed=seed, **options)


def text_of(tokens: torch.Tensor) -> str:
    return bytes(tokens.tolist()).decode()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("depth", [0.0, 0.3, 0.9, 1.0])
def test_a_prompt_and_its_answer_have_the_wanted_length(kind: Kind, depth: float) -> None:
    prompt = prompt_of(kind, depth=depth)
    assert len(prompt.tokens) + ANSWER_TOKENS[kind] == 4000
    text = text_of(prompt.text)
    assert all(fact in text for fact in prompt.task.facts)
    assert all(answer in text for answer in prompt.task.expected)
    place = text.index(prompt.task.facts[0]) / len(text)
    assert abs(place - depth) < 0.05 + (len(prompt.task.facts) - 1) * 0.02


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_are_drawn_by_their_number_alone(kind: Kind) -> None:
    assert draw_task(kind, 7) == draw_task(kind, 7)
    assert draw_task(kind, 7) != draw_task(kind, 8)
    assert torch.equal(prompt_of(kind).tokens, prompt_of(kind).tokens)


def test_what_is_asked_for_cannot_be_guessed_from_the_rest() -> None:
    task = draw_task("niah_multikey", 0)
    rest = " ".join((task.before, task.question, *task.facts[1:]))
    assert task.expected[0] not in rest
    assert len({fact.split(" is ")[0] for fact in task.facts}) == 4
    several = draw_task("niah_multivalue", 0)
    assert len(set(several.expected)) == 4
    assert len({fact.split(" is ")[0] for fact in several.facts}) == 1


def test_a_chain_follows_its_order_and_only_one_variable_has_the_number() -> None:
    prompt = prompt_of("variable_tracking", depth=0.1)
    text, facts = text_of(prompt.text), prompt.task.facts
    places = [text.index(fact) for fact in facts]
    assert places == sorted(places)
    number = facts[0].split(" = ")[1].rstrip(".")
    assert sum(number in fact for fact in facts) == 1
    for before, fact in zip(prompt.task.expected, facts[1:], strict=False):
        assert fact.endswith(f"= VAR {before}.")


def test_facts_stand_after_sentences() -> None:
    prompt = prompt_of("niah_multikey", depth=0.37)
    text = text_of(prompt.text)
    for fact in prompt.task.facts:
        before = text[: text.index(f" {fact} ")]
        assert not before or before[-1] in ".!\n "


def test_a_document_without_sentences_holds_its_facts_at_the_ends() -> None:
    prompt = prompt_of("niah_single", depth=0.9, ends=lambda token: False)
    assert text_of(prompt.text).rstrip().endswith(prompt.task.facts[0])


def test_prefix_and_other_answer_lengths() -> None:
    prompt = prompt_of("niah_single", prefix=[1, 2], answer_tokens=10)
    assert prompt.tokens[:2].tolist() == [1, 2]
    assert len(prompt.tokens) == 3990


def test_too_short_a_document_or_length_is_refused() -> None:
    with pytest.raises(ValueError, match="no room for niah_multikey"):
        prompt_of("niah_multikey", length=500)
    with pytest.raises(ValueError, match="are needed for 50,000"):
        prompt_of("niah_single", length=50_000)


def test_scores_are_shares_of_expected_strings() -> None:
    assert score("It is 123 and abc.", ["123", "ABC"]) == 1
    assert score("It is 12", ["123"]) == 0
    assert score("1 and 3", ["1", "2", "3", "4"]) == 0.5


@pytest.mark.parametrize("tokens", [1, 99, 100, 101, 250, 1000])
def test_windows_cover_a_text_and_share_enough(tokens: int) -> None:
    covered = spans(tokens, 100, 20)
    assert covered[0][0] == 0
    assert covered[-1][1] == tokens
    assert all(end - start == min(tokens, 100) for start, end in covered)
    assert all(a[1] - b[0] >= 20 for a, b in itertools.pairwise(covered))
    with pytest.raises(ValueError, match="cannot share"):
        spans(tokens, 20, 20)
