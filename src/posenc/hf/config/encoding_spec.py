"""The encodings of a posenc model, as its configuration lists them by their names in the catalogue.

"rope+alibi"   or   [{"name": "rope", "shared": true, "options": {"base": 10000.0}}, {"name": "alibi"}]

Of a schedule, "rope@64/nope:4", each entry says in which layers it acts (default all), and "windows" lists one
window a layer: [{"name": "rope", "layers": [0, 1, 2]}] and [64, 64, 64, null].
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

import torch

from posenc.arguments import shown
from posenc.catalogue import SHAPE, Entry, encoding_info
from posenc.encoding import Encoding, RotaryEncoding
from posenc.hf.config.rope_keys import ALL
from posenc.hf.config.rotation import Rotation
from posenc.hf.config.text_config import DEFAULTS
from posenc.hf.limits import CHANNELS, LARGEST, LAYERS, TOKENS, WIDTH, is_count, is_number
from posenc.hf.sources.load import Config
from posenc.rotary.rope import RoPE
from posenc.schedule import Schedule

LAYER_ROTATION = "own"  # the value of "rotation" that means the layer's rotation
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
        if not all(isinstance(token_id, int) and not isinstance(token_id, bool) for token_id in ids):
            raise ValueError(f"{key} must be an integer, a list of integers or null, found {shown(value)}")


def sizes_of(config: Mapping[str, Any]) -> Sizes:
    """The sizes of a checked configuration, each in its place where the configuration does not say.

    Raises:
        ValueError: for a width that the heads do not divide, and for heads that share none or half a key.
    """
    values = {**DEFAULTS, **config}
    width, heads, train = values["hidden_size"], values["num_attention_heads"], values["train_length"]
    num_kv_heads = values.get("num_key_value_heads") or heads
    head_dim = values.get("head_dim")
    if head_dim is None and width % heads:
        raise ValueError(f"hidden_size = {width} is no multiple of num_attention_heads = {heads}: give head_dim")
    if heads % num_kv_heads:
        raise ValueError(f"num_key_value_heads = {num_kv_heads} must divide num_attention_heads = {heads}")
    if (head_dim or width // heads) > CHANNELS:
        text = f"over num_attention_heads = {heads} makes heads wider than {CHANNELS}"
        raise ValueError(f"hidden_size = {width} {text}")
    longest = values.get("max_position_embeddings") or train
    return {
        "dim": width, "num_heads": heads, "num_kv_heads": num_kv_heads, "head_dim": head_dim or width // heads,
        "max_length": longest, "train_length": train, "layers": values["num_hidden_layers"],
    }  # fmt: skip


def encoding_specs(encodings: object, sizes: Sizes, layer_rotation: RotaryEncoding | None = None) -> list[EncodingSpec]:
    """The encodings, each with everything that decides it.

    Args:
        encodings: as a configuration has them.
        sizes: of the model.
        layer_rotation: as in `create`.

    Raises:
        ValueError: for an encoding that is unknown, cannot be built at these sizes, or takes positions other than
            indices of tokens.
    """
    return [_complete_spec(entry, sizes, layer_rotation) for entry in _listed(encodings, sizes["layers"])]


def scheduled(text: str, layers: int) -> tuple[list[dict[str, Any]], list[int | None] | None]:
    """The specs and the windows of a schedule in words; None where no layer has a window.

    Specs stand in the order in which they act. Names in another order in some layers have a spec for each order.
    """
    try:
        kinds = Schedule.parse(text).layers(layers)
    except ValueError as error:
        raise ValueError(f"encodings: {error}") from None
    specs: list[dict[str, Any]] = []
    for number, kind in enumerate(kinds):
        at = 0
        for name in kind.names:
            index = next((n for n in range(at, len(specs)) if specs[n]["name"] == name), None)
            if index is None:
                specs.insert(at, {"name": name, "layers": []})
                index = at
            specs[index]["layers"].append(number)
            at = index + 1
    for spec in specs:
        if spec["layers"] == list(range(layers)):
            del spec["layers"]
    windows = [kind.window for kind in kinds]
    return specs, windows if any(window is not None for window in windows) else None


def check_windows(windows: object, layers: int) -> None:
    """Raise a ValueError unless ``windows`` are tokens or null for each layer, or null."""
    if windows is None:
        return
    listed = windows if isinstance(windows, list | tuple) else ()
    if len(listed) != layers or not all(window is None or is_count(window, TOKENS) for window in listed):
        raise ValueError(f"windows must be null, or tokens or null for each of {layers} layers, found {shown(windows)}")


def create(spec: EncodingSpec, sizes: Sizes, layer_rotation: RotaryEncoding | None = None) -> Encoding:
    """The encoding of one spec.

    Args:
        spec: name and options.
        sizes: of the model.
        layer_rotation: what the option ``"rotation": "own"`` of remapped distances stands for.

    Raises:
        ValueError: for options that it does not take; it names the encoding.
    """
    fields = spec if isinstance(spec, Mapping) else {}
    if not isinstance(fields.get("name"), str) or not isinstance(fields.get("options"), Mapping):
        raise ValueError(f"spec must have a name and options, like every entry of encodings, got {shown(spec)}")
    try:
        shape = {word: size for word, size in sizes.items() if word != "layers"}
        rotation = (
            {"rotation": copy.deepcopy(layer_rotation)} if layer_rotation is not None and asks_for_own(spec) else {}
        )
        return encoding_info(spec["name"]).create(**{**shape, **spec["options"], **rotation})
    except (TypeError, ValueError, ArithmeticError) as error:  # an option of a wrong kind, or out of its range
        raise ValueError(f"encodings: {spec['name']} with options {shown(spec['options'])}: {error}") from error


def asks_for_own(spec: Mapping[str, Any]) -> bool:
    """Whether an encoding is to rotate as the layer itself does."""
    options = spec.get("options")
    return isinstance(options, Mapping) and options.get("rotation") == LAYER_ROTATION


def _listed(encodings: object, layers: int) -> list[Mapping[str, Any]]:
    if isinstance(encodings, str):
        return list(scheduled(encodings, layers)[0])
    if not isinstance(encodings, Sequence) or not all(isinstance(spec, Mapping) for spec in encodings):
        text = "encodings must be names joined by +, or a list of objects with a name"
        raise ValueError(f"{text}, got {shown(encodings)}")
    return list(encodings)


def _complete_spec(fields: Mapping[str, Any], sizes: Sizes, layer_rotation: RotaryEncoding | None) -> EncodingSpec:
    """A validated spec with everything that decides the encoding."""
    entry, options = _checked(fields)
    lengths = {key: value for key, value in entry.lengths(sizes["train_length"]).items() if key not in SHAPE}
    spec: EncodingSpec = {
        "name": entry.name,
        "shared": fields.get("shared", entry.shared),
        "options": {**lengths, **options},
    }
    if fields.get("layers") is not None:
        spec["layers"] = _layer_numbers(entry, fields["layers"], sizes["layers"])
    if entry.own_positions:
        raise ValueError(f"encodings: positions of {entry.name} are not indices of tokens, which is all there is here")
    with torch.device("meta"):  # only its kind is of interest, and a table may be large
        encoding = create(spec, sizes, layer_rotation)
    if encoding.axes > 1:
        raise ValueError(
            f"encodings: positions of {entry.name} have {encoding.axes} coordinates, positions in a text one"
        )
    return spec


def _layer_numbers(entry: Entry, listed: object, layers: int) -> list[int]:
    """In which layers an encoding acts, checked."""
    numbers = [n for n in listed if type(n) is int and 0 <= n < layers] if isinstance(listed, list | tuple) else []
    if not isinstance(listed, list | tuple) or numbers != sorted(set(numbers)) or len(numbers) != len(listed):
        text = f"must be numbers of layers in 0..{layers - 1}, each once and growing, found {shown(listed)}"
        raise ValueError(f"encodings: layers of {entry.name} {text}")
    if entry.hook_point == "embedding" and len(numbers) != layers:
        raise ValueError(f"encodings: {entry.name} acts on embeddings, once for all layers")
    return numbers


def _checked(fields: Mapping[str, Any]) -> tuple[Entry, dict[str, Any]]:
    if set(fields) - {"name", "shared", "options", "layers"} or not isinstance(fields.get("name"), str):
        text = "encodings: name is needed, shared, options and layers are possible"
        raise ValueError(f"{text}, got {shown(dict(fields))}")
    options = fields.get("options", {})
    if not isinstance(options, Mapping) or not all(isinstance(key, str) for key in options):
        raise ValueError(f"encodings: options of {fields['name']} must be an object, found {shown(options)}")
    if not isinstance(fields.get("shared", True), bool):
        raise ValueError(
            f"encodings: shared of {fields['name']} must be true or false, found {shown(fields['shared'])}"
        )
    for key, value in options.items():
        numbers = value if isinstance(value, list | tuple) else [value]
        most = _WIDEST if is_count(value) and not any(word in key for word in _IN_TOKENS) else TOKENS
        if any(
            isinstance(number, int | float) and not isinstance(number, bool) and not is_number(number, -most, most)
            for number in numbers
        ):
            text = f"must be at most {most}, found {shown(value)}"
            raise ValueError(f"encodings: option {key} of {fields['name']} {text}")
    try:
        return encoding_info(fields["name"]), dict(options)
    except ValueError as error:
        raise ValueError(f"encodings: {error}") from None


def posenc_specs(config: Config) -> list[EncodingSpec]:
    """The encodings of one, each with everything that decides it.

    Raises:
        ValueError: for a size or an encoding that cannot be; it names the key.
    """
    for key, value in config.items():
        check_size(key, value)
    return encoding_specs(config.get("encodings", DEFAULTS["encodings"]), sizes_of(config))


def posenc_layers(config: Config) -> Mapping[str, Rotation | None]:
    """The rotation of one, where it is a single RoPE; None for any other encoding."""
    rotary = [line for line in posenc_specs(config) if encoding_info(line["name"]).encoding is RoPE]
    rope = create(rotary[0], sizes_of(config)) if len(rotary) == 1 else None
    return {ALL: rope if isinstance(rope, RoPE) else None}


def describe_spec(line: EncodingSpec) -> tuple[str, str]:
    """One encoding in words, and the call that builds it."""
    entry = encoding_info(line["name"])
    options = ", ".join(f"{key}={value!r}" for key, value in line["options"].items())
    cls = "" if entry.encoding is None else entry.encoding.__name__
    inner = f"scaling={entry.scaling.__name__}({options})" if entry.scaling is not None else options
    whose = "one for all layers" if line["shared"] else "one for each layer"
    call = f"create_encoding({entry.name!r}, {options})" if entry.then else f"{cls}({inner})"
    return f"{entry.name}: {entry.title} ({entry.hook_point}), {whose}", call
