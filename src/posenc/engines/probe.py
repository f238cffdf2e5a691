"""Test from outside whether a running server applies its model's rope scaling: no weights, no second engine.

    loss of one passage     with n tokens of text before it, n growing: the loss of the same tokens stays about the same
                            while positions are right, and rises if a scaling was dropped and positions go beyond the
                            training length
    tokens that arrive      the server's own count: it stops growing if a prompt is truncated
    longest prompt          if a longer one is refused, the context is capped
    secret numbers          for servers without probabilities of prompts: numbers hidden at several depths, answered
                            greedily, scored by exact match

A rise of the loss shows that the served model is worse at these positions. It shows a dropped scaling only if the model
with its scaling is as good there as at shorter lengths: its authors report that, this probe cannot measure it.

Statistics: paired differences of the passage's tokens with Student's interval; tokens of one passage are not
independent, so that the intervals are too narrow for anything finer than the margins here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cache
from pydoc_data import topics
from typing import Any, Literal, NamedTuple

from posenc.arguments import check_whole
from posenc.engines.endpoint import BudgetError, Endpoint, RefusedError
from posenc.evaluation.retrieval import draw_task
from posenc.evaluation.statistics import Interval, mean_interval
from posenc.input_files import printable

Status = Literal["applied", "dropped", "inconclusive", "not measured"]
RISE, FLAT = 0.3, 0.15  # nats a token: a rise above the first is a failure, one below the second is none
PASSAGE, LOCAL = 1600, 1200  # characters that are scored, and that always stand before them
LONGEST = 2**20  # tokens
_SHORTEST = 512  # tokens before the passage
_DEPTHS = (0.1, 0.5, 0.9)
_FEWEST = 50  # tokens of the passage that are scored
_SHIFTED = 3.0  # nats by which the loss is lower by the row before where probabilities are one token off
_NAMED_LENGTH = re.compile(r"(?:context (?:length|size|window)|n_ctx)\D{0,24}(\d[\d,]*)", re.IGNORECASE)
_ANSWER = 24  # tokens, of a number of seven digits


@dataclass(frozen=True)
class Point:
    """What one length gave.

    Attributes:
        requested: tokens that the prompt should have, by the characters a token of the first answer.
        arrived: tokens that the server counted; None where it does not say.
        loss: of the passage's tokens, nats; None without probabilities.
        rise: of the same tokens over the shortest length, nats; None at the shortest.
        numbers_found: secret numbers in the answers, of `hidden`; None where none were hidden.
        refused: what the server said instead.
    """

    requested: int
    arrived: int | None = None
    loss: float | None = None
    rise: Interval | None = None
    numbers_found: int | None = None
    hidden: int | None = None
    refused: str = ""


@dataclass
class Probe:
    """The result of probing a server.

    Attributes:
        endpoint: the server's URL.
        model: the server's name for the model.
        declared: the context length in tokens that the server reports; None where it reports none.
        original: tokens up to which positions are assumed right; None: not known.
        points: measurements by growing length.
        scaling: whether results beyond ``original`` are as good as within.
        cap: tokens above which prompts are refused, as the server names them or as many as it took; None where none
            was refused.
        truncated_at: tokens that arrive of longer prompts; None where all arrive.
        method: "loss" or "secret numbers".
        notes: what was left out, and why.
    """

    endpoint: str
    model: str
    declared: int | None = None
    original: int | None = None
    points: list[Point] = field(default_factory=list)
    scaling: Status = "not measured"
    cap: int | None = None
    truncated_at: int | None = None
    method: str = "loss"
    notes: list[str] = field(default_factory=list)
    requests: int = 0

    @property
    def faults(self) -> list[str]:
        """Sentences on what is wrong; empty where nothing is."""
        faults = []
        if self.scaling == "dropped":
            faults.append(
                f"worse beyond {self.original:,} tokens, by {self.method}: the scaling is probably not applied"
            )
        if self.cap is not None:
            faults.append(f"the context is capped: prompts of more than about {self.cap:,} tokens are refused")
        if self.truncated_at is not None:
            faults.append(f"prompts are truncated to {self.truncated_at:,} tokens without an error")
        return faults

    def json(self) -> str:
        """All of it as JSON."""
        return json.dumps({**asdict(self), "faults": self.faults}, indent=2)

    def __str__(self) -> str:
        lines = [f"{printable(self.endpoint)}, model {printable(self.model)}, {self.requests} requests"]
        granted = "not reported" if self.declared is None else f"{self.declared:,} tokens"
        lines += [f"context length      {granted}", ""]
        lines += [_line(point) for point in self.points]
        lines += ["", *(f"FAULT  {fault}" for fault in self.faults), *_scaling_lines(self)]
        lines += [f"note   {note}" for note in self.notes]
        return "\n".join(lines)


def probe(
    endpoint: Endpoint,
    *,
    original: int | None = None,
    length: int | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Probe:
    """Ask a server for completions at growing lengths.

    Args:
        endpoint: the server.
        original: the training length in tokens before the scaling; positions up to it are assumed right. None: half of
            ``length``.
        length: the longest prompt to send, in tokens; None: the context length that the server reports, or 8,192.
        progress: is called with a line at each length.

    Returns:
        The result; its notes say what the limits on requests and seconds did not allow.

    Raises:
        ValueError: for numbers out of range, and for a server that refuses even the shortest prompt.
        OSError: for a server that cannot be reached, or whose answers cannot be read.
    """
    for name, number in (("original", original), ("length", length)):
        if number is not None:
            check_whole(name, number, least=2 * _SHORTEST, most=LONGEST)
    result = Probe(endpoint.url, *_told_by(endpoint))
    endpoint.model = result.model
    longest = length or result.declared or 8192
    result.original = original or longest // 2
    try:
        _measure(endpoint, result, longest, progress)
    except BudgetError as error:
        result.notes.append(f"not every length was measured: {error}")
    result.requests = endpoint.requests
    _judge(result, longest)
    return result


def _told_by(endpoint: Endpoint) -> tuple[str, int | None]:
    """The name of the model and the context length that the server reports."""
    answer = endpoint.get("/v1/models")
    models = answer.get("data") if isinstance(answer, dict) else None
    entries = [entry for entry in models or [] if isinstance(entry, dict)]
    chosen = next((entry for entry in entries if entry.get("id") == endpoint.model), entries[0] if entries else {})
    name = endpoint.model or str(chosen.get("id", "default"))
    declared = chosen.get("max_model_len")
    if declared is None:
        properties = endpoint.get("/props")
        settings = properties.get("default_generation_settings") if isinstance(properties, dict) else None
        declared = settings.get("n_ctx") if isinstance(settings, dict) else None
    return name, declared if isinstance(declared, int) and declared > 0 else None


def _measure(endpoint: Endpoint, result: Probe, longest: int, progress: Callable[[str], None]) -> None:
    """One point for each length: the loss where the server gives probabilities, else secret numbers."""
    first, losses = _scored(endpoint, 4 * _SHORTEST)
    arrived = first.get("prompt_tokens")
    characters = (4 * _SHORTEST + LOCAL + PASSAGE) / arrived if isinstance(arrived, int) and arrived > 0 else 4.0
    if losses is None:
        result.method = "secret numbers"
        result.notes.append(
            "the server gives no probabilities of prompts (echo with logprobs): numbers were hidden instead"
        )
    assert result.original is not None
    shifted = losses is not None and losses.shifted
    if shifted:
        result.notes.append(
            "the server's probabilities are shifted by one token: the five likeliest tokens of the row before are used"
        )
    base: list[float] | None = None
    reserved = (LOCAL + PASSAGE) / characters
    for tokens in _lengths(result.original, longest):
        before = int((tokens - reserved - 2) * characters)
        if before > len(_text()) - LOCAL - PASSAGE:
            result.notes.append(f"the built-in text ends before {tokens:,} tokens")
            break
        try:
            if result.method == "loss":
                usage, losses = _scored(endpoint, before)
                chosen = None if losses is None else losses.chosen(shifted)
                point = _point(tokens, usage, chosen, base)
                base = base or chosen
            else:
                point = _searched(endpoint, tokens, int((tokens - _ANSWER) * characters))
        except RefusedError as error:
            point = Point(tokens, refused=str(error))
        result.points.append(point)
        progress(_line(point))
        if point.refused:
            break


def _lengths(original: int, longest: int) -> list[int]:
    """A quarter and nearly all of what is known to be right, then twice that and so on to the longest."""
    lengths = {max(2 * _SHORTEST, original // 4), original - original // 16, longest - longest // 64}
    length = 2 * original
    while length < longest:
        lengths.add(length - length // 64)
        length *= 2
    return sorted(length for length in lengths if length <= longest)


def _scored(endpoint: Endpoint, before: int) -> tuple[dict[str, Any], _Losses | None]:
    """The server's count of tokens, and the losses of the passage after so many characters of text."""
    text = _text()
    prompt = text[len(text) - before - LOCAL - PASSAGE :]
    choice = endpoint.complete(prompt, 1, echo=True)
    return choice["usage"], _losses_of(choice, prompt[-PASSAGE:].strip())


