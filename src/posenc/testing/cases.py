"""What a check is given: a `Case` makes the encodings; a `Probe` is the smallest layer around them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from posenc.attend import attention
from posenc.backends import Backend
from posenc.catalogue import encoding_info
from posenc.encoding import EmbeddingEncoding, Encoding, RotaryEncoding, hook_point_of
from posenc.validate import Causal

Factory = Callable[..., Encoding | Sequence[Encoding]]
EVERYWHERE = frozenset({"none", "embedding", "rotary", "bias", "score", "weight"})
INSIDE = EVERYWHERE - {"embedding"}  # hook points inside attention, and the empty list

WORDS = ("num_heads", "num_kv_heads", "head_dim", "value_dim", "dim", "max_length", "train_length")
SHORT = 5  # train_length under spectra that depend on a row's length, so that every row of the checks goes past it

_HOOK_POINTS: dict[str, frozenset[str]] = {}  # check → hook points that it applies to
_SEVERAL: set[str] = set()  # checks of positions with several coordinates


def applies_to(
    *hook_points: str, all_of_them: bool = True, several_axes: bool = False
) -> Callable[[Callable[[Case], None]], Callable[[Case], None]]:
    """Declare the hook points for which a check is defined.

    Args:
        hook_points: keys of `posenc.encoding.HOOK_POINTS`, or "none" for the empty list.
        all_of_them: whether a list must act at these hook points as a whole, rather than have one member there.
        several_axes: whether it is for positions of several coordinates alone.
    """

    def note(check: Callable[[Case], None]) -> Callable[[Case], None]:
        points = frozenset(hook_points)
        _HOOK_POINTS[check.__name__] = points if all_of_them else points | {"any"}
        if several_axes:
            _SEVERAL.add(check.__name__)
        return check

    return note


@dataclass(frozen=True)
class Case:
    """One encoding, or list of them, under test.

    Attributes:
        name: for ids and messages.
        construct: makes the encoding or a list of encodings, new at each call. It is handed those of the words
            num_heads, num_kv_heads, head_dim, value_dim, dim, max_length and train_length that it takes.
        num_heads, num_kv_heads, head_dim: sizes that the checks use; dim is num_heads · head_dim.
        max_length: positions that a table has; checks that go further are "common_shift" and "far_positions".
        table_bound: whether positions from max_length on are an error.
        exempt: checks that do not hold, each with its reason.
        train_length: scales T5's max_distance and the like, so that the checks' short rows go past it.
    """

    name: str
    construct: Factory
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 8
    max_length: int = 320
    table_bound: bool = False
    exempt: Mapping[str, str] = field(default_factory=dict)
    train_length: int = 32

    @classmethod
    def from_catalogue(cls, recipe: str, options: Mapping[str, object] | None = None, *, variant: str = "") -> Case:
        """The case of a catalogue's entry, with its facts and exemptions; of several, joined by ``+``.

        Args:
            recipe: a name, or names joined by ``+``, as for `build`.
            options: of the encodings; each is handed to those that take it.
            variant: appended to the name.

        >>> Case.from_catalogue("alibi").make()
        [ALiBi(4, slopes=(0.25, 0.0625, 0.01562, 0.003906))]
        """
        entries = [encoding_info(name) for name in recipe.split("+")]
        exempt = {check: reason for entry in entries for check, reason in entry.exempt.items()}

        def construct(**words: object) -> list[Encoding]:
            encodings = []
            for entry in entries:
                if entry.encoding is not None:
                    optional = {"value_dim", *(options or {})} - entry.takes
                    words_given = {**words, **(options or {})}
                    encodings.append(
                        entry.create(**{word: value for word, value in words_given.items() if word not in optional})
                    )
            return encodings

        name = "_".join([recipe, variant]) if variant else recipe
        case = cls(name, construct, table_bound=any(entry.table_bound for entry in entries), exempt=exempt)
        return replace(case, train_length=SHORT) if case.length_dependent else case

    @property
    def dim(self) -> int:
        """Channels of a token."""
        return self.num_heads * self.head_dim

    def fresh(self, *, seed: int = 0, sizes: Mapping[str, int] | None = None) -> list[Encoding]:
        """New encodings as their constructors leave them."""
        words: dict[str, int] = {
            "num_heads": self.num_heads,
            "num_kv_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "value_dim": self.head_dim,
            "dim": self.dim,
            "max_length": self.max_length,
            "train_length": self.train_length,
            **(sizes or {}),
        }
        takes = self.takes
        words = {word: size for word, size in words.items() if word in takes}
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # torch.manual_seed formats a stack for each device there is not
            encodings = self.construct(**words)
        return [encodings] if isinstance(encodings, Encoding) else list(encodings)

    def make(
        self, dtype: torch.dtype = torch.float32, *, seed: int = 0, sizes: Mapping[str, int] | None = None
    ) -> list[Encoding]:
        """New encodings in which every parameter has been moved, so that learned tables matter."""
        encodings = self.fresh(seed=seed, sizes=sizes)
        source = torch.Generator().manual_seed(seed + 1)
        with torch.no_grad():
            for encoding in encodings:
                for parameter in encoding.parameters():
                    parameter.add_(torch.rand(parameter.shape, generator=source) * 0.5)
        return [encoding.to(dtype).eval() for encoding in encodings]

    @cached_property
    def takes(self) -> frozenset[str]:
        """Words that the constructor takes: all for ``**words``, none for the constructor that a module inherits."""
        parameters = inspect.signature(self.construct).parameters.values()
        kinds = {p.kind for p in parameters}
        if inspect.Parameter.VAR_KEYWORD in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
            return frozenset(WORDS)
        return frozenset(p.name for p in parameters).intersection(WORDS)

    @cached_property
    def hook_points(self) -> frozenset[str]:
        """Hook points of the encodings; {"none"} for the empty list."""
        return frozenset(hook_point_of(encoding) for encoding in self.fresh()) or frozenset({"none"})

    @cached_property
    def axes(self) -> int:
        """Coordinates of a position."""
        return max([1, *(encoding.axes for encoding in self.fresh())])

    @cached_property
    def length_dependent(self) -> bool:
        """Whether some rotation depends on how many tokens a row spans."""
        return any(isinstance(e, RotaryEncoding) and e.length_dependent for e in self.fresh())

    def positions(self, index: Tensor) -> Tensor:
        """Positions of tokens numbered ``index``: the number itself, or coordinates that grow at different speeds."""
        return spread(index, self.axes)


def applies(check: str, case: Case) -> bool:
    """Whether a check is defined for the hook points and axes of a case, whatever the case is exempt from."""
    if check in _SEVERAL and case.axes == 1:
        return False
    required, hook_points = _HOOK_POINTS[check], case.hook_points
    return bool(hook_points & required) if "any" in required else hook_points <= required


def spread(index: Tensor, axes: int) -> Tensor:
    """Positions of that many coordinates for tokens numbered ``index``: coordinate a moves on every 2^a tokens."""
    return index if axes == 1 else torch.stack([index.div(2**a, rounding_mode="floor") for a in range(axes)], -1)


def random(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 7) -> Tensor:
    """Normal numbers, the same ones at every call, whatever the global generator does."""
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return numbers.to(dtype)


class Probe(nn.Module):
    """x (batch, tokens, dim) → embeddings → q, k, v → attention → (batch, heads, tokens, value_dim)."""

    def __init__(
        self,
        case: Case,
        encodings: Sequence[Encoding] | None = None,
        *,
        dtype: torch.dtype = torch.float64,
        causal: Causal = True,
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        encodings = case.make(dtype) if encodings is None else encodings
        self.embeddings = nn.ModuleList(e for e in encodings if isinstance(e, EmbeddingEncoding))
        self.inside = nn.ModuleList(e for e in encodings if not isinstance(e, EmbeddingEncoding))
        self.head_dim, self.causal, self.backend = case.head_dim, causal, backend
        width = width_after(case, encodings, dtype)
        for seed, (name, heads) in enumerate(
            (("q", case.num_heads), ("k", case.num_kv_heads), ("v", case.num_kv_heads))
        ):
            weight = random(width, heads * case.head_dim, dtype=dtype, seed=seed) * width**-0.5
            self.register_buffer(name, weight, persistent=False)

    def forward(
        self, x: Tensor, positions: Tensor | None = None, mask: Tensor | None = None, segments: Tensor | None = None
    ) -> Tensor:
        here = torch.arange(x.shape[1], device=x.device) if positions is None else positions
        for embedding in self.embeddings:
            x = embedding(x, here)
        q, k, v = (
            (x @ weight).view(*x.shape[:2], -1, self.head_dim).transpose(1, 2)
            for weight in (self.get_buffer("q"), self.get_buffer("k"), self.get_buffer("v"))
        )
        encodings = [e for e in self.inside if isinstance(e, Encoding)]
        return attention(
            q, k, v, encodings,
            q_pos=positions, k_pos=positions, x=x, mask=mask, segments=segments, causal=self.causal,
            backend=self.backend,
        )  # fmt: skip


def width_after(case: Case, encodings: Sequence[Encoding], dtype: torch.dtype) -> int:
    """Channels of a token behind the embeddings, which may append some."""
    x = torch.zeros(1, 1, case.dim, dtype=dtype)
    with torch.no_grad():
        for encoding in encodings:
            if isinstance(encoding, EmbeddingEncoding):
                x = encoding(x, case.positions(torch.arange(1)))
    return x.shape[-1]


def tokens_of(case: Case, tokens: int, *, batch: int = 1, dtype: torch.dtype = torch.float64, seed: int = 7) -> Tensor:
    """A batch of random tokens ``(batch, tokens, dim)``."""
    return random(batch, tokens, case.dim, dtype=dtype, seed=seed)


def heads_of(
    case: Case,
    queries: int,
    keys: int,
    *,
    batch: int = 2,
    value_dim: int | None = None,
    dtype: torch.dtype = torch.float64,
) -> tuple[Tensor, Tensor, Tensor]:
    """Random q, k and v, of grouped heads."""
    value_dim = case.head_dim if value_dim is None else value_dim
    return (
        random(batch, case.num_heads, queries, case.head_dim, dtype=dtype, seed=1),
        random(batch, case.num_kv_heads, keys, case.head_dim, dtype=dtype, seed=2),
        random(batch, case.num_kv_heads, keys, value_dim, dtype=dtype, seed=3),
    )
