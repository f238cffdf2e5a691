"""One entry of the catalogue: an encoding, what is known of it, and how it is built for a model's shape.

The module of an encoding states its own below the class, as ``ENTRY``, or as ``ENTRIES`` where it has several;
`posenc.catalogue` collects them.
"""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from torch import nn

from posenc.encoding import HOOK_POINTS, Encoding
from posenc.factory_kwargs import place_parameters

SHAPE = ("dim", "num_heads", "num_kv_heads", "head_dim", "max_length", "train_length")  # words that describe a model
READS = {
    "distances": "relative",
    "positions": "absolute",
    "content": "by content",
    "lengths": "by length",
    "nothing": "none",
}  # what an encoding may read, and the kind that is named for it, the first that applies
Module = TypeVar("Module")
Shape = Mapping[str, object]
_KNOWN: dict[type | None, Mapping[str, inspect.Parameter]] = {}  # reading a signature takes longer than building


class _Scaling(Protocol):
    """What an entry needs of a `posenc.frequencies.Scaling`, which lies in a layer above."""

    @classmethod
    def lengths_for(cls, train_length: int) -> dict[str, int]: ...


def _no_defaults(shape: Shape) -> dict[str, object]:
    return {}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One encoding and what is known of it. How it is trained, its class says; see `Encoding`.

    Attributes:
        name: lower case, as the command line takes it.
        encoding: the class, or None for the empty list and for a scaling, which scales `RoPE`.
        title, formula, source, parameters, cost: for readers.
        past_training: what happens past the training length, by definition rather than by measurement.
        reads: what a score depends on apart from q·k, of `READS`, joined by " and ".
        extension: what can be done about lengths that were not trained.
        used_in: released models that have it, with their sources; or that none is known.
        avoid: when not to use it: by definition, or with a source.
        scaling: of the frequencies of a rotation; its options and the encoding's are given alike.
        then: scalings that act on the same rotation after its own, of names joined by ``+``.
        extends_context: whether it extends the context of models that were trained without it.
        defaults: options that have no default of their own, from the words that describe a model.
        own_positions: its positions are not places in the text; the model's code makes them.
        exempt: conformance checks that do not apply, each with its reason.
    """

    name: str
    encoding: type[Encoding] | None = None
    title: str
    formula: str
    source: str
    parameters: str
    cost: str
    past_training: str
    reads: str = ""
    extension: str = ""
    used_in: str = ""
    avoid: str = ""
    scaling: type[_Scaling] | None = None
    then: tuple[Entry, ...] = ()
    extends_context: bool = False
    defaults: Callable[[Shape], Mapping[str, object]] = _no_defaults
    own_positions: bool = False
    exempt: Mapping[str, str] = field(default_factory=dict)

    @property
    def hook_point(self) -> str:
        """Where it acts, a key of `HOOK_POINTS`; "none" for the empty list."""
        cls = self.encoding
        return "none" if cls is None else next(name for name, base in HOOK_POINTS.items() if issubclass(cls, base))

    @property
    def kind(self) -> str:
        """ "relative", "absolute", "by content", "by length" or "none", by what it reads."""
        return next((kind for word, kind in READS.items() if word in self.reads.split(" and ")), "none")

    @property
    def learned(self) -> bool:
        """Whether it has parameters of its own, at least as an option."""
        return not self.parameters.startswith("none") or any(entry.learned for entry in self.then)

    @property
    def lr_multiplier(self) -> float:
        """Factor on the learning rate for the encoding's own parameters."""
        return 1.0 if self.encoding is None else self.encoding.lr_multiplier

    @property
    def shared(self) -> bool:
        """Whether one instance serves all layers."""
        return self.encoding is None or self.encoding.shared_by_layers

    @property
    def table_bound(self) -> bool:
        """Whether it is undefined at positions past max_length."""
        return self.encoding is not None and self.encoding.table_bound

    def lengths(self, train_length: int) -> dict[str, int]:
        """Options that scale with the length a model is trained at, tokens; {} if none do."""
        lengths = {} if self.encoding is None else self.encoding.lengths_for(train_length)
        lengths = lengths if self.scaling is None else {**lengths, **self.scaling.lengths_for(train_length)}
        for entry in self.then:
            lengths = {**entry.lengths(train_length), **lengths}
        for word in lengths:
            if word not in self.takes and word not in SHAPE:
                raise ValueError(
                    f"{self.name}: lengths_for gives {word!r}, which the constructor does not take: let it take that "
                    "option, or give the class a lengths_for of its own"
                )
        return lengths

    @property
    def takes(self) -> frozenset[str]:
        """Options of the encoding and of its scaling."""
        words = set(_parameters(self.encoding))
        words = words if self.scaling is None else words - {"scaling"} | set(_parameters(self.scaling))
        return frozenset(words).union(*(entry.takes for entry in self.then))

    @property
    def needs(self) -> frozenset[str]:
        """Options of the encoding and of its scaling that have no default."""
        parameters = {**_parameters(self.encoding), **_parameters(self.scaling)}
        own = frozenset(word for word, p in parameters.items() if p.default is p.empty)
        return own.union(*(entry.needs for entry in self.then))

    def create(self, *, dtype: object = None, device: object = None, **shape: object) -> Encoding:
        """The encoding for a model's shape; see `create_encoding`."""
        encoding = self._constructed(shape)
        place_parameters(encoding, device, dtype, given=list(shape.values()))
        return encoding

    def _constructed(self, shape: Shape) -> Encoding:
        if self.encoding is None:
            raise ValueError(f"{self.name} is the empty list: pass encodings=[] to attention")
        options = _complete(shape)
        unknown = [word for word in options if word not in self.takes and word not in SHAPE]
        if unknown:
            raise ValueError(
                f"{self.name} has no option {unknown[0]!r}{nearest(unknown[0], [*sorted(self.takes), *SHAPE])}"
            )
        full = self._with_defaults(options)
        if self.scaling is None:
            return self._build(self.encoding, full)
        scalings = [self._build(self.scaling, full)]
        for entry in self.then:  # each has defaults of its own
            assert entry.scaling is not None
            scalings.append(entry._build(entry.scaling, entry._with_defaults(options)))
        scaling = scalings[0] if len(scalings) == 1 else nn.Sequential(*scalings)  # type: ignore[call-overload]
        return self._build(self.encoding, {**full, "scaling": scaling})

    def _with_defaults(self, options: Shape) -> dict[str, object]:
        """Options with what follows from the model for those that are not given."""
        train_length = options.get("train_length")
        if isinstance(train_length, int):
            options = {**self.lengths(train_length), **options}
        return {**{word: value for word, value in self.defaults(options).items() if word in self.takes}, **options}

    def _build(self, cls: type[Module], options: Shape) -> Module:
        takes = _parameters(cls)
        needed = [word for word, p in takes.items() if p.default is p.empty and word not in options]
        if needed:
            raise ValueError(f"{self.name} needs {' and '.join(needed)}: give them as keywords")
        return cls(**{word: value for word, value in options.items() if word in takes})


