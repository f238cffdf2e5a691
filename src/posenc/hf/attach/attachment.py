"""Positional encodings attached to a transformers model in place of its own, without a change to its code.

    from posenc.hf.attach import attach, detach, load
    attach(model, "fox")                     # or "own+alibi": in addition to the rotation that the model has
    detach(model)                            # the model as it was

    model.save_pretrained(folder)
    load(folder)                             # the only way in: plain from_pretrained refuses such a folder

Nothing of transformers changes on import. A saved configuration names the attention implementation "posenc", which
transformers does not know until `attach` or `load` has run, so that without them it raises. The window, sink,
temperature, cap and scale of each layer stay the model's own. Caches keep keys un-rotated (`cache_adapter`). Learned
position embeddings are switched off (`position_table`), and attention that GPT-J and Falcon compute in their layers is
routed through posenc's (`other_positions`). Needs the package transformers.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from posenc.arguments import one_line, shown
from posenc.encoding import EmbeddingEncoding, Encoding, RotaryEncoding, WeightEncoding
from posenc.hf.attach.attention_function import NAME, Attached, prepare, register
from posenc.hf.attach.other_positions import (
    MODEL_TYPES,
    is_inline,
    position_table,
    route,
    switch_off,
    switch_on,
    unroute,
)
from posenc.hf.attach.supported import (
    check_layers,
    check_reached,
    layer_facts,
    shape_of,
    source_of,
    supported_layers,
    takes_rotation,
)
from posenc.hf.config.encoding_spec import (
    LAYER_ROTATION,
    EncodingSpec,
    Sizes,
    asks_for_own,
    create,
    encoding_specs,
)
from posenc.hf.config.layers import LayerFacts
from posenc.hf.config.rotation import text_rope
from posenc.hf.explanation.layer_attention import encodings_of
from posenc.rotary.mrope import MRoPE
from posenc.rotary.rope import RoPE

_REORDERING = "apply_rotary_pos_emb_interleave"  # a function of transformers that brings pairs into the half layout
_READ_ME = (
    "These layers have positional encodings of the Python package posenc in the place of their own rotation. Load with "
    "posenc.hf.attach.load(folder). from_pretrained refuses the attention implementation 'posenc'; with another one "
    "given by hand it would compute the original rotation: another model."
)
_IMPLEMENTATION = "_attn_implementation"
Model = TypeVar("Model", bound=nn.Module)
_EncodingList = Sequence[Mapping[str, Any]] | Sequence[Encoding]


def attach(model: Model, encodings: str | _EncodingList, layers: Iterable[int] | None = None) -> Model:
    """Put encodings in the place of a model's rotation or learned positions. Each layer has its own parameters.

    Args:
        model: a decoder of transformers, changed in place.
        encodings: names of the catalogue joined by ``+``, a schedule over layers such as ``"rope/nope:4"``, or a list
            with a ``name`` and ``options`` for each, as `posenc.hf.modeling.PosencConfig` takes them; or encodings, of
            which each layer gets a copy. ``"own"``, alone or first, is the rotation that the layer has, and as the
            option ``rotation`` of remapped distances what they rotate by. In models with a learned position embedding
            (GPT-2, OPT, BioGPT) ``"own"`` keeps that embedding, and anything else switches it off. ``"nope"`` is
            nothing. Encodings built in Python are not built again by ``from_pretrained``.
        layers: numbers from 0; None: all that have attention. The others stay as they are. GPT-J, Falcon and learned
            position embeddings change in all layers together.

    Returns:
        The model. Its parameters have grown by those of the encodings: make the optimizer after this.

    Raises:
        ValueError: for an unsupported model or layer, and for encodings that do not fit; it says which.
    """
    if not isinstance(model, PreTrainedModel):
        raise ValueError(f"model must be a model of transformers, got {shown(model)}")
    modules = supported_layers(model)
    chosen = sorted(modules) if layers is None else check_layers(layers, modules)
    first = modules[chosen[0]]
    config, before = first.config, first.config._attn_implementation
    keeps_own, others = _without_own(encodings)
    remaps_own = isinstance(others, Sequence) and any(isinstance(e, Mapping) and asks_for_own(e) for e in others)
    facts = layer_facts(config) if keeps_own or remaps_own else ()
    own_rotation = _rotation(facts[chosen[0]], chosen[0], first) if remaps_own else None
    spec = _parse_encodings(keeps_own, others, shape_of(first), own_rotation)
    table = position_table(model)
    if len(chosen) < len(modules):
        _check_partial(first, table, spec.keep_rotation)
    built = {n: spec.build(n, modules[n], facts, before) for n in chosen}  # all of them, before anything is changed
    if table is not None and not spec.keep_rotation:
        switch_off(table)
    for n, attached in built.items():
        if is_inline(modules[n]):
            route(modules[n])
        attached.handle = modules[n].register_forward_pre_hook(prepare, with_kwargs=True)
        modules[n].add_module(NAME, attached)
    register()
    config._attn_implementation = NAME
    # The property of this name keeps its value elsewhere, in what is not saved: this entry alone reaches config.json.
    config.__dict__[_IMPLEMENTATION] = NAME
    config.posenc = {"read_me": _READ_ME, **spec.record(), "layers": chosen}
    try:
        check_reached(model, first)
    except ValueError:
        detach(model)
        raise
    return model


def detach(model: Model) -> Model:
    """Take away what `attach` has put in; the model is what it was, but for what was trained.

    Raises:
        ValueError: where nothing is attached.
    """
    layers = [module for module in model.modules() if isinstance(getattr(module, NAME, None), Attached)]
    if not layers:
        raise ValueError("model has no encodings attached")
    for module in layers:
        attached: Any = module.posenc
        attached.handle.remove()
        config: Any = module.config
        config._attn_implementation = attached.before
        config.__dict__.pop(_IMPLEMENTATION, None)
        if hasattr(config, NAME):
            del config.posenc
        delattr(module, NAME)
        unroute(module)
    table = position_table(model)
    if table is not None:
        switch_on(table)
    return model


def _check_partial(module: nn.Module, table: nn.Module | None, keep_rotation: bool) -> None:
    """Raise a ValueError for a model whose layers can only be given encodings all together."""
    if is_inline(module):
        raise ValueError(
            f"layers: {type(module).__name__} computes its attention itself, and all layers change together: leave out "
            "layers"
        )
    if table is not None and not keep_rotation:
        raise ValueError(
            "layers: the learned position embedding, which the encodings replace, belongs to all layers: leave out "
            "layers, or begin with own, which keeps it"
        )


class _AttachedEncodings(NamedTuple):
    """The encodings of an attachment, of which each layer gets its own.

    Attributes:
        keep_rotation: whether the layers' own rotation comes first.
        specs: encodings by name, which are built for each layer.
        instances: encodings built in Python, which are copied for each layer.
    """

    keep_rotation: bool
    specs: Sequence[EncodingSpec]
    instances: Sequence[Encoding] = ()

    def record(self) -> dict[str, Any]:
        """The encodings as the configuration stores them."""
        if self.instances:
            return {"built_in_python": [one_line(encoding) for encoding in self.instances]}
        specs = [{key: value for key, value in spec.items() if key != "shared"} for spec in self.specs]
        return {"encodings": [*([{"name": LAYER_ROTATION}] if self.keep_rotation else []), *specs]}

    def build(self, number: int, module: Any, facts: Sequence[LayerFacts], before: str | None) -> Attached:
        """The module of one layer."""
        weight = next(parameter for parameter in module.parameters() if parameter.is_floating_point())
        encodings: list[Encoding] = []
        rotated_last = 0
        if self.keep_rotation and getattr(module.config, "alibi", False):
            raise ValueError(
                "encodings: own: this model has ALiBi, whose bias transformers rounds to bfloat16 and divides by the "
                "root of head_dim, and which no encoding here repeats: leave out own"
            )
        if facts:
            layer = facts[number]
            encodings = encodings_of(_rotation_alone(layer, number, module)) if self.keep_rotation else []
            if layer.rotation is not None and layer.rotates_last:
                rotated_last = text_rope(layer.rotation).rotary_dim
        specs = [spec for spec in self.specs if number in spec.get("layers", [number])]
        with torch.device(weight.device):
            for spec in specs:
                rotation = _rotation(facts[number], number, module) if asks_for_own(spec) else None
                encodings.append(create(spec, shape_of(module), rotation))
        encodings += [copy.deepcopy(encoding) for encoding in self.instances]
        replaces_softmax = any(isinstance(encoding, WeightEncoding) for encoding in encodings)
        if getattr(module, "sinks", None) is not None and replaces_softmax:
            raise ValueError(f"encodings: layer {number} has sinks, which need softmax, and one encoding replaces it")
        given_rotation = takes_rotation(module) and not is_inline(module)
        attached = Attached(encodings, rotated_last=rotated_last, before=before, given_rotation=given_rotation)
        return attached.to(weight.device, weight.dtype).train(module.training)


def _without_own(encodings: object) -> tuple[bool, object]:
    """Whether the first of some encodings is the layers' own rotation, and the others."""
    if isinstance(encodings, str):
        first, _, others = encodings.partition("+")
        return (True, others or []) if first.strip().lower() == LAYER_ROTATION else (False, encodings)
    keeps = isinstance(encodings, Sequence) and bool(encodings) and encodings[0] == {"name": LAYER_ROTATION}
    return (True, encodings[1:]) if keeps else (False, encodings)  # type: ignore[index]


