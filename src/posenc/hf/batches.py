"""Batches of transformers' models: a callback that checks the first batch of a Trainer, and twins for large models.

`posenc.testing.check_batch` asks the model itself, which a laptop cannot do for a model of 70 billion parameters. What
decides whether documents leak or padding counts is its code, not its weights: a twin has the model's class, kinds of
layers and rotation, and little else.
"""

from __future__ import annotations

import copy
import inspect
import json
import math
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoConfig, PretrainedConfig, PreTrainedModel, TrainerCallback

from posenc.hf.attach.loading import load_model
from posenc.hf.doctor.loader import CannotAskError, model_class
from posenc.testing.check_batch import check_batch

HEADS, KEY_HEADS, EXPERTS = 4, 2, 4
WIDEST = 1024  # channels of a twin; where a head or a family's rules need more, the model's own width stays
CLASSES = 256  # of a narrow head; the embeddings are of the whole vocabulary
PARAMETERS = 2_000_000_000  # the most that a twin may have
# Of recurrences, the smallest decay rate: fresh ones forget within a document, and what they hand over underflows.
SLOW = math.log(1e-3)
KERNELS = {  # what modelling code calls, and the package
    "_supports_flash_attn = True": "flash-attn", "causal_conv1d": "causal-conv1d", "mamba_ssm": "mamba-ssm",
    "_gated_delta_rule": "fla",
}  # fmt: skip


class CheckBatch(TrainerCallback):  # type: ignore[misc]  # transformers' classes are untyped
    """A callback of transformers' `Trainer` that runs `check_batch` on the first batch, as the loop calls the model.

    A wrong batch raises a `posenc.testing.BatchError` before a step is made, whose text says what to change. Where
    parameters are sharded over processes, all check the batch of the first one, so that they run the same passes.

    Args:
        every: also the first batch of every so many steps; None for the first alone.
        options: of `posenc.testing.check_batch`.

    >>> from transformers import Trainer
    >>> trainer = Trainer(model, args, train_dataset=data, callbacks=[CheckBatch()])  # doctest: +SKIP
    """

    def __init__(self, every: int | None = None, **options: Any) -> None:
        if every is not None and every < 1:
            raise ValueError(f"every: a number of steps from 1 on expected, got {every}")
        self.every, self.options = every, options
        self.due = False
        self.hook: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, *, model: nn.Module, **_: Any) -> None:
        self.due = True
        self.hook = model.register_forward_pre_hook(self.check, with_kwargs=True)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.due = self.due or (self.every is not None and state.global_step % self.every == 0)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.hook is not None:
            self.hook.remove()

    def check(self, model: nn.Module, args: tuple[object, ...], batch: dict[str, Any]) -> None:
        """Before the model's forward pass: check what it is called with."""
        if not self.due or not model.training or args:
            return
        self.due = False  # first, as the check calls the model
        batch = {key: value for key, value in batch.items() if key != "num_items_in_batch"}
        check_batch(model, batch_of_all(model, batch), **self.options).raise_if_wrong()


def batch_of_all(model: nn.Module, batch: Mapping[str, Any]) -> dict[str, Any]:
    """The batch itself; the first process's where each has a part of the parameters, which it cannot use alone."""
    sharded = any(hasattr(parameter, "placements") for parameter in model.parameters())
    if not (sharded and dist.is_available() and dist.is_initialized()):
        return dict(batch)
    device = next((value.device for value in batch.values() if isinstance(value, Tensor)), torch.device("cpu"))
    sent = [{key: value.cpu() if isinstance(value, Tensor) else value for key, value in batch.items()}]
    dist.broadcast_object_list(sent, src=0)
    return {key: value.to(device) if isinstance(value, Tensor) else value for key, value in sent[0].items()}


