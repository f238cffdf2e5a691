"""Positional encodings attached to a transformers model in place of its rotation, without a change to its code.

    from posenc.hf.attach import attach, detach, load
    attach(model, "fox")                     # or "own+alibi": beside the rotation that the model has
    detach(model)                            # the model as it was

    model.save_pretrained(folder)
    load(folder)                             # the only way in: plain from_pretrained refuses such a folder

Nothing of transformers changes on import. A saved configuration names the attention implementation "posenc", which
transformers does not know until `attach` or `load` has run, so that without them it raises. The window, sink,
temperature, cap and scale of each layer stay the model's own. Caches keep keys un-rotated (`cache_adapter`). Needs the
package transformers.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from posenc.arguments import one_line, shown
from posenc.encoding import EmbeddingEncoding, Encoding, RotaryEncoding, WeightEncoding
from posenc.hf.attach.attention_function import NAME, Attached, prepare, register
from posenc.hf.attach.supported import check_layers, shape_of, source_of, supported_layers
from posenc.hf.config.encoding_spec import (
    OWN,
    EncodingSpec,
    Sizes,
    asks_for_own,
    check_no_layer_state,
    create,
    encoding_specs,
)
from posenc.hf.config.rotation import text_rope
from posenc.hf.explanation.layer_attention import encodings_of
from posenc.hf.explanation.layer_facts import LayerFacts, model_from_config
from posenc.rotary.mrope import MRoPE
from posenc.rotary.rope import RoPE

_REORDERS = "apply_rotary_pos_emb_interleave"
_READ_ME = (
    "These layers have positional encodings of the Python package posenc in the place of their own rotation. Load with "
    "posenc.hf.attach.load(folder). from_pretrained refuses the attention implementation 'posenc'; with another one "
    "given by hand it would compute the original rotation: another model."
)
_IMPLEMENTATION = "_attn_implementation"
Model = TypeVar("Model", bound=nn.Module)
_LIST = Sequence[Mapping[str, Any]] | Sequence[Encoding]


def attach(model: Model, encodings: str | _LIST, layers: Iterable[int] | None = None) -> Model:
    """Put encodings in the place of the rotation of a model's layers. Each layer has its own parameters.

    Args:
        model: a decoder of transformers, changed in place.
        encodings: names of the catalogue joined by ``+``, a schedule over layers such as ``"rope/nope:4"``, or a list
            with a ``name`` and ``options`` for each, as `posenc.hf.modeling.PosencConfig` takes them; or encodings, of
            which each layer gets a copy. ``"own"``, alone or first, is the rotation that the layer has, and as the
            option ``rotation`` of remapped distances what they rotate by; ``"nope"`` nothing. Encodings built in Python
            are not built again by ``from_pretrained``.
        layers: numbers from 0; None: all that have attention. The others stay as they are.

    Returns:
        The model. Its parameters have grown by those of the encodings: make the optimizer after this.

    Raises:
        ValueError: for a model or layers that cannot be served, and for encodings that do not fit; it says which.
    """
    if not isinstance(model, PreTrainedModel):
        raise ValueError(f"model must be a model of transformers, got {shown(model)}")
    modules = supported_layers(model)
    chosen = sorted(modules) if layers is None else check_layers(layers, modules)
    first = modules[chosen[0]]
    config, before = first.config, first.config._attn_implementation
    facts = _facts(config) if _begins_with_own(encodings) or _moves_own(encodings) else ()
    given = _given(
        encodings, shape_of(first), _rotation(facts[chosen[0]], chosen[0], first) if _moves_own(encodings) else None
    )
    made = {n: given.built(n, modules[n], facts, before) for n in chosen}  # all of them, before anything is changed
    for n, attached in made.items():
        attached.handle = modules[n].register_forward_pre_hook(prepare, with_kwargs=True)
        modules[n].add_module(NAME, attached)
    register()
    config._attn_implementation = NAME
    # The property of this name keeps its value elsewhere, in what is not saved: this entry alone reaches config.json.
    config.__dict__[_IMPLEMENTATION] = NAME
    config.posenc = {"read_me": _READ_ME, **given.words(), "layers": chosen}
    return model


def detach(model: Model) -> Model:
    """Take away what `attach` has put in; the model is what it was, but for what was trained.

    Raises:
        ValueError: where nothing is attached.
    """
    found = [module for module in model.modules() if isinstance(getattr(module, NAME, None), Attached)]
    if not found:
        raise ValueError("model has no encodings attached")
    for module in found:
        attached: Any = module.posenc
        attached.handle.remove()
        config: Any = module.config
        config._attn_implementation = attached.before
        config.__dict__.pop(_IMPLEMENTATION, None)
        if hasattr(config, NAME):
            del config.posenc
        delattr(module, NAME)
    return model


class _Given:
    """Encodings as they were given, of which each layer gets its own."""

    def __init__(self, own: bool, lines: list[EncodingSpec], built: Sequence[Encoding]) -> None:
        self.own, self.lines, self.instances = own, lines, built

    def words(self) -> dict[str, Any]:
        """As the configuration has it."""
        if self.instances:
            return {"built_in_python": [one_line(one) for one in self.instances]}
        kept = [{key: value for key, value in line.items() if key != "shared"} for line in self.lines]
        return {"encodings": [*([{"name": OWN}] if self.own else []), *kept]}

    def built(self, number: int, module: Any, facts: Sequence[LayerFacts], before: str | None) -> Attached:
        """What one layer has."""
        weight = next(parameter for parameter in module.parameters() if parameter.is_floating_point())
        found: list[Encoding] = []
        turned_last = 0
        if facts:
            one = facts[number]
            found = encodings_of(_owned(one, number, module)) if self.own else []
            turned_last = text_rope(one.rotation).rotary_dim if one.rotation is not None and one.turned_last else 0
        lines = [line for line in self.lines if number in line.get("layers", [number])]
        with torch.device(weight.device):
            own = {n: _rotation(facts[number], number, module) for n, one in enumerate(lines) if asks_for_own(one)}
            found += [create(line, shape_of(module), own.get(n)) for n, line in enumerate(lines)]
        found += [copy.deepcopy(one) for one in self.instances]
        if getattr(module, "sinks", None) is not None and any(isinstance(one, WeightEncoding) for one in found):
            raise ValueError(f"encodings: layer {number} has a sink of its own, beside which nothing replaces softmax")
        attached = Attached(found, turned_last=turned_last, before=before)
        return attached.to(weight.device, weight.dtype).train(module.training)


def _begins_with_own(encodings: object) -> bool:
    """Whether the layers' own rotation is the first of these encodings."""
    if isinstance(encodings, str):
        return encodings.partition("+")[0].strip().lower() == OWN
    return isinstance(encodings, Sequence) and bool(encodings) and encodings[0] == {"name": OWN}


