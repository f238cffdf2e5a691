"""What transformers' own loader says of the tensors of a folder: missing, not read, of another shape.

The model is built on torch's meta device and loaded with tensors that have names and shapes and no numbers, so that
every rule of transformers holds (renamed keys, joined experts, tied weights) and neither memory nor a byte of the
weights is needed. The loader reports less than it drops: some names are left out of its report because published files
hold them. `Loaded.silent` has those.
"""

from __future__ import annotations

import copy
import importlib.util
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from posenc.hf.sources.load import Config

Shape = tuple[int, ...]


class Loaded(NamedTuple):
    """What the loader says.

    Attributes:
        missing: tensors of the model that the file lacks; they start at random.
        unread: tensors of the file that the model lacks; they are dropped.
        differ: tensors of both, with the shape in the file and the shape in the model.
        silent: tensors of the file that are dropped without a word.
        names: of all tensors of the model.
        error: what ends the load for good; "" where nothing does.
    """

    missing: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    differ: Mapping[str, tuple[Shape, Shape]] = {}
    silent: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()
    error: str = ""


class CannotAskError(Exception):
    """The loader cannot be asked, and the reason."""


_MAPPINGS = (
    "MODEL_FOR_CAUSAL_LM_MAPPING", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
    "MODEL_FOR_MASKED_LM_MAPPING", "MODEL_MAPPING",
)  # fmt: skip


def model_class(config: Config) -> type[Any]:
    """The class that loads a config: the one that it names, or else the first of transformers for its model type.

    Raises:
        CannotAskError: without transformers, or for a model type or class that it does not have.
    """
    try:
        import transformers
        from transformers.models.auto import modeling_auto
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    except ImportError as error:
        raise CannotAskError(f"{error.name or 'transformers'} is not installed") from None
    if importlib.util.find_spec("accelerate") is None:
        raise CannotAskError("accelerate is not installed, which a device map needs")
    model_type, named = config.get("model_type"), config.get("architectures")
    if not isinstance(model_type, str) or model_type not in CONFIG_MAPPING:
        raise CannotAskError(f"transformers {transformers.__version__} has no model type {model_type!r}")
    for name in named if isinstance(named, list) else ():
        cls = getattr(transformers, name, None) if isinstance(name, str) else None
        if isinstance(cls, type) and _config_class(cls) is CONFIG_MAPPING[model_type]:
            return cls  # AutoModel goes by the model type, so that a class of another one is not what loads
    for mapping in (getattr(modeling_auto, name) for name in _MAPPINGS):
        if CONFIG_MAPPING[model_type] in mapping:
            with suppress(ValueError):  # a class that this version lists and does not have
                cls = mapping[CONFIG_MAPPING[model_type]]
                first: type[Any] = cls[0] if isinstance(cls, tuple) else cls
                return first
    raise CannotAskError(f"transformers has no model of type {model_type!r}")


def _config_class(cls: type[Any]) -> Any:
    """The class of a model's config; None for a class of something else, and for one whose packages are missing."""
    try:
        return getattr(cls, "config_class", None)
    except ImportError:
        return None


def ask_loader(config: Config, shapes: Mapping[str, Shape]) -> Loaded:
    """What transformers says of tensors of these names and shapes.

    Args:
        config: of the folder, as it was loaded.
        shapes: of the tensors in its files, by name.

    Raises:
        CannotAskError: where transformers is missing, or does not have or cannot build the model.
    """
    cls = model_class(config)
    import torch
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    silent: set[str] = set()
    unquantised = {key: value for key, value in copy.deepcopy(config).items() if key not in _QUANTISED}
    with _quiet():
        try:
            config_class: Any = CONFIG_MAPPING[config["model_type"]]
            built = config_class.from_dict(config_class._decode_special_floats(unquantised))
            built._attn_implementation = "eager"  # others ask for packages and devices
            tensors = {name: torch.empty(shape, dtype=torch.bfloat16, device="meta") for name, shape in shapes.items()}
            model, info = _telling(cls, silent).from_pretrained(
                None, config=built, state_dict=tensors, device_map="meta", dtype=torch.bfloat16,
                ignore_mismatched_sizes=True, output_loading_info=True,
            )  # fmt: skip
        except ImportError as error:
            raise CannotAskError(f"{cls.__name__} needs {str(error).strip().splitlines()[0][:120]}") from None
        except Exception as error:  # validators, modules and conversions of several hundred models raise what they like
            if "conversion" in str(error):
                return Loaded(error=f"{cls.__name__} cannot join tensors of the file, as those of its experts")
            raise CannotAskError(f"{cls.__name__} is not built: {_first_line(error)}") from None
    mismatched = sorted(info["mismatched_keys"], key=lambda item: _in_order(item[0]))
    differ = {name: (tuple(have), tuple(want)) for name, have, want in mismatched}
    missing, unread = (tuple(sorted(info[key], key=_in_order)) for key in ("missing_keys", "unexpected_keys"))
    names = frozenset(model.state_dict())
    return Loaded(missing, unread, differ, tuple(sorted(silent, key=_in_order)), names)


def _in_order(name: str) -> list[tuple[int, str]]:
    """A name to sort by, so that layer 2 comes before layer 10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


_QUANTISED = ("quantization_config", "compression_config")


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines)[:160]}"


def _telling(cls: type[Any], silent: set[str]) -> type[Any]:
    """The class, which adds to ``silent`` the names of the file that its rules leave out of the report."""

    def adjust(self: Any, loading_info: Any) -> None:
        before = set(loading_info.unexpected_keys)
        cls._adjust_missing_and_unexpected_keys(self, loading_info)
        silent.update(before - set(loading_info.unexpected_keys))

    members = {"_adjust_missing_and_unexpected_keys": adjust, "__module__": cls.__module__}
    return type(cls.__name__, (cls,), members)


def layer_of(name: str) -> str:
    """The name of a tensor up to the number of its layer: "model.layers.3"; "" outside the layers."""
    match = _LAYER.match(name)
    return match.group(0) if match else ""


_LAYER = re.compile(r"^(?:[^.]+\.)*?\d+(?=\.)")


@contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' report, warnings and progress bars, which say the same in another form."""
    import warnings

    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
