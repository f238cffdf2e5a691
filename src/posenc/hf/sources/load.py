"""Finds a configuration, loads it from any source, and translates it.

`load` copies what a source holds; `translate` gives it in Hugging Face's keys, whichever program wrote it: Meta's and
Mistral's params.json, litgpt's model_config.yaml, the metadata of a GGUF file.

``org/name`` and ``org/name@revision`` are models of the Hugging Face Hub. Its cache is asked first, and only what that
lacks is downloaded, both through huggingface_hub, and only config files: never weights. A local path that exists always
comes before the Hub.

A pipeline of diffusers has an index, ``model_index.json``, that names its parts, each in a folder of its own:

    {"_class_name": "FluxPipeline", "transformer": ["diffusers", "FluxTransformer2DModel"], "vae": ["diffusers", …], …}

Transformers are the parts whose name begins with ``transformer`` (Wan 2.2 has two, transformer and transformer_2), or
ends with it (Ideogram 4's unconditional_transformer). A folder without the index is read by its ``transformer`` alone.

Source: huggingface_hub 2.4 (file_download.py, errors.py); diffusers 0.42, configuration_utils.py
    (``model_index.json``) and pipelines/pipeline_utils.py (parts as ``name: [library, class]``; an optional part that
    is missing has two nulls).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol, runtime_checkable

from posenc.arguments import one_line, shown
from posenc.hf.limits import DEPTH, FILE_BYTES
from posenc.hf.sources.translated import Config as Config
from posenc.hf.sources.translated import Translated as Translated
from posenc.input_files import UnreadableFileError, path_text, printable, read_json, read_text


@runtime_checkable
class _HasDict(Protocol):
    def to_dict(self) -> dict[str, Any]: ...


Source = Mapping[str, Any] | str | Path | _HasDict
_OF_LITGPT = "model_config.yaml"
MAIN_FILES = ("config.json", "params.json")  # the first that a repository has; the second next to Mistral's own weights
SIDE_FILES = (
    "generation_config.json", "tokenizer_config.json", "preprocessor_config.json", "sentence_bert_config.json",
)  # fmt: skip
INDEX = "model_index.json"
_MAIN = "transformer"
_NAME = r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*"
_ID = re.compile(rf"({_NAME})(?:@([\w./-]+))?", re.ASCII)
_FILES = (".json", ".gguf", ".safetensors", ".bin", ".pt", ".pth", ".txt", ".yaml")  # no model is named like a file
_SECONDS = 5  # to wait for a connection


def load(source: Source, *, of_diffusers: bool = False) -> Config:
    """A copy of a configuration: a dictionary, an object with ``to_dict()``, a file, a folder with config.json,
    params.json or litgpt's model_config.yaml, the metadata of a GGUF file, or a model of the Hugging Face Hub by name.

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
        copied: Config = _copied(source, ())
        return copied
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
    if re.fullmatch(_NAME, text, re.ASCII) and not Path(text).parent.exists():
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
        from posenc.hf.sources.other_programs import of_litgpt as read
    elif {"dim", "n_heads"} <= config.keys() and not {"hidden_size", "architectures"} & config.keys():
        from posenc.hf.sources.other_programs import of_params as read
    else:
        read = Translated
    return read(config)


class HubError(ValueError):
    """A model of the Hub that cannot be read, in one line that says what to do."""


class HubId(NamedTuple):
    """A model of the Hub: ``org/name``, and the branch, tag or commit that is meant."""

    name: str
    revision: str

    def __str__(self) -> str:
        return self.name if self.revision == "main" else f"{self.name}@{self.revision}"


def hub_id(source: str | Path) -> HubId | None:
    """The model that a source names; None for a path that exists, and for what no model of the Hub is named like."""
    text = source.as_posix() if isinstance(source, Path) else source
    match = _ID.fullmatch(text.removesuffix("/config.json"))
    if match is None or match[1].endswith(_FILES) or Path(source).exists():
        return None
    revision = match[2] or "main"
    return None if ".." in revision.split("/") else HubId(match[1], revision)


def local_source(source: str | Path) -> Path:
    """A source as a path: itself, or for a model of the Hub the folder of the cache with its config files.

    Raises:
        HubError: for a model of the Hub whose config files are neither in the cache nor can be downloaded.
    """
    model = hub_id(source)
    return Path(source) if model is None else config_folder(model)


def config_folder(model: HubId) -> Path:
    """The folder of the cache with the config files of a model, which are downloaded where it has none.

    Raises:
        HubError: for no network, a model that does not exist or asks for access, and where huggingface_hub is missing.
    """
    try:
        from huggingface_hub import constants, hf_hub_download, try_to_load_from_cache
        from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError
    except ModuleNotFoundError as error:
        raise HubError(
            f"{model} is no local path; to read a model of the Hugging Face Hub: pip install huggingface_hub, or give "
            "a folder"
        ) from error
    import logging

    def cached(name: str) -> Path | None:
        file = try_to_load_from_cache(model.name, name, revision=model.revision)
        return Path(file) if isinstance(file, str) else None  # an object of its own: known to be missing on the Hub

    def downloaded(name: str) -> Path | None:
        try:
            return Path(hf_hub_download(model.name, name, revision=model.revision))
        except LocalEntryNotFoundError:  # derives from the next, and means that the network failed
            raise
        except EntryNotFoundError:
            return None

    with suppress(HubError):  # of what the cache lacks
        return _folder_of(model, cached)
    if Path(model.name).parent.exists():  # a local folder without this entry: a path with a slip rather than a model
        raise HubError(f"{model} does not exist in this folder, and the cache of the Hugging Face Hub does not have it")
    lost = f"{model} is no local folder and not in the cache ({printable(str(constants.HF_HUB_CACHE))})"
    files = "config.json" if cached(INDEX) is None else f"--include {INDEX} '*/config.json'"
    revision = "" if model.revision == "main" else f" --revision {model.revision}"
    advice = f"hf download {model.name} {files}{revision}"
    if constants.HF_HUB_OFFLINE:
        raise HubError(f"{lost}, and HF_HUB_OFFLINE is set: {advice}, where there is a network")
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it writes a line for each attempt
    with _in_words(model, lost, advice):
        check_connection()
        return _folder_of(model, downloaded)


