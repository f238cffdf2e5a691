"""Loads a configuration from any source, and translates it.

`load` copies what a source holds; `translate` gives it in Hugging Face's keys, whichever program wrote it: Meta's and
Mistral's params.json, litgpt's model_config.yaml, the metadata of a GGUF file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol, runtime_checkable

from posenc.arguments import shown
from posenc.hf.limits import DEPTH, FILE_BYTES
from posenc.hf.sources.hub import INDEX, MAIN_FILES, local_source, parts_of, transformer_configs, transformers_of
from posenc.hf.sources.translated import Config as Config
from posenc.hf.sources.translated import Translated as Translated
from posenc.input_files import UnreadableFileError, path_text, printable, read_json, read_text


@runtime_checkable
class _HasDict(Protocol):
    def to_dict(self) -> dict[str, Any]: ...


Source = Mapping[str, Any] | str | Path | _HasDict
_OF_LITGPT = "model_config.yaml"


def load(source: Source, *, of_diffusers: bool = False) -> Config:
    """A copy of a configuration: a dictionary, an object with ``to_dict()``, a file, a folder with config.json,
    params.json or litgpt's model_config.yaml, the metadata of a GGUF file, or a model of the Hugging Face Hub by name
    (`posenc.hf.sources.hub`).

    A byte order mark at the begin of a file is passed over.

    Args:
        source: of the configuration.
        of_diffusers: whether it may be that of a part of a pipeline of diffusers, which has no model_type.

    Raises:
        ValueError: for a file that is no JSON object, for a key that stands twice in one object with different
            values, for more depth than any configuration has, for a GGUF file without the package gguf, or for
            anything else.
        OSError: where the file cannot be read.
    """
    if isinstance(source, _HasDict) and not isinstance(source, type | Mapping):
        source = source.to_dict()
        if not isinstance(source, Mapping):
            raise ValueError(f"config: to_dict() must give a mapping, got {type(source).__name__}")
    if isinstance(source, Mapping):
        if strange := [key for key in source if not isinstance(key, str)]:
            raise ValueError(f"config: keys must be strings, found {shown(strange[0])}")
        return _copied(source, ())
    if not isinstance(source, str | Path):
        raise ValueError(f"config must be a mapping, a path or an object with to_dict(), got {type(source).__name__}")
    if source == "":
        raise ValueError("config: the path is empty; give a config.json, or a folder that has one")
    path = local_source(source)
    if path.is_dir():
        names = [name for name in (*MAIN_FILES, _OF_LITGPT, INDEX) if (path / name).exists()]
        if names == [INDEX]:
            parts = parts_of(path / INDEX)
            main = next(iter(transformers_of(parts)), "")
            _refuse_diffusers(path, f"a pipeline of diffusers ({INDEX})", parts.get(main, ""), main)
        path = path / (names or MAIN_FILES)[0]
    if not path.exists():
        raise FileNotFoundError(f"config: {missing(path)}; give a config.json, or a folder that has one")
    if path.suffix == ".gguf":
        return _metadata(path)
    config = _read_yaml(path) if path.suffix in (".yaml", ".yml") else read_json(path, FILE_BYTES)
    if not isinstance(config, dict):
        raise UnreadableFileError(f"config: {path_text(path)} must hold an object, found a {type(config).__name__}")
    if not of_diffusers and is_of_diffusers(config):
        name = config["_class_name"]
        _refuse_diffusers(path, f"a {name} of diffusers", name)
    return config


def _copied(value: Any, path: tuple[Any, ...]) -> Any:
    """Mappings, lists and tuples copied; what they hold is kept as it is."""
    if not isinstance(value, Mapping | list | tuple):
        return value
    if len(path) >= DEPTH:
        raise ValueError(f"{dotted(path[:3])} is nested deeper than {DEPTH} objects and lists; no configuration is")
    if isinstance(value, Mapping):
        return {key: _copied(inner, (*path, key)) for key, inner in value.items()}
    copies = [_copied(inner, (*path, index)) for index, inner in enumerate(value)]
    return copies if isinstance(value, list) else tuple(copies)


def _read_yaml(path: Path) -> Any:
    try:
        import yaml
    except ModuleNotFoundError:
        raise ValueError(f"config: {path_text(path)} needs PyYAML: pip install pyyaml") from None
    try:
        return yaml.safe_load(read_text(path, FILE_BYTES))
    except (yaml.YAMLError, RecursionError) as error:
        raise UnreadableFileError(f"config: {path_text(path)} is no YAML: {str(error).splitlines()[0]}") from None


def _metadata(path: Path) -> Config:
    try:
        from posenc.hf.sources.gguf_file import metadata_of
    except ModuleNotFoundError as error:
        raise ValueError(
            f"config: {path} needs the package gguf: pip install 'posenc[gguf]', in a clone '.[gguf]'"
        ) from error
    return metadata_of(path)


def _refuse_diffusers(path: Path, what: str, name: str, part: str = "transformer") -> NoReturn:
    """Raise a ValueError for a part or a pipeline of diffusers, with what posenc has for it."""
    from posenc.diffusion.models import python_for

    raise ValueError(f"config: {path_text(path)} is {what}; {python_for(name, path_text(path), part)}")


class DiffusionSource(NamedTuple):
    """A transformer of diffusers, as `posenc explain` reads it.

    Attributes:
        config: its configuration.
        siblings: the further transformers of its pipeline by the names of their parts.
    """

    config: Mapping[str, Any]
    siblings: Mapping[str, Mapping[str, Any]]


def load_any(source: str | Path) -> DiffusionSource | Config:
    """What a file, a folder or a model of the Hub holds: a transformer of diffusers, or a config as `load` gives it.

    Raises:
        ValueError: as `load`, and for a pipeline without a transformer.
        OSError: as `load`, and for a pipeline whose transformer has no config.json.
    """
    path = local_source(source)
    if path.is_dir() and not (path / "config.json").exists():
        configs = {name: load(config, of_diffusers=True) for name, config in transformer_configs(path).items()}
        if configs:
            main = next(iter(configs))
            return DiffusionSource(configs.pop(main), configs)
    config = load(path, of_diffusers=True)
    return DiffusionSource(config, {}) if is_of_diffusers(config) else config


def is_of_diffusers(config: Mapping[str, Any]) -> bool:
    """Whether a configuration is one of diffusers; Wan's own files have a model_type as well."""
    name = config.get("_class_name")
    if not isinstance(name, str):
        return False
    from posenc.diffusion.models import TRANSFORMERS  # records that no other config needs

    return "model_type" not in config or name in TRANSFORMERS


def missing(path: Path | str) -> str:
    """That nothing is at a path, in words; of what looks like a name on the Hugging Face Hub, how to download it."""
    text = str(path).removesuffix("/config.json")
    if re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", text, re.ASCII) and not Path(text).parent.exists():
        name = text.rpartition("/")[2]
        return f"{text} is no local folder; for a model of the Hugging Face Hub: hf download {text} --local-dir {name}"
    return f"{path_text(path)} does not exist"


def dotted(path: tuple[Any, ...]) -> str:
    """Where a key stands, in words: text_config.rope_scaling.factor."""
    return ".".join(printable(str(key)) for key in path) or "config"


def translate(config: Config) -> Translated:
    """A configuration as Hugging Face writes it; its own are left as they are.

    Raises:
        ValueError: for a key that cannot be understood, or means what no configuration can say.
    """
    if "general.architecture" in config:
        from posenc.hf.sources.gguf_metadata import translate as read
    elif {"n_embd", "block_size", "rope_base"} <= config.keys():
        from posenc.hf.sources.litgpt import translate as read
    elif {"dim", "n_heads"} <= config.keys() and not {"hidden_size", "architectures"} & config.keys():
        from posenc.hf.sources.params_json import translate as read
    else:
        read = Translated
    return read(config)