def _rotation(facts: LayerFacts, number: int, module: nn.Module) -> RotaryEncoding:
    """The rotation of a layer; a ValueError for a layer without one."""
    encodings = encodings_of(_rotation_alone(facts, number, module))
    rotation = next((encoding for encoding in encodings if isinstance(encoding, RotaryEncoding)), None)
    if rotation is None:
        raise ValueError(f"encodings: layer {number} does not rotate, so it has no own rotation: give layers")
    return rotation


def _parse_encodings(
    keeps_own: bool, encodings: object, sizes: Sizes, rotation: RotaryEncoding | None
) -> _AttachedEncodings:
    listed = encodings if isinstance(encodings, Sequence) and not keeps_own else ()
    if listed and all(isinstance(encoding, Encoding) for encoding in listed):
        if any(isinstance(encoding, EmbeddingEncoding) for encoding in listed):
            raise ValueError("encodings: an encoding of embeddings cannot be attached to a layer's attention")
        return _AttachedEncodings(False, [], listed)
    if isinstance(encodings, str) and "@" in encodings:
        raise ValueError(f"encodings: an attachment keeps the model's windows, got {encodings!r}: leave out @")
    specs = encoding_specs(encodings, sizes, rotation)
    for spec in specs:
        with torch.device("meta"):
            if isinstance(create(spec, sizes, rotation), EmbeddingEncoding):
                raise ValueError(f"encodings: {spec['name']} acts on embeddings, not in a layer's attention")
    return _AttachedEncodings(keeps_own, specs)


