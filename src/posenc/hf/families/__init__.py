"""What is known of each model type: a record of what its code decides, and numbers that its config class decides.

To add a family, write one `Family` in the file that fits (decoders, encoders, encoder_decoders, hybrids, multimodal,
vision, audio; remote_code for what transformers does not have), and run benchmarks/model_types.py, which reads the
class's own numbers into `defaults`. The parts of a record are explained where they are defined: `RotationRules`,
`LayerPattern`, `Attention`, `PositionScheme`. tests/reference holds every record against the code of transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from posenc.hf.families.audio import AUDIO
from posenc.hf.families.decoders import DECODERS
from posenc.hf.families.defaults import Completed
from posenc.hf.families.encoder_decoders import ENCODER_DECODERS
from posenc.hf.families.encoders import ENCODERS
from posenc.hf.families.family import Attention, Family, LayerPattern, RotationRules, Sizes
from posenc.hf.families.hybrids import HYBRIDS
from posenc.hf.families.multimodal import MULTIMODAL
from posenc.hf.families.position_schemes import PositionScheme
from posenc.hf.families.remote_code import REMOTE_CODE
from posenc.hf.families.vision import VISION

__all__ = [
    "FAMILIES", "NON_ROTARY", "RECORDS", "ROTARY", "ROTATIONS", "UNSUPPORTED", "Attention", "Family", "LayerPattern",
    "PositionScheme", "RotationRules", "Sizes", "family_of", "record_of",
]  # fmt: skip

if TYPE_CHECKING:
    ROTARY: dict[str, Family]
    ROTATIONS: dict[str, RotationRules]
    NON_ROTARY: dict[str, Family]
    UNSUPPORTED: dict[str, str]

RECORDS: dict[str, Family] = {
    **DECODERS, **ENCODERS, **ENCODER_DECODERS, **HYBRIDS, **MULTIMODAL, **VISION, **AUDIO,
    **REMOTE_CODE,
}  # fmt: skip
FAMILIES: Mapping[str, Family] = Completed(RECORDS)


def __getattr__(name: str) -> Any:
    """Lists of model types by what their code has, made where somebody goes through them."""
    lists: dict[str, Callable[[Family], Any]] = {
        "ROTARY": lambda family: family.rotation and family,
        "ROTATIONS": lambda family: family.rotation,
        "NON_ROTARY": lambda family: None if family.rotation or not family.schemes else family,
        "UNSUPPORTED": lambda family: family.unsupported,
    }
    if name not in lists:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = {model_type: value for model_type, family in FAMILIES.items() if (value := lists[name](family))}
    globals()[name] = found
    return found


def record_of(name: str) -> Family | None:
    """The record of a model type, or of its text part (``name`` + "_text"); None where there is neither.

    A composite model's record, which only names its text model, does not count.
    """
    for model_type in (name, f"{name}_text"):
        family = FAMILIES.get(model_type)
        if family is not None and family.code_of:
            return replace(FAMILIES[family.code_of], since=family.since)
        if family is not None and (family.rotation or family.schemes or family.unsupported):
            return family
    return None


def family_of(model_types: list[str], *, listed: bool, latent: bool) -> tuple[Family, bool]:
    """The record of the first of ``model_types`` that has one, and whether it rotates by known rules.

    Without any record the rotation is read as in a Llama, or in DeepSeek's models under latent attention.

    Args:
        model_types: of the text part, then of the parts around it.
        listed: whether the config has ``layer_types``.
        latent: whether the config has ``qk_rope_head_dim``.
    """
    family = next((record for name in model_types if (record := record_of(name)) is not None), None)
    if family is None:
        return Family(RotationRules(layout="interleaved", latent=True) if latent else RotationRules()), False
    if listed and family.code_if_listed:
        family = FAMILIES[family.code_if_listed]
    return family, family.rotation is not None
