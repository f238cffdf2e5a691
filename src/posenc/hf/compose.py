"""RoPE → the keys of a configuration, from nothing."""

from __future__ import annotations

from posenc.arguments import check_flag, check_whole, shown
from posenc.hf.door import check_version, rotations_of
from posenc.hf.families import ROTATIONS, RotationRules
from posenc.hf.layers import Layers, check_meaning
from posenc.hf.lengths import reach
from posenc.hf.mrope import Rotation, of_text
from posenc.hf.numbers import TOKENS
from posenc.hf.reading import Reading
from posenc.hf.respell import spelled
from posenc.hf.same import frozen
from posenc.hf.source import Config


def rope_to_config(
    rope: Rotation | Layers,
    *,
    version: int = 5,
    model_type: str | None = None,
    as_longrope: bool = False,
    original_length: int | None = None,
) -> Config:
    """The keys of a configuration that make transformers turn as ``rope`` does; merge them into a config.json.

    YaRN and LongRoPE come with ``max_position_embeddings``, the length that they stretch to. Llama 3's recipe does not:
    models with it declare more than its factor says.

    Args:
        rope: one, or one for each kind of layers (None: they do not turn).
        version: spelling of transformers 4 or 5.
        model_type: whose keys and layout to use, default Llama's.
        as_longrope: write any fixed spectrum as rope type "longrope", a factor for each pair.
        original_length: trained length for ``as_longrope``, if the scaling has none.

    Raises:
        ValueError: where no rope type says what the rotation does, and what can be done then.

    >>> from posenc import RoPE
    >>> rope_to_config(RoPE(128, base=500000.0))
    {'head_dim': 128, 'rope_parameters': {'rope_type': 'default', 'rope_theta': 500000.0}}
    """
    layers = rotations_of("rope", rope)
    check_version(version)
    if original_length is not None:
        check_whole("original_length", original_length, most=TOKENS)
    if check_flag("as_longrope", as_longrope):
        layers = {kind: None if one is None else frozen(one, original_length) for kind, one in layers.items()}
    if model_type is not None and (not isinstance(model_type, str) or model_type not in ROTATIONS):
        raise ValueError(f"model_type {shown(model_type)} is not known; known are {', '.join(sorted(ROTATIONS))}")
    family = RotationRules() if model_type is None else ROTATIONS[model_type]
    widths = {one.head_dim for one in layers.values() if one is not None}
    if len(widths) != 1:
        raise ValueError(f"rope: head_dim must be the same in all layers, and some must turn, got {sorted(widths)}")
    name: Config = {} if model_type is None else {"model_type": model_type}
    width = "qk_rope_head_dim" if family.latent else "head_dim"
    longest = reach(layers, recipes=False)
    config = {
        **name,
        width: widths.pop(),
        **({} if longest is None else {"max_position_embeddings": longest}),
        **spelled(layers, {}, family=family, version=version, convention="transformers"),
    }
    layouts = {of_text(one).layout for one in layers.values() if one is not None}
    layout = layouts.pop() if model_type is None and len(layouts) == 1 else None
    check_meaning(config, layers, Reading(layout=layout))
    return config