def _rotation_alone(facts: LayerFacts, number: int, module: nn.Module) -> LayerFacts:
    """The facts of a layer without temperature and sink, which the model still applies itself."""
    rope = facts.rotation
    if isinstance(rope, RoPE) and rope.layout == "interleaved" and _REORDERING in source_of(module):
        # The model brings its pairs into the half layout before it rotates them, and hands them on so.
        facts = facts._replace(spec=rope.replace(layout="half"))
    if isinstance(facts.rotation, MRoPE):
        raise ValueError(
            f"encodings: layer {number} rotates by three coordinates of a token (M-RoPE), of which layers get one"
        )
    if facts.normed_after and facts.rotation is not None:
        raise ValueError(
            f"encodings: layer {number} norms queries and keys after its rotation: encodings come too late"
        )
    return facts._replace(temperature=None, sink="")


def load(folder: str | Path, **options: Any) -> Any:
    """A model that was saved with encodings attached, with them and their weights.

    Args:
        folder: that ``save_pretrained`` or ``posenc attach`` wrote, or its name on the Hub.
        options: for ``from_pretrained``: dtype, device_map, trust_remote_code (False unless it is given).

    Returns:
        The model of transformers.

    Raises:
        ValueError: for a folder without encodings, for encodings that were built in Python, and for tensors that are
            missing.
    """
    return whole_model(folder, *load_with_info(folder, **options))


