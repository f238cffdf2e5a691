"""Every encoding by name, with its facts: what the tests check, the lab runs, the docs list and the guide ranks."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from posenc.bias.alibi import ALiBi
from posenc.bias.t5 import T5Bias
from posenc.embedding.learned import Learned
from posenc.embedding.sinusoidal import Sinusoidal
from posenc.encoding import PLACES, Encoding
from posenc.rotary.rope import RoPE
from posenc.score.shaw import Shaw

SHAPE = ("dim", "num_heads", "kv_heads", "head_dim", "max_length", "train_length")  # words that describe a model


def _no_lengths(train_length: int) -> dict[str, int]:
    return {}


@dataclass(frozen=True)
class Entry:
    """One encoding and what is known of it.

    Attributes:
        name: lower case, as the command line takes it.
        place: a key of `PLACES`, or "none" for the empty list.
        encoding: the class, or None for the empty list.
        title, formula, source, parameters, cost: for readers.
        past_training: what happens past the trained length, by definition rather than by measurement.
        lengths: options that scale with the length a model is trained at, tokens; {} if none do.
        lr_multiplier: factor on the learning rate for the encoding's own parameters.
        shared: one instance serves all layers, as in the source; False: one per layer.
        table_bound: undefined at positions past max_length.
        exempt: conformance checks that do not apply, each with its reason.
    """

    name: str
    place: str
    encoding: type[Encoding] | None
    title: str
    formula: str
    source: str
    parameters: str
    cost: str
    past_training: str
    lengths: Callable[[int], dict[str, int]] = _no_lengths
    lr_multiplier: float = 1.0
    shared: bool = True
    table_bound: bool = False
    exempt: Mapping[str, str] = field(default_factory=dict)

    def create(self, **shape: object) -> Encoding:
        """The encoding for a model's shape; see `create`."""
        if self.encoding is None:
            raise ValueError(f"{self.name} is the empty list: pass encodings=[], or use build({self.name!r})")
        takes = inspect.signature(self.encoding).parameters
        given = _complete(shape)
        train_length = given.get("train_length")
        if isinstance(train_length, int):
            given = {**self.lengths(train_length), **given}
        unknown = [word for word in given if word not in takes and word not in SHAPE]
        if unknown:
            raise ValueError(f"{self.name} has no option {unknown[0]!r}{_near(unknown[0], [*takes, *SHAPE])}")
        needed = [word for word, p in takes.items() if p.default is p.empty and word not in given]
        if needed:
            raise ValueError(f"{self.name} needs {' and '.join(needed)}: give them as keywords")
        return self.encoding(**{word: value for word, value in given.items() if word in takes})


def _complete(shape: Mapping[str, object]) -> dict[str, object]:
    """The shape with what follows from it: head_dim from dim and num_heads, max_length from train_length."""
    full = dict(shape)
    dim, heads = full.get("dim"), full.get("num_heads")
    if "head_dim" not in full and isinstance(dim, int) and isinstance(heads, int) and heads > 0 and dim % heads == 0:
        full["head_dim"] = dim // heads
    if "max_length" not in full and "train_length" in full:
        full["max_length"] = full["train_length"]
    return full