def twin_of(config: PretrainedConfig | str | PathLike[str]) -> PreTrainedModel:
    """A small model of a configuration's class, with one layer of each kind (two at least) and fresh weights.

    Args:
        config: a configuration of transformers, or the folder or id that it is read from.

    Raises:
        ValueError: where no smaller model of this class can be built.
    """
    if not isinstance(config, PretrainedConfig):
        config = AutoConfig.from_pretrained(config, trust_remote_code=False)
    failures = []
    for narrow in (True, False):
        small = copy.deepcopy(config)
        try:
            shrink_layers(small.get_text_config())
            if narrow:
                shrink_widths(small)
            model = built(small)
            with torch.no_grad():  # some rules about sizes are broken by the first call alone
                model(input_ids=torch.ones(1, 4, dtype=torch.long))
        except Exception as error:  # a family's own rule about its sizes, which the model's own width keeps
            failures.append(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
            continue
        for name, parameter in model.named_parameters():
            if name.endswith("A_log"):
                nn.init.constant_(parameter, SLOW)
        return model
    raise ValueError(f"config: no twin of {config.model_type} could be built: {'; '.join(failures)}")


def read_batch(path: str | PathLike[str]) -> dict[str, Any]:
    """The batch of a file, tensors by name; lists of a JSON file become tensors.

    Raises:
        ValueError: for a file of another kind, or one that holds no dictionary.
    """
    path = Path(path)
    if path.suffix == ".safetensors":
        return dict(load_file(path))
    if path.suffix == ".json":
        read = json.loads(path.read_text(encoding="utf-8"))
    elif path.suffix in (".pt", ".pth", ".bin"):
        read = torch.load(path, map_location="cpu", weights_only=True)
    else:
        raise ValueError(f"a .pt, .safetensors or .json file expected, got {path.name}")
    if not isinstance(read, dict) or not read:
        raise ValueError(f"a dictionary of tensors by name expected, got {type(read).__name__}")
    return {key: torch.tensor(value) if isinstance(value, list) else value for key, value in read.items()}


def narrow_head(model: PreTrainedModel) -> None:
    """Give a model few classes: what decides lies before its head, whose logits would take the most memory by far."""
    if isinstance(head := model.get_output_embeddings(), nn.Linear) and head.out_features > CLASSES:
        model.set_output_embeddings(nn.Linear(head.in_features, CLASSES, bias=head.bias is not None))


def kernels_not_run(model: nn.Module) -> list[str]:
    """Packages whose fused kernels this model would use where they are installed, and which are not installed here."""
    classes = {type(module).__module__ for module in model.modules()}
    texts = [inspect.getsource(sys.modules[name]) for name in classes if name.startswith("transformers.models.")]
    named = [package for word, package in KERNELS.items() if any(word in text for text in texts)]
    return [package for package in named if find_spec(package.replace("-", "_")) is None]


def shrink_layers(text: Any) -> None:
    """Keep the first layer of each kind, two layers at least."""
    kinds = list(getattr(text, "layer_types", None) or [])
    selected = sorted(kinds.index(kind) for kind in dict.fromkeys(kinds)) or [0]
    selected += [i for i in range(text.num_hidden_layers) if i not in selected][: max(0, 2 - len(selected))]
    for name in ("layer_types", "mlp_layer_types", "no_rope_layers", "layers_block_type"):
        if isinstance(value := getattr(text, name, None), list) and len(value) >= max(selected) + 1:
            try:
                setattr(text, name, [value[i] for i in selected])
            except AttributeError:  # derived from another key
                continue
    if isinstance(indices := getattr(text, "attn_layer_indices", None), list):
        text.attn_layer_indices = [1] if indices else []
    text.num_hidden_layers = len(selected)


def shrink_widths(config: Any) -> None:
    """Four query heads, two key heads, four experts; heads keep their width, which rotations are made for."""
    text = config.get_text_config()
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    hidden = min(text.hidden_size, max(width * HEADS, 64))
    if hidden > WIDEST:
        return
    state = getattr(text, "mamba_d_head", None)
    latent = hasattr(text, "kv_lora_rank")  # whose key heads are its query heads
    sizes = {
        "num_attention_heads": HEADS, "num_key_value_heads": HEADS if latent else KEY_HEADS, "hidden_size": hidden,
        "intermediate_size": 2 * hidden, "moe_intermediate_size": hidden, "shared_expert_intermediate_size": hidden,
        "num_experts": EXPERTS, "num_local_experts": EXPERTS, "n_routed_experts": EXPERTS, "num_experts_per_tok": 2,
        "n_group": 1, "topk_group": 1, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "mamba_n_heads": getattr(text, "mamba_expand", 2) * hidden // state if isinstance(state, int) else None,
    }  # fmt: skip
    for name, size in sizes.items():
        if size is not None and isinstance(value := getattr(text, name, None), int) and value > size:
            setattr(text, name, size)
    vision = getattr(config, "vision_config", None)
    for name in ("depth", "num_hidden_layers"):
        if isinstance(getattr(vision, name, None), int):
            setattr(vision, name, 1)
    for name in ("out_hidden_size", "hidden_size"):  # what joins the tokens: one name or the other, by family
        if getattr(vision, name, None) == getattr(config.get_text_config(), "hidden_size", None):
            continue
        if hasattr(vision, "out_hidden_size") == (name == "out_hidden_size") and hasattr(vision, "embed_dim"):
            setattr(vision, name, hidden)


def configuration(path: str | PathLike[str], implementation: str | None = None) -> PretrainedConfig:
    """The configuration of a folder or a file, posenc's own model type included."""
    import posenc.hf.modeling  # noqa: F401  # registers it

    config: PretrainedConfig = AutoConfig.from_pretrained(path, trust_remote_code=False)
    if implementation is not None:
        config._attn_implementation = implementation
    return config


def loaded(path: str | PathLike[str], dtype: torch.dtype, implementation: str | None = None) -> nn.Module:
    """The model of a folder, of the class that its configuration names."""
    options: dict[str, Any] = {} if implementation is None else {"attn_implementation": implementation}
    return load_model(Path(path), dtype, complete=False, cls=class_of(configuration(path)), **options)


def built(config: PretrainedConfig) -> PreTrainedModel:
    """A model of the class that the configuration names, in train mode; a ValueError where it is large."""
    cls = class_of(config)
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in cls._from_config(copy.deepcopy(config)).parameters())
    if size > PARAMETERS:
        raise ValueError(f"two layers have {size / 1e9:.1f} billion parameters")
    model: PreTrainedModel = cls._from_config(config)
    return model.train()


def class_of(config: PretrainedConfig) -> Any:
    """The class of transformers for a configuration.

    Raises:
        ValueError: where transformers has none.
    """
    try:
        return model_class(config.to_dict())
    except CannotAskError as error:
        raise ValueError(f"config: {error}") from None