def _moves_own(encodings: object) -> bool:
    """Whether one of them rotates as the layer does, at other distances."""
    lines = encodings if isinstance(encodings, Sequence) else ()
    return any(isinstance(one, Mapping) and asks_for_own(one) for one in lines)


def _rotation(facts: LayerFacts, number: int, module: nn.Module) -> RotaryEncoding:
    """What a layer rotates by; a ValueError for one that does not."""
    turning = [one for one in encodings_of(_owned(facts, number, module)) if isinstance(one, RotaryEncoding)]
    if not turning:
        raise ValueError(f"encodings: layer {number} does not turn, so there is no rotation of its own: give layers")
    return turning[0]


def _given(encodings: object, sizes: Sizes, rotation: RotaryEncoding | None) -> _Given:
    if isinstance(encodings, Sequence) and encodings and all(isinstance(one, Encoding) for one in encodings):
        if any(isinstance(one, EmbeddingEncoding) for one in encodings):
            raise ValueError("encodings: one that acts on embeddings has no place in a layer's attention")
        for one in encodings:
            check_no_layer_state(one)
        return _Given(False, [], list(encodings))
    if isinstance(encodings, str) and "@" in encodings:
        raise ValueError(f"encodings: windows stay those of the model, got {encodings!r}: leave out @")
    own = _begins_with_own(encodings)
    if own and isinstance(encodings, str):
        encodings = encodings.partition("+")[2] or []
    elif own and isinstance(encodings, Sequence):
        encodings = encodings[1:]
    return _Given(own, _checked(encoding_specs(encodings, sizes, rotation), sizes, rotation), ())


