"""What constructors take beside their own options (``dtype``, ``device``), and other libraries' words for arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import ParamSpec, TypeVar

import torch
from torch import nn

from posenc.arguments import shown

P = ParamSpec("P")
T = TypeVar("T")

# What other libraries call the arguments of constructors.
OTHER_WORDS = {
    "theta": "base", "rope_theta": "base", "freq_base": "base", "dim": "head_dim", "head_size": "head_dim",
    "heads": "num_heads", "n_heads": "num_heads", "n_head": "num_heads", "num_attention_heads": "num_heads",
    "num_kv_heads": "kv_heads", "num_key_value_heads": "kv_heads", "scaling_factor": "factor", "scale": "factor",
    "original_max_position_embeddings": "original_length", "interleaved": "layout",
}  # fmt: skip

OTHER_WORDS_OF_CALLS = {
    "is_causal": "causal", "attn_mask": "mask", "attention_mask": "mask", "key_padding_mask": "mask",
    "dropout_p": "dropout", "softmax_scale": "scale", "scaling": "scale", "logits_soft_cap": "softcap",
    "window_size": "window", "sliding_window": "window", "position_ids": "q_pos", "segment_ids": "segments",
    "pos": "q_pos", "positions": "q_pos",
}  # fmt: skip


def names_other_words(function: Callable[P, T]) -> Callable[P, T]:
    """A function whose TypeError for an argument of another library's name says what it is called here."""
    parameters = inspect.signature(function).parameters
    shared = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())  # attention's options
    words = {
        word: name
        for word, name in OTHER_WORDS_OF_CALLS.items()
        if (shared or name in parameters) and word not in parameters
    }

    @functools.wraps(function)
    def called(*args: P.args, **options: P.kwargs) -> T:
        for word in options:
            if word in words:
                raise TypeError(f"{function.__name__} has no argument {word!r}: it is called {words[word]} here")
        return function(*args, **options)

    return called


def takes_dtype_and_device(cls: type[nn.Module]) -> None:
    """Let the constructor that a class defines, if it does, take ``dtype`` and ``device`` for its parameters.

    Numbers are drawn as ever and then cast, so that modules of all dtypes begin alike. Modules that were handed in are
    parts of the new one, and cast with it. A class whose constructor has a dtype of its own is left as it is.
    """
    init: Callable[..., None] | None = vars(cls).get("__init__")
    if init is None or not {"dtype", "device"}.isdisjoint(inspect.signature(init).parameters):
        return

    names = [name for name in inspect.signature(init).parameters if name != "self"]

    @functools.wraps(init)
    def made(self: nn.Module, *given: object, dtype: object = None, device: object = None, **options: object) -> None:
        check_dtype(dtype)
        for word in options.keys() - names:
            if OTHER_WORDS.get(word) in names:
                raise TypeError(
                    f"{type(self).__name__} has no argument {word!r}: it is called {OTHER_WORDS[word]} here"
                )
        with on_device(device):
            init(self, *given, **options)
        if isinstance(dtype, torch.dtype):
            self.to(dtype)

    cls.__init__ = made  # type: ignore[method-assign]


def check_dtype(dtype: object) -> None:
    """Raise a ValueError unless this is a dtype that parameters can have, or None."""
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise ValueError(f"dtype must be a floating dtype such as torch.bfloat16, got {shown(dtype)}")


def on_device(device: object) -> AbstractContextManager[object]:
    """The context in which tensors are made on a device; None: wherever they would be."""
    if device is None:
        return nullcontext()
    try:
        return torch.device(device)  # type: ignore[call-overload, no-any-return]
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"device must be a device or its name, got {shown(device)}") from error