def _parameters(cls: type | None) -> Mapping[str, inspect.Parameter]:
    """Parameters of the constructor by name; one with ``**options`` includes its parent class's."""
    if cls not in _KNOWN:
        by_name: dict[str, inspect.Parameter] = {}
        for owner in () if cls is None else (base for base in cls.__mro__ if "__init__" in vars(base)):
            parameters = inspect.signature(owner).parameters
            named = {w: p for w, p in parameters.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
            by_name = {**named, **by_name}
            if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
                break
        _KNOWN[cls] = by_name
    return _KNOWN[cls]


def _complete(shape: Shape) -> dict[str, object]:
    """The shape with what follows from it: head_dim from dim and num_heads, max_length from train_length."""
    full = dict(shape)
    dim, heads = full.get("dim"), full.get("num_heads")
    if "head_dim" not in full and isinstance(dim, int) and isinstance(heads, int) and heads > 0 and dim % heads == 0:
        full["head_dim"] = dim // heads
    if "max_length" not in full and "train_length" in full:
        full["max_length"] = full["train_length"]
    return full


def nearest(word: str, known: Sequence[str]) -> str:
    """ ", did you mean …?" or the list of what is known."""
    close = difflib.get_close_matches(word, known, n=1)
    return f": did you mean {close[0]!r}?" if close else f": known are {', '.join(known)}"


# What the entries of several encodings say of them.

IN_ORDER = {
    "positions_matter": "counts what tokens say in the order of the text; positions are not read",
    "shuffled_positions": "keys must lie in the order of the text",
}


def a_key_head_per_query_head(shape: Shape) -> dict[str, object]:
    """As many key heads as query heads."""
    return {"num_kv_heads": shape["num_heads"]} if "num_heads" in shape else {}


def square_window(shape: Shape, side: int) -> dict[str, object]:
    """The smallest square window that holds the tokens of training; where they are not known, the source's own."""
    train_length = shape.get("train_length")
    side = math.isqrt(train_length - 1) + 1 if isinstance(train_length, int) else side
    return {"window": (side, side)}
