"""Writes what transformers' config classes decide of each model type: src/posenc/hf/families/defaults.json.

    python benchmarks/model_types.py            # for the installed transformers; run again for each of its releases

Read from instances of the classes: sizes, base, share, block and width of a head of the rotation, windows, the keys an
indexer picks, rows of tables, sizes of images, and the text model of a composite. What modelling code decides stands in
the records of posenc.hf.families, which are completed with these numbers where they give none of their own.
"""

from __future__ import annotations

import json
import logging
import warnings
from typing import Any

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

from posenc.hf.families import FILE, SIZES, written_records
from posenc.hf.families.family import SCALE_KEYS, SLIDING, WINDOWED, Family

_OF_NO_CODE = ("rope_theta", "type", "max_position_embeddings")  # next to the keys of a block
_PLAIN_BASE, _OTHER_BASE = 10_000.0, 12_345.0
WRITTEN = {name: record for names, record in written_records() for name in names}


def main() -> None:
    """Write the file anew; a model type that it does not have yet is new in the installed major version."""
    before = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    major = int(transformers.__version__.partition(".")[0])
    table: dict[str, dict[str, Any]] = {}
    for name in sorted(CONFIG_MAPPING_NAMES):
        record = WRITTEN.get(name)
        defaults = defaults_of(name, record)
        if record is not None:
            defaults["since"] = before.get(name, {}).get("since", major)
        if defaults:
            table[name] = defaults
    lines = [f"{json.dumps(name)}: {json.dumps(defaults)}" for name, defaults in table.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def defaults_of(name: str, record: Family | None) -> dict[str, Any]:
    """The numbers of a model type's class that its record leaves to it; of one without a record its text model."""
    try:
        config = CONFIG_MAPPING[name]()
    except Exception:  # a class that no default builds: nothing of it is known
        return {}
    text_type = at(config, "text_config.model_type")
    known = WRITTEN.get(text_type) if isinstance(text_type, str) else None
    defaults: dict[str, Any] = {"text_type": text_type} if known is not None and text_type != name else {}
    if record is None or record.unsupported or record.code_of:
        return defaults
    if record.rotation is not None:
        defaults |= of_rotation(name, config, record)
        defaults |= {} if "text_type" in defaults else {"sizes": [at(config, key) for key in SIZES]}
    switched = CONFIG_MAPPING[name](**{record.layers.window.switch: True}) if record.layers.window.switch else config
    window = at(switched, record.layers.window.key)
    if window and has_windows(record):
        defaults["window"] = window[0] if isinstance(window, list) else window
    attention = record.attention
    numbers = {"top_k": "index_topk", "softcap": "attn_logit_softcapping"}
    defaults |= {key: at(config, path) for key, path in numbers.items() if getattr(attention, key) == 0}
    if attention.scale in SCALE_KEYS and not is_quotient(name, attention.scale, at(config, attention.scale)):
        defaults["scale_number"] = at(config, attention.scale)
    return defaults | of_schemes(config, record)


def of_rotation(name: str, config: Any, record: Family) -> dict[str, Any]:
    """Base, share, block and widths."""
    rotation = record.rotation
    assert rotation is not None
    defaults: dict[str, Any] = {}
    block = at(config, "rope_parameters") or {}
    base = block.get("rope_theta")
    of_blocks = base_of(name, rope_parameters={"rope_type": "default"}) if base is not None else None
    if (of_blocks or base) not in (None, _PLAIN_BASE):
        defaults["base"] = of_blocks or base
    if rotation.latent:  # whose share is that of the part which rotates in the head
        block = {key: value for key, value in block.items() if key != "partial_rotary_factor"}
    if block.get("partial_rotary_factor") not in (None, 1.0):
        defaults["share"] = block["partial_rotary_factor"]
    if rotation.nested and any(isinstance(value, dict) for value in block.values()):
        defaults["block"] = block
    elif block.get("rope_type", "default") != "default":
        defaults["block"] = {key: value for key, value in block.items() if key not in _OF_NO_CODE}
    if of_blocks not in (None, base):
        defaults["block"] = {**defaults.get("block", {}), "rope_theta": base}
    key = next((kind.theta_key for kind in rotation.kinds.values()), rotation.theta_key)
    if not rotation.nested and base_of(name, **{key: _OTHER_BASE}) not in (None, _OTHER_BASE):
        defaults["block_only"] = True
    width_key = "qk_rope_head_dim" if rotation.latent else rotation.head_key
    for key, path in (("head_dim", width_key), ("full_head_dim", "global_head_dim")):
        width = at(config, path)
        if width is not None and not is_quotient(name, path, width):
            defaults[key] = width
    return defaults


def base_of(name: str, **keys: Any) -> float | None:
    """The base that a model type's class makes of these keys; None where it takes them not, or has several."""
    try:
        block = at(CONFIG_MAPPING[name](**keys), "rope_parameters") or {}
    except Exception:  # a class that asks for more
        return None
    blocks = [inner for inner in block.values() if isinstance(inner, dict)] or [block]
    bases = [inner.get("rope_theta") for inner in blocks]
    return next((base for base in bases if base == _OTHER_BASE), bases[0])


def of_schemes(config: Any, record: Family) -> dict[str, Any]:
    """Rows of the tables and sizes of the images."""
    defaults: dict[str, Any] = {}
    for scheme in record.schemes:
        table, patches = scheme.table, scheme.patches
        if table is not None:
            rows = at(config, table.key) or at(config, f"text_config.{table.key}")
            defaults |= {} if rows is None else {"rows": rows}
        if patches is not None:
            parent = f"{patches.parent}." if patches.parent else ""
            sizes = {key: at(config, f"{parent}{key}") for key in ("image_size", "patch_size")}
            defaults |= {key: size for key, size in sizes.items() if size is not None}
    return defaults


def has_windows(record: Family) -> bool:
    """Whether the code of a model type has layers with a window."""
    layers = record.layers
    listed = set(layers.listing.names.values()) if layers.listing else set()
    known = bool({*layers.cycle, *listed} & {*WINDOWED, SLIDING}) or bool(layers.window.switch)
    return known or layers.window.every_layer or layers.only_listed


def is_quotient(name: str, path: str, width: float) -> bool:
    """Whether a width follows from another one: twice the stream makes another width of a head."""
    stream, heads = (at(CONFIG_MAPPING[name](), key) for key in SIZES[:2])
    try:
        other = CONFIG_MAPPING[name](hidden_size=2 * stream)
    except Exception:  # a class of one width alone, or of none
        return bool(stream and heads and width * heads == stream)
    return bool(at(other, path) != width)


def at(config: Any, path: str) -> Any:
    """The value under a dotted key; None where there is none."""
    for key in path.split("."):
        try:
            config = config.get(key) if isinstance(config, dict) else getattr(config, key, None)
        except Exception:  # a number that layers differ in
            config = config.to_dict().get(key)
    return config


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    main()
    print(f"{FILE}: transformers {transformers.__version__}")
