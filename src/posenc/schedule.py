"""A schedule over layers: which encodings and which window each layer of a model has.

    rope/nope:4           RoPE, but nothing in every fourth layer (layers 4, 8, … counted from 1)
    rope@4096/nope:4      the same, and a window of 4,096 tokens where RoPE acts
    rope+sink@128/rope+sink:2   half of the layers under a window, as in gpt-oss

A kind of layers is names of the catalogue joined by ``+`` ("nope" is none), and ``@`` with a window; ``/`` and ``:n``
put another kind into every n-th layer, the last rule first. Whatever has no such rule is a pattern by hand, which
repeats over the layers: `Schedule` of as many kinds as the pattern is long.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from posenc.arguments import LONGEST, check_whole, shown
from posenc.catalogue import create_encoding, encoding_info, names_in
from posenc.encoding import EmbeddingEncoding, Encoding

__all__ = ["Schedule"]

NONE = "nope"
MOST_LAYERS = 4096  # of a pattern, and of a model
_PART = re.compile(r"[A-Za-z0-9_.-]+(:[A-Za-z_][A-Za-z0-9_]*)?")  # a name, or module:Class
_RULE = re.compile(r"(.*?)(?::([0-9]{1,9}))?", re.DOTALL)


class LayerKind(NamedTuple):
    """The positional facts of one kind of layers."""

    names: tuple[str, ...] = ()  # of the catalogue, in the order in which they act, joined scalings one; none is NoPE
    window: int | None = None  # tokens that a token attends to, itself included; None: all

    def __str__(self) -> str:
        names = "+".join(self.names) or NONE
        return names if self.window is None else f"{names}@{self.window}"

    @classmethod
    def parse(cls, text: str) -> LayerKind:
        """From names joined by ``+`` and perhaps ``@`` with a window.

        >>> LayerKind.parse("rope+alibi@64")
        LayerKind(names=('rope', 'alibi'), window=64)
        """
        head, at, window = text.partition("@") if isinstance(text, str) else ("", "", "")
        parts = names_in(head)
        if not isinstance(text, str) or not all(_PART.fullmatch(part.strip()) for part in head.split("+")):
            raise ValueError(f"schedule: {shown(text)} is no list of names joined by +, such as rope+alibi@64")
        if at and re.fullmatch(r"[0-9]{1,9}", window) is None:
            raise ValueError(f"schedule: the window of {shown(text)} must be a number of tokens, as in rope@64")
        size = int(window) if at else None
        if size is not None:
            check_whole("schedule: window", size, most=LONGEST)
        return cls(tuple(part for part in parts if part.lower() != NONE), size)


class Schedule:
    """A pattern of kinds of layers, which repeats over the layers of a model.

    Args:
        pattern: kinds, or their texts; at least one.

    Raises:
        ValueError: for an empty or endless pattern, and for what is no kind.

    >>> schedule = Schedule.parse("rope@4096/nope:4")
    >>> schedule
    Schedule('rope@4096/nope:4')
    >>> [str(kind) for kind in schedule.layers(6)]
    ['rope@4096', 'rope@4096', 'rope@4096', 'nope', 'rope@4096', 'rope@4096']
    >>> [(len(encodings), window) for encodings, window in schedule.build(4, head_dim=64)]
    [(1, 4096), (1, 4096), (1, 4096), (0, None)]
    """

    def __init__(self, pattern: Sequence[LayerKind | str]) -> None:
        if isinstance(pattern, str) or not isinstance(pattern, Sequence) or not 0 < len(pattern) <= MOST_LAYERS:
            raise ValueError(f"pattern must be a list of 1 to {MOST_LAYERS} kinds of layers, got {shown(pattern)}")
        kinds = [kind if isinstance(kind, LayerKind) else LayerKind.parse(kind) for kind in pattern]
        period = next(n for n in _divisors(len(kinds)) if kinds == kinds[:n] * (len(kinds) // n))
        self.pattern = tuple(kinds[:period])

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """From text, as at the head of this module.

        Raises:
            ValueError: for text that is no schedule; it says what is wrong.
        """
        if not isinstance(text, str):
            raise ValueError(f"schedule must be text such as rope/nope:4, got {shown(text)}")
        rules = [_rule(part, first=n == 0) for n, part in enumerate("".join(text.split()).split("/"))]
        period = math.lcm(*(every for _, every in rules))
        if period > MOST_LAYERS:
            raise ValueError(f"schedule: {text!r} repeats after {period:,} layers; at most {MOST_LAYERS:,} are taken")
        return cls([next(k for k, every in reversed(rules) if n % every == 0) for n in range(1, period + 1)])

    def layers(self, count: int) -> tuple[LayerKind, ...]:
        """The kind of each of ``count`` layers."""
        check_whole("count", count, most=MOST_LAYERS)
        return tuple(self.pattern[n % len(self.pattern)] for n in range(count))

    def kinds(self, count: int) -> dict[LayerKind, list[int]]:
        """The layers of each kind, by number from 0."""
        layers: dict[LayerKind, list[int]] = {}
        for number, kind in enumerate(self.layers(count)):
            layers.setdefault(kind, []).append(number)
        return layers

    @property
    def names(self) -> tuple[str, ...]:
        """Every name in it, once."""
        return tuple(dict.fromkeys(name for kind in self.pattern for name in kind.names))

    @property
    def uniform(self) -> bool:
        """Whether all layers are of one kind."""
        return len(self.pattern) == 1

    def build(self, count: int, **shape: object) -> list[tuple[list[Encoding], int | None]]:
        """The encodings and the window of each of ``count`` layers.

        Args:
            count: how many layers.
            shape: words that describe the model and options, as for `posenc.create_encoding`; each encoding takes
                its own.

        Raises:
            ValueError: for an unknown name, and for an embedding, which acts once and in no layer.
        """
        layers = self.instances(
            count, lambda name: create_encoding(name, **shape), lambda name: encoding_info(name).shared
        )
        for encodings, _ in layers:
            for encoding in encodings:
                if isinstance(encoding, EmbeddingEncoding):
                    raise ValueError(f"schedule: {type(encoding).__name__} acts on embeddings, in no layer")
        return layers

    def instances(
        self, count: int, make: Callable[[str], Encoding], shared: Callable[[str], bool]
    ) -> list[tuple[list[Encoding], int | None]]:
        """Builds the encodings of all layers: one shared instance per name if it is ``shared``, else one per layer."""
        once: dict[str, Encoding] = {}
        instances = []
        for kind in self.layers(count):
            encodings = []
            for name in kind.names:
                if shared(name) and name not in once:
                    once[name] = make(name)
                encodings.append(once[name] if shared(name) else make(name))
            instances.append((encodings, kind.window))
        return instances

    def __str__(self) -> str:
        """As text where a rule or two can say it, else the kinds one after another."""
        default = self.pattern[0]
        exceptions = [n for n, kind in enumerate(self.pattern, 1) if kind != default]
        last = self.pattern[-1]
        if exceptions and exceptions == [len(self.pattern)]:
            return f"{default}/{last}:{len(self.pattern)}"
        return ", ".join(map(str, self.pattern))

    def __repr__(self) -> str:
        is_single = self.uniform or str(self).count("/")
        return f"Schedule({str(self)!r})" if is_single else f"Schedule({[str(kind) for kind in self.pattern]})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and self.pattern == other.pattern

    def __hash__(self) -> int:
        return hash(self.pattern)


def _rule(text: str, *, first: bool) -> tuple[LayerKind, int]:
    """One kind, and every how many layers it comes; 1 for the first, which the others replace."""
    match = _RULE.fullmatch(text)
    kind, every = (match[1], match[2]) if match else (text, None)
    if first and every is not None:
        raise ValueError(f"schedule: {text!r} comes first, so it is for all layers, and takes no :{every}")
    if not first and (every is None or int(every) < 2):
        raise ValueError(f"schedule: {text!r} must say in every how many layers it comes, 2 or more, as in /nope:4")
    return LayerKind.parse(kind), int(every or 1)


def _divisors(number: int) -> Iterable[int]:
    return (n for n in range(1, number + 1) if number % n == 0)
