"""The encodings of a posenc model, as its configuration lists them by their names in the catalogue.

"rope+alibi"   or   [{"name": "rope", "shared": true, "options": {"base": 10000.0}}, {"name": "alibi"}]

Of a schedule, "rope@64/nope:4", each line says in which layers it acts (default all), and "windows" lists those of the
layers: [{"name": "rope", "layers": [0, 1, 2]}] and [64, 64, 64, null].
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

import torch

from posenc.arguments import shown
from posenc.catalogue import SHAPE, Entry, encoding_info
from posenc.encoding import Encoding, RotaryEncoding
from posenc.hf.limits import CHANNELS, LARGEST, LAYERS, TOKENS, WIDTH, is_count, is_number
from posenc.schedule import Schedule

MODEL_TYPE = "posenc"
OWN = "own"  # the rotation that a layer has
DEFAULTS: dict[str, Any] = {
    "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "train_length": 2048, "encodings": "rope",
}  # fmt: skip
_WIDEST = 2**15  # channels of a stream: the widest has 18,432; fixed waves have that many numbers
_IN_TOKENS = ("length", "distance", "position", "threshold", "window", "tokens")  # options that may be longer
_COUNTS = {  # what a size may be at most
    "vocab_size": 16 * WIDTH, "hidden_size": _WIDEST, "intermediate_size": 16 * WIDTH, "num_hidden_layers": LAYERS,
    "num_attention_heads": _WIDEST, "num_key_value_heads": _WIDEST, "head_dim": CHANNELS, "train_length": TOKENS,
    "max_position_embeddings": TOKENS, "declared_length": TOKENS,
}  # fmt: skip
_FLAGS = ("qk_norm", "attention_bias", "use_cache", "tie_word_embeddings")
_NUMBERS = ("rms_norm_eps", "initializer_range")
_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")  # any integer: -1 stands in configurations for none
_MAY_BE_NULL = (
    "intermediate_size", "num_key_value_heads", "head_dim", "max_position_embeddings", "declared_length",
)  # fmt: skip


class EncodingSpec(TypedDict):
    """One encoding of a model."""

    name: str
    shared: bool
    options: dict[str, Any]
    layers: NotRequired[list[int]]  # where it acts, by number from 0; absent: in all


class Sizes(TypedDict):
    """What of a model's shape decides its encodings, in the words of the catalogue."""

    dim: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_length: int
    train_length: int
    layers: int


def check_size(key: str, value: object) -> None:
    """Raise a ValueError that names the key where its value is no size, flag or number that a model can have."""
    most = _COUNTS.get(key)
    if most is not None and not (is_count(value, most) or (value is None and key in _MAY_BE_NULL)):
        raise ValueError(f"{key} must be an integer in 1..{most}, found {shown(value)}")
    if key in _FLAGS and not isinstance(value, bool):
        raise ValueError(f"{key} must be true or false, found {shown(value)}")
    if key in _NUMBERS and not is_number(value, 0):
        raise ValueError(f"{key} must be a number in 0..{LARGEST:g}, found {shown(value)}")
    if key in _TOKENS and value is not None:
        ids = value if isinstance(value, list | tuple) else [value]
        if not all(isinstance(one, int) and not isinstance(one, bool) for one in ids):
            raise ValueError(f"{key} must be an integer, a list of integers or null, found {shown(value)}")


