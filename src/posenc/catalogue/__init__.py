"""Every encoding by name, with its facts: what the tests check, the lab runs, the docs list and the guide ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from itertools import groupby

from posenc.arguments import shown
from posenc.catalogue.names import resolve, suggestion
from posenc.encoding import HOOK_POINTS, Encoding
from posenc.entry import SHAPE as SHAPE
from posenc.entry import Entry as Entry
from posenc.rotary.rope import RoPE

NOPE = Entry(
    name="nope",
    title="NoPE: no positional encoding; the causal mask alone breaks the symmetry",
    formula="s_ij = q_i·k_j · scale",
    source="Haviv et al., arXiv 2203.16634; Kazemnejad et al., arXiv 2305.19466",
    parameters="none",
    cost="none",
    past_training="only the softmax changes: it spreads over more keys",
    reads="nothing",
    extension="none of its own; scores may be sharpened as texts grow, or a window set",
    used_in="every fourth layer of Llama 4, Command A and EXAONE 4.0 (as in transformers 5.23)",
    avoid="in an encoder: without a causal mask, permuting the tokens only permutes the outputs",
)


def _entries() -> Iterator[Entry]:
    """Those that the modules of each hook point state, in the order in which its package names the modules."""
    yield NOPE
    for package in ("embedding", "rotary", "frequencies", "bias", "score", "weight"):
        for home in getattr(import_module(f"posenc.{package}"), "HOMES", ()):
            module = import_module(home)
            entries = getattr(module, "ENTRIES", None) or [getattr(module, "ENTRY", None)]
            for entry in filter(None, entries):
                yield entry if entry.scaling is None else replace(entry, encoding=RoPE)


CATALOGUE: Mapping[str, Entry] = {entry.name: entry for entry in _entries()}


def list_encodings(hook_point: str | None = None) -> list[str]:
    """List the catalogue's names, all or only of one hook point ("embedding", "rotary", "bias", "score", "weight").

    >>> list_encodings("bias")[:3]
    ['alibi', 't5', 'kerple']
    """
    if hook_point is not None and hook_point not in tuple(HOOK_POINTS):
        raise ValueError(f"hook_point must be one of {tuple(HOOK_POINTS)}, got {hook_point!r}")
    return [entry.name for entry in CATALOGUE.values() if hook_point in (None, entry.hook_point)]


def encoding_info(name: str) -> Entry:
    """Return the facts about one encoding, by its name in any case, with ``_`` or ``-`` between its words.

    >>> encoding_info("alibi").parameters
    'none'
    >>> encoding_info("yarn+resonance").needs == {"factor", "head_dim", "original_length"}
    True
    """

    def named(word: str) -> Entry | None:
        lower = word.strip().lower()
        return CATALOGUE.get(lower.replace("-", "_")) or CATALOGUE.get(lower.replace("_", "-"))

    return _one(name, named)


def find(word: str) -> Entry:
    """The facts about the encoding that a word means: its name, its class's name, or a common alias.

    >>> find("ForgetGate").name, find("linear").name
    ('fox', 'pi')
    """
    return _one(word, lambda part: resolve(part, CATALOGUE))


def names_in(recipe: str) -> list[str]:
    """The names that are joined by ``+``; scalings that follow one another act on one rotation and stay joined.

    >>> names_in("yarn + resonance + alibi")
    ['yarn+resonance', 'alibi']
    """

    def scales(name: str) -> bool:
        entry = resolve(name, CATALOGUE)
        return entry is not None and entry.scaling is not None

    parts = [name.strip() for name in _text("recipe", recipe).split("+")]
    runs = [(together, list(run)) for together, run in groupby(parts, scales)]
    return [name for together, run in runs for name in (["+".join(run)] if together else run)]


def _one(name: str, named: Callable[[str], Entry | None]) -> Entry:
    """The entry of one encoding, or of scalings joined by ``+``, which act on one rotation, the first one first."""
    entries = []
    for part in _text("name", name).split("+"):
        entry = named(part)
        if entry is None:
            raise ValueError(f"no encoding is named {part.strip()!r}{suggestion(part.strip(), CATALOGUE)}")
        entries.append(entry)
    first, *then = entries
    if not then:
        return first
    if any(entry.scaling is None for entry in entries):
        raise ValueError(
            f"name must be one encoding, or scalings joined by +: parse_encodings({name!r}, …) makes several"
        )
    return replace(
        first,
        name="+".join(entry.name for entry in entries),
        title="; then ".join(entry.title for entry in entries),
        formula="; then ".join(entry.formula for entry in entries),
        source="; ".join(entry.source for entry in entries),
        used_in="",
        avoid="",
        then=tuple(then),
        extends_context=any(entry.extends_context for entry in entries),
        exempt={check: reason for entry in entries for check, reason in entry.exempt.items()},
    )


def create_encoding(name: str, **shape: object) -> Encoding:
    """Create an encoding by name, for a model's shape.

    Args:
        name: see `list_encodings`; a class name or a common alias will do, as for ``posenc info``. Scalings joined
            by ``+`` act on one rotation, the first one first.
        shape: keywords that describe the model (dim, num_heads, num_kv_heads, head_dim, max_length, train_length), of
            which the encoding takes what it needs, and options of the encoding. ``train_length`` sets length-like
            options that are not given, such as T5's max_distance. ``dtype`` and ``device`` apply to parameters.

    Raises:
        ValueError: for an unknown name or option (the message names the nearest), or for a missing keyword.

    >>> create_encoding("rope", dim=512, num_heads=8, base=500_000.0)
    RoPE(64, base=500000, layout='half')
    >>> create_encoding("yarn+resonance", head_dim=64, original_length=4096, factor=4.0)
    RoPE(
      64, base=10000, layout='half'
      (scaling): Sequential(
        (0): YaRN(4, original_length=4096)
        (1): Resonance()
      )
    )
    """
    return find(name).create(**shape)


def parse_encodings(recipe: str, **shape: object) -> list[Encoding]:
    """Create a list of encodings from names joined by ``+``, each as in `create_encoding`; "nope" is the empty list.

    Consecutive scalings act on one rotation, as in "yarn+resonance+alibi".

    >>> parse_encodings("rope+alibi", head_dim=64, num_heads=2)
    [RoPE(64, base=10000, layout='half'), ALiBi(2, slopes=(0.0625, 0.003906))]
    """
    entries = map(find, names_in(recipe))
    return [entry.create(**shape) for entry in entries if entry.encoding is not None]


def _text(name: str, value: object) -> str:
    """The value; a ValueError unless it is a string."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a string, one of posenc.list_encodings(), got {shown(value)}")
    return value