class _Losses(NamedTuple):
    """Losses of the passage's tokens, nats.

    Attributes:
        with_token: by the probability that the server gives with each token.
        of_row_before: by the likeliest tokens that it gives with the token before, where a token that is not among them
            counts as the last of them.
    """

    with_token: list[float]
    of_row_before: list[float]

    def chosen(self, shifted: bool) -> list[float]:
        return self.of_row_before if shifted else self.with_token

    @property
    def shifted(self) -> bool:
        """Whether the server's probabilities are shifted by one token, as in llama_cpp_python's server."""
        with_token, row_before = (sum(losses) / len(losses) for losses in self)
        return with_token > row_before + _SHIFTED


def _losses_of(choice: dict[str, Any], passage: str) -> _Losses | None:
    """The losses of a passage in an echoed prompt; None where the server does not give them."""
    logprobs, echoed = choice.get("logprobs"), choice.get("text")
    names = ("tokens", "token_logprobs", "top_logprobs")
    tokens, values, tops = (logprobs.get(name) for name in names) if isinstance(logprobs, dict) else (None, None, None)
    if not (isinstance(tokens, list) and isinstance(values, list) and len(tokens) == len(values)):
        return None
    if not isinstance(echoed, str) or passage not in echoed:
        return None
    tops = tops if isinstance(tops, list) and len(tops) == len(tokens) else [None] * len(tokens)
    # Tokens are laid along the echoed text from its end, and those that lie wholly in the passage are scored.
    start = len("".join(map(str, tokens))) - len(echoed) + echoed.rindex(passage)
    with_token, row_before, begin = list[float](), list[float](), 0
    for place, (token, value) in enumerate(zip(tokens, values, strict=True)):
        stop = begin + len(str(token))
        if start <= begin and stop <= start + len(passage) and _is_number(value):
            with_token.append(-float(value))
            likeliest = tops[place - 1] if place else None
            known = [float(v) for v in likeliest.values() if _is_number(v)] if isinstance(likeliest, dict) else []
            row_before.append(-float(likeliest.get(token, min(known))) if likeliest and known else with_token[-1])
        begin = stop
    return _Losses(with_token, row_before) if len(with_token) >= _FEWEST else None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _point(tokens: int, usage: dict[str, Any], losses: list[float] | None, base: list[float] | None) -> Point:
    arrived = usage.get("prompt_tokens")
    arrived = arrived if isinstance(arrived, int) else None
    if losses is None:
        return Point(tokens, arrived)
    rise = None
    if base is not None:
        count = min(len(base), len(losses))  # the first token may be cut otherwise; the last ones are the same
        rise = mean_interval([now - then for now, then in zip(losses[-count:], base[-count:], strict=True)])
    return Point(tokens, arrived, sum(losses) / len(losses), rise)


