"""Changes of a config after which an engine that reads the case's config wrongly may read it right.

Each is a config that means the same to transformers; the check runs it in the same engine and keeps the first that is
right. What no change of the config mends may still be mended by flags of the engine, which are not tried here.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

from posenc.engines.cases import Case

Block = dict[str, Any]
_PLACES = ("rope_parameters", "rope_scaling")


def changes(case: Case) -> Iterator[tuple[str, Block]]:
    """What is changed, and the whole config after it."""
    both = _both_spellings(case.config)
    for what, change in (("the gain as mscale and mscale_all_dim", _gain_as_mscale), ("betas written out", _betas)):
        changed = _blocks_changed(case.config, change)
        if changed != case.config:
            yield what, changed
            if both is not None and (twice := _blocks_changed(both, change)) != changed:
                yield f"both spellings, {what}", twice
    if both is not None:
        yield "both spellings", both


def _blocks_changed(config: Block, change: Callable[[Block], Block]) -> Block:
    result = copy.deepcopy(config)
    if "text_config" in result:
        return {**result, "text_config": _blocks_changed(result["text_config"], change)}
    for place in _PLACES:
        block = result.get(place)
        if isinstance(block, dict) and "rope_type" in block:
            result[place] = change(block)
    return result


def _gain_as_mscale(block: Block) -> Block:
    """YaRN's gain is (0.1 m ln s + 1) / (0.1 a ln s + 1) of mscale m, mscale_all_dim a and factor s; a is 1 here."""
    gain = block.get("attention_factor")
    if block["rope_type"] != "yarn" or gain is None:
        return block
    slope = 0.1 * math.log(block["factor"])
    rest = {key: value for key, value in block.items() if key != "attention_factor"}
    return {**rest, "mscale": (gain * (slope + 1) - 1) / slope, "mscale_all_dim": 1.0}


def _betas(block: Block) -> Block:
    return {"beta_fast": 32.0, "beta_slow": 1.0, **block} if block["rope_type"] == "yarn" else block


def _both_spellings(config: Block) -> Block | None:
    """The config with version-4 and version-5 keys; None where it has both, or a block for each kind of layers."""
    if "text_config" in config:
        inner = _both_spellings(config["text_config"])
        return None if inner is None else {**config, "text_config": inner}
    result, block = copy.deepcopy(config), config.get("rope_parameters")
    if block is None and "rope_theta" in config:
        inner = {key: value for key, value in (config.get("rope_scaling") or {}).items() if key != "type"}
        share = {key: config[key] for key in ("partial_rotary_factor",) if key in config}
        result["rope_parameters"] = {"rope_type": "default", **inner, "rope_theta": config["rope_theta"], **share}
        return result
    if not isinstance(block, dict) or "rope_type" not in block or "rope_scaling" in config:
        return None
    outside = ("rope_theta", "partial_rotary_factor")
    result |= {key: block[key] for key in outside if key in block}
    inner = {key: value for key, value in block.items() if key not in outside}
    result["rope_scaling"] = None if block["rope_type"] == "default" else {**inner, "type": block["rope_type"]}
    return result