def _folder_of(model: HubId, get: Callable[[str], Path | None]) -> Path:
    """The folder with the config files of a model, each of which ``get`` looks for; a HubError for one that lacks."""
    for name in MAIN_FILES:
        if (file := get(name)) is not None:
            for side in SIDE_FILES:
                get(side)
            return file.parent
    index = get(INDEX)
    if index is None:
        files = " or ".join((*MAIN_FILES, INDEX))
        raise HubError(f"{model} has no {files} on the Hugging Face Hub: no model to read")
    for part in transformers_of(parts_of(index)):
        if get(f"{part}/config.json") is None:
            raise HubError(f"{model} has no {part}/config.json on the Hugging Face Hub, which its {INDEX} names")
    return index.parent


def check_connection() -> None:
    """Raise an OSError where the Hub cannot be reached; huggingface_hub would try again for half a minute.

    Behind a proxy nothing is tried, since the Hub's own name need not be known there.
    """
    import socket
    from urllib.parse import urlsplit
    from urllib.request import getproxies

    endpoint = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    if not {"http", "https", "all"} & set(getproxies()):
        port = endpoint.port or (80 if endpoint.scheme == "http" else 443)
        socket.create_connection((endpoint.hostname or "", port), timeout=_SECONDS).close()


@contextmanager
def _in_words(model: HubId, lost: str, advice: str) -> Iterator[None]:
    """Let each error of huggingface_hub be one line that says what to do.

    Network errors are distinguished by the names of their classes, because they come from requests in version 0 of the
    package, and from httpx since version 1.
    """
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        yield
    except HubError:
        raise
    except Exception as error:
        names = {cls.__name__ for cls in type(error).__mro__}
        status = getattr(getattr(error, "response", None), "status_code", None)
        page = f"https://huggingface.co/{model.name}"
        if isinstance(error, GatedRepoError) or status == 403:
            text = f"{model} asks for access: accept its conditions at {page}, then log in with: hf auth login"
        elif isinstance(error, RevisionNotFoundError):
            text = f"{model.name} has no branch, tag or commit {model.revision!r} on the Hugging Face Hub"
        elif isinstance(error, RepositoryNotFoundError) or status in (401, 404):
            text = f"{model} is no local path, and no model of the Hugging Face Hub that is open to you: look for a "
            text += f"slip at {page}; for a private one: hf auth login"
        elif isinstance(error, OSError) and error.errno is not None and error.filename is not None:
            text = f"{model}: {error.filename}: {error.strerror}"
        elif isinstance(error, OSError | ValueError) or names & {"HTTPError", "TransportError", "HfHubHTTPError"}:
            reason = f"{type(error).__name__}: {one_line(error)[:100]}"
            text = f"{lost}, and the Hugging Face Hub cannot be reached ({reason}): check the network, or give a local "
            text += f"folder; where there is a network: {advice}"
        else:
            raise
        raise HubError(text) from error


def parts_of(index: Path) -> dict[str, str]:
    """The parts of a pipeline and their classes, as its ``model_index.json`` names them."""
    content = read_json(index, FILE_BYTES)
    if not isinstance(content, Mapping):
        raise UnreadableFileError(f"{path_text(index)} must hold a JSON object, found a {type(content).__name__}")
    pairs = {name: value for name, value in content.items() if isinstance(value, list) and len(value) == 2}
    return {name: value[1] for name, value in pairs.items() if all(isinstance(entry, str) for entry in value)}


def transformers_of(parts: Mapping[str, str]) -> list[str]:
    """The parts that are transformers, the main one first."""
    names = [name for name in parts if name.startswith(_MAIN) or name.endswith(f"_{_MAIN}")]
    return sorted(names, key=lambda name: (name != _MAIN, name))


def transformer_configs(folder: Path) -> dict[str, Path]:
    """The ``config.json`` of each transformer of a pipeline, by its part's name; empty for what is no pipeline.

    Raises:
        ValueError: for a pipeline without a transformer, and one whose transformers have no config.json.
    """
    index = folder / INDEX
    if not index.exists():
        config = folder / _MAIN / "config.json"
        return {_MAIN: config} if config.exists() else {}
    parts = parts_of(index)
    configs = {name: folder / name / "config.json" for name in transformers_of(parts)}
    if not configs:
        raise ValueError(f"{path_text(index)} names no transformer, whose positions could be read: {', '.join(parts)}")
    for name, config in configs.items():
        if not config.exists():
            raise FileNotFoundError(f"{path_text(folder)} has no {name}/config.json, which {INDEX} names: download it")
    return configs