def _searched(endpoint: Endpoint, tokens: int, characters: int) -> Point:
    """Secret numbers at three depths of the text, one request each."""
    hits, arrived = 0, None
    for seed, depth in enumerate(_DEPTHS):
        task = draw_task("niah_single", seed)
        text = _text()[-characters:]
        place = text.find(". ", int(depth * len(text))) + 2
        prompt = f"{task.before}{text[:place]}{task.facts[0]} {text[place:]}{task.question}"
        choice = endpoint.complete(prompt, _ANSWER)
        hits += task.expected[0] in str(choice.get("text", ""))
        counted = choice["usage"].get("prompt_tokens")
        arrived = counted if isinstance(counted, int) else arrived
    return Point(tokens, arrived, numbers_found=hits, hidden=len(_DEPTHS))


def _judge(result: Probe, longest: int) -> None:
    """Set what follows from the points."""
    original = result.original or longest
    if not result.points:
        raise ValueError("endpoint: nothing was measured: no request was left for the shortest length")
    if result.points[0].refused:
        shortest = result.points[0]
        raise ValueError(f"endpoint: even a prompt of {shortest.requested:,} tokens is refused: {shortest.refused}")
    refused = next((point for point in result.points if point.refused), None)
    read = [point for point in result.points if not point.refused]
    if refused is not None:
        taken = max(point.arrived or point.requested for point in read)
        named = _NAMED_LENGTH.search(refused.refused)
        lengths = [int(named[1].replace(",", ""))] if named else []
        lengths += [] if result.declared is None else [result.declared]
        result.cap = next((length for length in lengths if taken <= length < refused.requested), taken)
    counts = [(point.requested, point.arrived) for point in read if point.arrived is not None]
    short = [arrived for requested, arrived in counts if arrived < 0.85 * requested]
    if short and max(arrived for _, arrived in counts) <= 1.02 * min(short):
        result.truncated_at = max(short)
    beyond = [point for point in read if point.requested > original and result.truncated_at is None]
    if result.method == "loss":
        rises = [point.rise for point in beyond if point.rise is not None]
        if any(rise.low > RISE for rise in rises):
            result.scaling = "dropped"
        elif rises:
            result.scaling = "applied" if all(rise.high < FLAT for rise in rises) else "inconclusive"
        return
    within = [point.numbers_found for point in read if point.requested <= original and point.numbers_found is not None]
    hits = [point.numbers_found for point in beyond if point.numbers_found is not None]
    if hits and within:
        able = min(within) == len(_DEPTHS)
        result.scaling = (
            "applied" if min(hits) == len(_DEPTHS) else "dropped" if able and max(hits) == 0 else "inconclusive"
        )


def _line(point: Point) -> str:
    words = [f"{point.requested:>9,} tokens"]
    if point.refused:
        return f"{words[0]}   refused: {point.refused}"
    words.append(f"{point.arrived:,} arrived" if point.arrived is not None else "the server does not count them")
    if point.loss is not None:
        words.append(f"loss {point.loss:.3f} nats a token")
    if point.rise is not None:
        words.append(f"rise {point.rise.mean:+.3f} [{point.rise.low:+.3f}, {point.rise.high:+.3f}]")
    if point.numbers_found is not None:
        words.append(f"{point.numbers_found} of {point.hidden} numbers found")
    return "   ".join(words)


def _scaling_lines(result: Probe) -> list[str]:
    if result.scaling == "applied":
        return [f"right  as good beyond {result.original:,} tokens as within, by {result.method}"]
    if result.scaling == "inconclusive":
        return [f"open   whether it is as good beyond {result.original:,} tokens as within: inconclusive"]
    return [] if result.scaling == "dropped" else ["open   nothing beyond the original length was measured"]


@cache
def _text() -> str:
    """English that comes with Python: the topics of its help, 465 kB."""
    return "\n".join(topics.topics[name] for name in sorted(topics.topics)).strip()
