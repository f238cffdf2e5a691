"""Retrieval tasks in the manner of RULER: facts hidden in a document, asked for at its end, answered greedily.

    niah_single          one fact is hidden, and asked for
    niah_multikey        four facts about different keys; one is asked for
    niah_multivalue      four facts about one key; all are asked for
    variable_tracking    a chain of five assignments, the first of a number; all its variables are asked for

An answer is right where all expected strings occur in the decoded text, and its score is the share of them that do, as
in RULER. A prompt has exactly the wanted number of tokens, those of the answer included. Facts stand after sentences or
lines; the one that is asked for (the first assignment of a chain) lies at a given depth, the others anywhere.

Source: Hsieh et al., RULER: What's the Real Context Size of Your Long-Context Language Models?, arXiv 2404.06654,
section 3 and appendix B: tasks, numbers of facts and hops, seven-digit values, answer lengths (128 and 30 tokens), the
solved example before a chain.
Departs from the source: prompts have sentences of our own, so that scores do not compare with RULER's tables; the text
around is a real document, different in each prompt, where RULER repeats essays or a line of filler; the depth is
stratified instead of drawn.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args

import torch
from torch import Tensor

Kind = Literal["niah_single", "niah_multikey", "niah_multivalue", "variable_tracking"]
KINDS: tuple[Kind, ...] = get_args(Kind)
ANSWER_TOKENS: dict[Kind, int] = {
    "niah_single": 128, "niah_multikey": 128, "niah_multivalue": 128, "variable_tracking": 30,
}  # fmt: skip
FACTS = 4  # of niah_multikey and niah_multivalue
HOPS = 4  # assignments of a chain after its first
_DIGITS = 7
_ADJECTIVES = (
    "amber", "brisk", "calm", "dusty", "eager", "faint", "gentle", "hollow", "icy", "jolly", "keen", "lively",
    "mellow", "narrow", "olive", "pale", "quiet", "rapid", "silent", "tidy", "upright", "vivid", "warm", "young",
    "bitter", "clever", "damp", "early", "fresh", "grand",
)  # fmt: skip
_NOUNS = (
    "anchor", "basket", "candle", "desert", "engine", "feather", "garden", "harbor", "island", "jacket", "kettle",
    "ladder", "meadow", "needle", "orchard", "pencil", "quarry", "ribbon", "saddle", "temple", "umbrella", "valley",
    "window", "yard", "bridge", "canyon", "drum", "ember", "fossil", "glacier",
)  # fmt: skip


@dataclass(frozen=True)
class Task:
    """What is hidden in a document and asked for, as text.

    Attributes:
        kind: of the task.
        before: what stands before the document.
        facts: in the order in which they are hidden; the first one's depth is given.
        ordered: whether they must stand in this order.
        question: what stands after the document; the answer follows it.
        expected: strings that the answer must contain.
    """

    kind: Kind
    before: str
    facts: tuple[str, ...]
    ordered: bool
    question: str
    expected: tuple[str, ...]


@dataclass(frozen=True)
class Prompt:
    """A task in a document, as tokens.

    Attributes:
        task: the texts.
        before, question: tokens around the text.
        text: tokens of the document with its facts.
        longest_fact: tokens.
    """

    task: Task
    before: tuple[int, ...]
    text: Tensor
    question: tuple[int, ...]
    longest_fact: int

    @property
    def tokens(self) -> Tensor:
        """The whole prompt, ``(tokens,)``."""
        return self.window(self.text)

    def window(self, text: Tensor) -> Tensor:
        """The prompt around another text."""
        return torch.cat([torch.tensor(self.before, dtype=torch.long), text, torch.tensor(self.question)])


def draw_task(kind: Kind, seed: int) -> Task:
    """The task number ``seed`` of a kind; the same on every machine."""
    rng = random.Random(f"{kind} {seed}")
    if kind == "variable_tracking":
        return _chain(rng)
    keys = [f"{a} {n}" for a, n in zip(rng.sample(_ADJECTIVES, FACTS), rng.sample(_NOUNS, FACTS), strict=True)]
    values = [str(number) for number in rng.sample(range(10 ** (_DIGITS - 1), 10**_DIGITS), FACTS)]
    count = 1 if kind == "niah_single" else FACTS
    keys = [keys[0]] * count if kind == "niah_multivalue" else keys[:count]
    facts = tuple(f"The secret number of the {key} is {value}." for key, value in zip(keys, values, strict=False))
    several = kind == "niah_multivalue"
    before = (
        "Secret numbers are hidden in the following text. Remember each of them, because you will be asked for "
        f"{'some' if several else 'one'} of them at the end.\n\n"
    )
    subject = f"all secret numbers of the {keys[0]}" if several else f"the secret number of the {keys[0]}"
    verb = "are" if several else "is"
    question = f"\n\nWhat {verb} {subject} in the text above? In the text above, {subject} {verb}"
    return Task(kind, before, facts, False, question, tuple(values[: FACTS if several else 1]))


def _chain(rng: random.Random) -> Task:
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    names = ["".join(rng.choices(letters, k=5)) for _ in range(2 * (HOPS + 1))]
    example, chain = names[: HOPS + 1], names[HOPS + 1 :]
    numbers = [str(number) for number in rng.sample(range(10_000, 100_000), 2)]

    def assignments(variables: Sequence[str], number: str) -> list[str]:
        sources = [number, *(f"VAR {name}" for name in variables)]
        return [f"VAR {name} = {source}." for name, source in zip(variables, sources, strict=False)]

    def question(variables: Sequence[str], number: str) -> str:
        return (
            f"\n\nWhich variables hold the value {number}, directly or through other variables? These "
            f"{len(variables)} variables hold the value {number}:"
        )

    solved = " ".join(assignments(example, numbers[0])) + question(example, numbers[0]) + " " + ", ".join(example)
    before = (
        "Values are assigned to variables, and variables to other variables, within a text. Follow the chain.\n\n"
        f"{solved}.\n\n"
    )
    facts = tuple(assignments(chain, numbers[1]))
    return Task("variable_tracking", before, facts, True, question(chain, numbers[1]), tuple(chain))


def build_prompt(
    task: Task,
    document: Sequence[int],
    length: int,
    depth: float,
    *,
    encode: Callable[[str], list[int]],
    ends: Callable[[int], bool],
    seed: int,
    prefix: Sequence[int] = (),
    answer_tokens: int | None = None,
) -> Prompt:
    """Hide a task's facts in a document.

    Args:
        task: of `draw_task`.
        document: tokens; the first ones are used.
        length: tokens of the prompt and its answer.
        depth: of the first fact, 0 (at the beginning of the document) to 1.
        encode: a text as tokens, without special tokens.
        ends: whether a sentence or a line ends with a token.
        seed: of the other facts' places.
        prefix: special tokens that every text of this model begins with.
        answer_tokens: of the answer; None: as many as RULER has.

    Raises:
        ValueError: for a document that is too short, or a length without room for the facts.
    """
    answer = ANSWER_TOKENS[task.kind] if answer_tokens is None else answer_tokens
    facts = [encode(f" {fact} ") for fact in task.facts]
    before, question = [*prefix, *encode(task.before)], encode(task.question)
    room = length - answer - len(before) - len(question) - sum(map(len, facts))
    if room < 16 * len(facts):
        raise ValueError(f"lengths: {length:,} tokens have no room for {task.kind}, whose facts and answer need more")
    if len(document) < room:
        raise ValueError(f"document: {room:,} tokens are needed for {length:,}, got {len(document):,}")
    text = list(document[:room])
    borders = [0, *(n + 1 for n, token in enumerate(text) if ends(token)), room]
    rng = random.Random(f"places {task.kind} {seed}")
    first = depth * room
    depths = [rng.uniform(first if task.ordered else 0, room) for _ in facts[1:]]
    targets = [first, *(sorted(depths) if task.ordered else depths)]
    places = [min(borders, key=lambda border, at=place: abs(border - at)) for place in targets]  # type: ignore[misc]
    parts, last = list[int](), 0
    for place, _, fact in sorted((place, n, fact) for n, (place, fact) in enumerate(zip(places, facts, strict=True))):
        parts += [*text[last:place], *fact]
        last = place
    tokens = torch.tensor([*parts, *text[last:]], dtype=torch.long)
    return Prompt(task, tuple(before), tokens, tuple(question), max(map(len, facts)))


def score(answer: str, expected: Sequence[str]) -> float:
    """The share of the expected strings that occur in an answer, without regard to case."""
    return sum(text.lower() in answer.lower() for text in expected) / len(expected)


def spans(tokens: int, window: int, overlap: int) -> list[tuple[int, int]]:
    """Windows that cover a text, of equal size and evenly spread, each sharing at least ``overlap`` tokens with the
    next, so that no fact is cut in two.

    Raises:
        ValueError: for a window that is not longer than the overlap.
    """
    if window <= overlap:
        raise ValueError(f"chunks: windows of {window:,} tokens cannot share {overlap:,}")
    if tokens <= window:
        return [(0, tokens)]
    count = math.ceil((tokens - overlap) / (window - overlap))
    starts = [round(n * (tokens - window) / (count - 1)) for n in range(count)]
    return [(start, start + window) for start in starts]


def encode(tokenizer: Any, text: str) -> list[int]:
    """The tokens of a text, without special ones."""
    ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return ids


@cache
def ends_sentence(tokenizer: Any, token: int) -> bool:
    """Whether a sentence or a line ends with a token."""
    return str(tokenizer.decode([token])).rstrip(" ").endswith((".", "!", "?", "\n"))


def special_prefix(tokenizer: Any) -> list[int]:
    """The special tokens that a tokenizer puts before every text."""
    begin = getattr(tokenizer, "bos_token_id", None)
    ids: list[int] = tokenizer("", add_special_tokens=True)["input_ids"]
    return [token for token in ids if token == begin]