_ENTRIES = [
    Entry(
        name="nope",
        place="none",
        encoding=None,
        title="NoPE: no positional encoding; the causal mask alone breaks the symmetry",
        formula="s_ij = q_i·k_j · scale",
        source="Haviv et al., arXiv 2203.16634; Kazemnejad et al., arXiv 2305.19466",
        parameters="none",
        cost="none",
        past_training="nothing new appears but longer rows of the softmax",
    ),
    Entry(
        name="sinusoidal",
        place="embedding",
        encoding=Sinusoidal,
        title="Sinusoidal position embedding",
        formula="x_t ← x_t + [sin p·theta_j, cos p·theta_j],  theta_j = base^(−2j/dim)",
        source="Vaswani et al., arXiv 1706.03762, section 3.5",
        parameters="none",
        cost="one addition a token, once",
        past_training="sums of waves never seen in training",
    ),
    Entry(
        name="learned",
        place="embedding",
        encoding=Learned,
        title="Learned position embedding",
        formula="x_t ← x_t + table[p]",
        source="Gehring et al., arXiv 1705.03122; Devlin et al., arXiv 1810.04805",
        parameters="max_length × dim",
        cost="one lookup and addition a token, once",
        past_training="undefined past the table",
        lengths=lambda train_length: {"max_length": train_length},
        lr_multiplier=10.0,
        table_bound=True,
        exempt={
            "fractional_positions": "a table has no rows between rows",
            "far_positions": "a table ends",
        },
    ),
    Entry(
        name="rope",
        place="rotary",
        encoding=RoPE,
        title="RoPE: rotary position embedding",
        formula="q, k ← R(p) q, R(p) k, pairs turned by p·theta_j, theta_j = base^(−2j/rotary_dim)",
        source="Su et al., arXiv 2104.09864, eq. 15 and 34",
        parameters="none",
        cost="one rotation of q and k a layer",
        past_training="angles never seen in training",
    ),
    Entry(
        name="alibi",
        place="bias",
        encoding=ALiBi,
        title="ALiBi: attention with linear biases",
        formula="s_ij ← s_ij − m_h · |p_j − p_i|,  m_h = 2^(−8h/heads)",
        source="Press et al., arXiv 2108.12409, section 3",
        parameters="none",
        cost="one row of numbers a head",
        past_training="larger penalties on farther keys: the recent past keeps its weight",
    ),
    Entry(
        name="t5",
        place="bias",
        encoding=T5Bias,
        title="T5 relative bias",
        formula="s_ij ← s_ij + table[bucket(p_j − p_i), h]",
        source="Raffel et al., arXiv 1910.10683, section 2.1",
        parameters="num_buckets × heads, one table for all layers",
        cost="one row of numbers a head; its gradient",
        past_training="all distances from max_distance on share one bucket",
        lengths=lambda train_length: _t5_lengths(train_length),
        lr_multiplier=10.0,
    ),
    Entry(
        name="shaw",
        place="score",
        encoding=Shaw,
        title="Shaw's relative position representations",
        formula="s_ij ← s_ij + scale · q_i·key_table[r],  o_i ← o_i + Σ_j a_ij value_table[r],  r = clip(p_j − p_i)",
        source="Shaw et al., arXiv 1803.02155, eq. 3 and 4",
        parameters="2 × (2·max_distance + 1) × head_dim a layer",
        cost="one product of q with the table, one gather over all scores",
        past_training="all distances beyond max_distance look alike",
        lengths=lambda train_length: {"max_distance": max(1, train_length // 4)},
        lr_multiplier=10.0,
        shared=False,
        exempt={"fractional_positions": "a table has no rows between rows"},
    ),
]


def _t5_lengths(train_length: int) -> dict[str, int]:
    """Buckets up to half the training length, so that every bucket is trained; T5 has 32 for 128 tokens."""
    max_distance = max(2, train_length // 2)
    return {"max_distance": max_distance, "num_buckets": min(32, 2 * (max_distance // 2))}


CATALOGUE: Mapping[str, Entry] = {entry.name: entry for entry in _ENTRIES}


def list_encodings(place: str | None = None) -> list[str]:
    """The names in the catalogue, all or those of one place ("embedding", "rotary", "bias", "score", "weight").

    >>> list_encodings("bias")
    ['alibi', 't5']
    """
    if place is not None and place not in PLACES:
        raise ValueError(f"place must be one of {tuple(PLACES)}, got {place!r}")
    return [entry.name for entry in CATALOGUE.values() if place in (None, entry.place)]


def info(name: str) -> Entry:
    """The facts about one encoding.

    >>> info("alibi").parameters
    'none'
    """
    entry = CATALOGUE.get(name.lower())
    if entry is None:
        raise ValueError(f"no encoding is named {name!r}{_near(name.lower(), list(CATALOGUE))}")
    return entry


def create(name: str, **shape: object) -> Encoding:
    """One encoding by name, for a model's shape.

    Args:
        name: see `list_encodings`.
        shape: words that describe the model (dim, num_heads, kv_heads, head_dim, max_length, train_length), of
            which the encoding takes what it needs, and options of the encoding. ``train_length`` scales
            length-like options that are not given, such as T5's max_distance.

    Raises:
        ValueError: for an unknown name or option, with the nearest known one, or for a missing word.

    >>> create("rope", dim=512, num_heads=8, base=500_000.0)
    RoPE(64, base=500000, layout='half')
    """
    return info(name).create(**shape)


def build(recipe: str, **shape: object) -> list[Encoding]:
    """A list of encodings from names joined by ``+``; "nope" is the empty list.

    >>> build("rope+alibi", head_dim=64, num_heads=2)
    [RoPE(64, base=10000, layout='half'), ALiBi(2, slopes=(0.0625, 0.003906))]
    """
    entries = [info(name.strip()) for name in recipe.split("+")]
    return [entry.create(**shape) for entry in entries if entry.encoding is not None]


def _near(word: str, known: list[str]) -> str:
    """ ", did you mean …?" or the list of what is known."""
    close = difflib.get_close_matches(word, known, n=1)
    return f": did you mean {close[0]!r}?" if close else f": known are {', '.join(known)}"