def load_with_info(folder: str | Path, **options: Any) -> tuple[Any, dict[str, Any]]:
    """What `load` loads, and what ``from_pretrained`` says with ``output_loading_info=True``."""
    options = {"trust_remote_code": False, **options}
    source = {key: options[key] for key in ("trust_remote_code", "local_files_only", "revision") if key in options}
    config = options.pop("config", None) or AutoConfig.from_pretrained(folder, **source)
    block = block_of(config)
    if block is None:
        raise ValueError(f"folder: {folder} has no encodings attached: load it with from_pretrained")
    register()
    if config.model_type in MODEL_TYPES:  # they choose the class of their attention by its implementation
        config._attn_implementation = None
        config.__dict__.pop(_IMPLEMENTATION, None)
        options = {"attn_implementation": "eager", **options}
    saved: Mapping[str, Any] = block
    auto_class: Any = AutoModelForCausalLM
    classes = auto_class._model_mapping[type(config)]
    if isinstance(classes, tuple | list):  # one of several, by what the configuration was saved from
        classes = next((each for each in classes if each.__name__ in (config.architectures or [])), classes[0])

    class Loading(classes):  # type: ignore[misc, valid-type]
        """The model's class while it is loaded: the encodings are there before their weights come."""

        def post_init(self) -> None:
            super().post_init()
            attach_saved(self, saved)

    Loading.__name__, Loading.__module__ = classes.__name__, classes.__module__
    model, info = Loading.from_pretrained(folder, config=config, **{**options, "output_loading_info": True})
    model.__class__ = classes
    return model, info


def whole_model(source: str | Path, model: Any, info: Mapping[str, Any]) -> Any:
    """A model of ``from_pretrained``, unless transformers has left something out, of which it only warns.

    Args:
        source: of the model.
        model, info: what ``from_pretrained`` returns with ``output_loading_info=True``.

    Raises:
        ValueError: for tensors that the files lack, which would stay random, and for tensors of an adapter that find
            no place; those of other files may belong to parts of a model that are not asked for.
    """
    lacking, dropped = sorted(info["missing_keys"]), sorted(info["unexpected_keys"])
    if lacking:
        raise ValueError(f"{source} lacks {len(lacking)} tensors of its model, as {lacking[0]}: they would be random")
    if dropped and getattr(model, "_hf_peft_config_loaded", False):
        raise ValueError(
            f"{source}: target_modules and modules_to_save of adapter_config.json leave out {len(dropped)} tensors of "
            f"its adapter, as {dropped[0]}"
        )
    return model


def block_of(config: Any) -> dict[str, Any] | None:
    """The block of attached encodings in a configuration; None where it has none.

    Raises:
        ValueError: for encodings that were built in Python, which cannot be built from the configuration.
    """
    block = getattr(config, NAME, None)
    if not isinstance(block, dict):
        return None
    if "encodings" not in block:
        raise ValueError(
            f"posenc: this model's encodings were built in Python, {shown(block.get('built_in_python'))}: take the "
            "block posenc and _attn_implementation out of config.json, load, attach the same list and load the "
            "weights again"
        )
    return block


def attach_saved(model: PreTrainedModel, block: Mapping[str, Any]) -> None:
    """Attach the encodings that a saved configuration names."""
    if model.config._attn_implementation == NAME:
        model.config._attn_implementation = None  # what the model has once they are detached
    attach(model, block["encodings"], layers=block.get("layers"))