def _checked(lines: list[EncodingSpec], sizes: Sizes, rotation: RotaryEncoding | None) -> list[EncodingSpec]:
    for line in lines:
        with torch.device("meta"):
            if isinstance(create(line, sizes, rotation), EmbeddingEncoding):
                raise ValueError(f"encodings: {line['name']} acts on embeddings, not in a layer's attention")
    return lines


def _facts(config: Any) -> Sequence[LayerFacts]:
    """What the layers have by their configuration."""
    plain = {key: value for key, value in config.to_dict().items() if key != NAME}
    model = model_from_config(plain)
    return model.layers or model.found * config.num_hidden_layers


def _owned(facts: LayerFacts, number: int, module: nn.Module) -> LayerFacts:
    """The rotation alone; the rest stays the model's own."""
    rope = facts.rotation
    if isinstance(rope, RoPE) and rope.layout == "interleaved" and _REORDERS in source_of(module):
        # The model brings its pairs into the half layout before it rotates them, and hands them on so.
        facts = facts._replace(rotation=rope.replace(layout="half"))
    if isinstance(facts.rotation, MRoPE):
        raise ValueError(f"encodings: layer {number} turns by three coordinates of a token, of which layers get one")
    if facts.normed_after and facts.rotation is not None:
        raise ValueError(f"encodings: layer {number} norms queries and keys after its rotation, where nothing reaches")
    return facts._replace(temperature=None, sink="")


def load(folder: str | Path, *, auto_class: Any = AutoModelForCausalLM, **options: Any) -> Any:
    """A model that was saved with encodings attached, with them and their weights.

    Args:
        folder: that ``save_pretrained`` or ``posenc attach`` wrote, or its name on the Hub.
        auto_class: of transformers, which chooses the model's class.
        options: for ``from_pretrained``: dtype, device_map, trust_remote_code (False unless it is given).

    Returns:
        The model of transformers.

    Raises:
        ValueError: for a folder without encodings, and for encodings that were built in Python.
    """
    options = {"trust_remote_code": False, **options}
    place = {key: options[key] for key in ("trust_remote_code", "local_files_only", "revision") if key in options}
    config = options.pop("config", None) or AutoConfig.from_pretrained(folder, **place)
    block = block_of(config)
    if block is None:
        raise ValueError(f"folder: {folder} has no encodings attached: load it with from_pretrained")
    register()
    saved: Mapping[str, Any] = block
    classes = auto_class._model_mapping[type(config)]
    if isinstance(classes, tuple | list):  # one of several, by what the configuration was saved from
        classes = next((one for one in classes if one.__name__ in (config.architectures or [])), classes[0])

    class Loading(classes):  # type: ignore[misc, valid-type]
        """The model's class while it is loaded: the encodings are there before their weights come."""

        def post_init(self) -> None:
            super().post_init()
            attach_saved(self, saved)

    Loading.__name__, Loading.__module__ = classes.__name__, classes.__module__
    model: Any = Loading.from_pretrained(folder, config=config, **options)
    model.__class__ = classes
    return model


def block_of(config: Any) -> dict[str, Any] | None:
    """What a configuration says of attached encodings; None where it has none.

    Raises:
        ValueError: for encodings that were built in Python, which nothing can build again.
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
    """Attach what the configuration of a saved model says."""
    if model.config._attn_implementation == NAME:
        model.config._attn_implementation = None  # what the model has once they are detached
    attach(model, block["encodings"], layers=block.get("layers"))