def sizes_of(config: Mapping[str, Any]) -> Sizes:
    """The sizes of a checked configuration, each in its place where the configuration does not say.

    Raises:
        ValueError: for a width that the heads do not divide, and for heads that share none or half a key.
    """
    given = {**DEFAULTS, **config}
    width, heads, train = given["hidden_size"], given["num_attention_heads"], given["train_length"]
    num_kv_heads = given.get("num_key_value_heads") or heads
    head_dim = given.get("head_dim")
    if head_dim is None and width % heads:
        raise ValueError(f"hidden_size = {width} is no multiple of num_attention_heads = {heads}: give head_dim")
    if heads % num_kv_heads:
        raise ValueError(f"num_key_value_heads = {num_kv_heads} must divide num_attention_heads = {heads}")
    if (head_dim or width // heads) > CHANNELS:
        text = f"over num_attention_heads = {heads} makes heads wider than {CHANNELS}"
        raise ValueError(f"hidden_size = {width} {text}")
    longest = given.get("max_position_embeddings") or train
    return {
        "dim": width, "num_heads": heads, "num_kv_heads": num_kv_heads, "head_dim": head_dim or width // heads,
        "max_length": longest, "train_length": train, "layers": given["num_hidden_layers"],
    }  # fmt: skip


def encoding_specs(encodings: object, sizes: Sizes, own: RotaryEncoding | None = None) -> list[EncodingSpec]:
    """The encodings, each with everything that decides it.

    Args:
        encodings: as a configuration has them.
        sizes: of the model.
        own: as in `create`.

    Raises:
        ValueError: for one that is not known or cannot be built at these sizes, and for one that wants positions
            that are not places in a text.
    """
    return [_line(given, sizes, own) for given in _given(encodings, sizes["layers"])]


def scheduled(text: str, layers: int) -> tuple[list[dict[str, Any]], list[int | None] | None]:
    """The lines and the windows of a schedule in words; None where no layer has a window.

    Lines stand in the order in which they act. Names in another order in some layers have a line for each order.
    """
    try:
        kinds = Schedule.parse(text).layers(layers)
    except ValueError as error:
        raise ValueError(f"encodings: {error}") from None
    found: list[dict[str, Any]] = []
    for number, kind in enumerate(kinds):
        at = 0
        for name in kind.names:
            known = next((n for n in range(at, len(found)) if found[n]["name"] == name), None)
            if known is None:
                found.insert(at, {"name": name, "layers": []})
                known = at
            found[known]["layers"].append(number)
            at = known + 1
    for line in found:
        if line["layers"] == list(range(layers)):
            del line["layers"]
    windows = [kind.window for kind in kinds]
    return found, windows if any(window is not None for window in windows) else None


def check_windows(windows: object, layers: int) -> None:
    """Raise a ValueError unless ``windows`` are tokens or null for each layer, or null."""
    if windows is None:
        return
    given = windows if isinstance(windows, list | tuple) else ()
    if len(given) != layers or not all(window is None or is_count(window, TOKENS) for window in given):
        raise ValueError(f"windows must be null, or tokens or null for each of {layers} layers, found {shown(windows)}")


def check_no_layer_state(encoding: Encoding) -> None:
    """Raise a ValueError for a rotation that layers must hand on to one another, which those of transformers do not."""
    if isinstance(encoding, RotaryEncoding) and encoding.carries:
        name = type(encoding).__name__
        raise ValueError(
            f"encodings: {name} has states that layers hand on, and no layer here does: TAPEAttention does"
        )


def create(line: EncodingSpec, sizes: Sizes, own: RotaryEncoding | None = None) -> Encoding:
    """One encoding of one line.

    Args:
        line: name and options.
        sizes: of the model.
        own: the layer's rotation, which the option ``"rotation": "own"`` of remapped distances means.

    Raises:
        ValueError: for options that it does not take; it names the encoding.
    """
    given = line if isinstance(line, Mapping) else {}
    if not isinstance(given.get("name"), str) or not isinstance(given.get("options"), Mapping):
        raise ValueError(f"line must have a name and options, as those of the encodings, got {shown(line)}")
    try:
        shape = {word: size for word, size in sizes.items() if word != "layers"}
        rotation = {"rotation": copy.deepcopy(own)} if own is not None and asks_for_own(line) else {}
        return encoding_info(line["name"]).create(**{**shape, **line["options"], **rotation})
    except (TypeError, ValueError, ArithmeticError) as error:  # an option of a wrong kind, or out of its range
        raise ValueError(f"encodings: {line['name']} with options {shown(line['options'])}: {error}") from error


def asks_for_own(line: Mapping[str, Any]) -> bool:
    """Whether an encoding is to rotate as the layer itself does."""
    options = line.get("options")
    return isinstance(options, Mapping) and options.get("rotation") == OWN


def _given(encodings: object, layers: int) -> list[Mapping[str, Any]]:
    if isinstance(encodings, str):
        return list(scheduled(encodings, layers)[0])
    if not isinstance(encodings, Sequence) or not all(isinstance(line, Mapping) for line in encodings):
        text = "encodings must be names joined by +, or a list of objects with a name"
        raise ValueError(f"{text}, got {shown(encodings)}")
    return list(encodings)


def _line(given: Mapping[str, Any], sizes: Sizes, own: RotaryEncoding | None) -> EncodingSpec:
    """A line with everything that decides the encoding, checked."""
    entry, options = _checked(given)
    lengths = {key: value for key, value in entry.lengths(sizes["train_length"]).items() if key not in SHAPE}
    line: EncodingSpec = {
        "name": entry.name,
        "shared": given.get("shared", entry.shared),
        "options": {**lengths, **options},
    }
    if given.get("layers") is not None:
        line["layers"] = _places(entry, given["layers"], sizes["layers"])
    if entry.own_positions:
        raise ValueError(f"encodings: positions of {entry.name} are not places in a text, which is all there is here")
    with torch.device("meta"):  # only its kind is of interest, and a table may be large
        made = create(line, sizes, own)
    if made.axes > 1:
        raise ValueError(f"encodings: positions of {entry.name} have {made.axes} coordinates, those of text one")
    check_no_layer_state(made)
    return line


def _places(entry: Entry, given: object, layers: int) -> list[int]:
    """In which layers an encoding acts, checked."""
    found = [n for n in given if type(n) is int and 0 <= n < layers] if isinstance(given, list | tuple) else []
    if not isinstance(given, list | tuple) or found != sorted(set(found)) or len(found) != len(given):
        text = f"must be numbers of layers in 0..{layers - 1}, each once and growing, found {shown(given)}"
        raise ValueError(f"encodings: layers of {entry.name} {text}")
    if entry.hook_point == "embedding" and len(found) != layers:
        raise ValueError(f"encodings: {entry.name} acts on embeddings, once for all layers")
    return found


def _checked(given: Mapping[str, Any]) -> tuple[Entry, dict[str, Any]]:
    if set(given) - {"name", "shared", "options", "layers"} or not isinstance(given.get("name"), str):
        text = "encodings: name is needed, shared, options and layers are possible"
        raise ValueError(f"{text}, got {shown(dict(given))}")
    options = given.get("options", {})
    if not isinstance(options, Mapping) or not all(isinstance(key, str) for key in options):
        raise ValueError(f"encodings: options of {given['name']} must be an object, found {shown(options)}")
    if not isinstance(given.get("shared", True), bool):
        raise ValueError(f"encodings: shared of {given['name']} must be true or false, found {shown(given['shared'])}")
    for key, value in options.items():
        numbers = value if isinstance(value, list | tuple) else [value]
        most = _WIDEST if is_count(value) and not any(word in key for word in _IN_TOKENS) else TOKENS
        if any(
            isinstance(one, int | float) and not isinstance(one, bool) and not is_number(one, -most, most)
            for one in numbers
        ):
            text = f"must be at most {most}, found {shown(value)}"
            raise ValueError(f"encodings: option {key} of {given['name']} {text}")
    try:
        return encoding_info(given["name"]), dict(options)
    except ValueError as error:
        raise ValueError(f"encodings: {error}") from None
