"""Models of the Hugging Face Hub by name: ``org/name`` or ``org/name@revision``, as a folder with their config files.

The local cache of the Hub is read first, in plain Python: importing huggingface_hub takes longer than the rest of a
command, and the modules of a connection a quarter of it, so that both are imported where one is made. Only what the
cache lacks is downloaded, through huggingface_hub, and only config files: never weights. A local path that exists
always comes before the Hub. A pipeline of diffusers has its index and the config files of its transformers
(`posenc.hf.sources.pipeline`).

    HF_HUB/models--org--name/refs/main              the commit of a branch or tag, as text
    HF_HUB/models--org--name/snapshots/COMMIT/...   the files of a commit, links into blobs/

Source: huggingface_hub 2.4 (constants.py for the variables, file_download.py for the layout of the cache).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from posenc.arguments import one_line
from posenc.hf.sources.pipeline import INDEX, parts_of, transformers_of
from posenc.input_files import printable

MAIN_FILES = ("config.json", "params.json")  # the first that a repository has; the second next to Mistral's own weights
SIDE_FILES = (
    "generation_config.json", "tokenizer_config.json", "preprocessor_config.json", "sentence_bert_config.json",
)  # fmt: skip
_NAME = r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*"
_ID = re.compile(rf"({_NAME})(?:@([\w./-]+))?", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_FILES = (".json", ".gguf", ".safetensors", ".bin", ".pt", ".pth", ".txt", ".yaml")  # no model is named like a file
_TRUE = {"1", "ON", "YES", "TRUE"}
_SECONDS = 5  # to wait for a connection


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
    cached = cached_folder(model)
    if cached is not None:
        return cached
    if Path(model.name).parent.exists():  # a local folder without this entry: a path with a slip rather than a model
        raise HubError(f"{model} does not exist in this folder, and the cache of the Hugging Face Hub does not have it")
    if is_offline():
        raise HubError(
            f"{model} is no local folder and not in the cache ({printable(str(cache()))}), and HF_HUB_OFFLINE is set: "
            f"{_advice(model)}, where there is a network"
        )
    return _downloaded(model)


def cache() -> Path:
    """The folder of the Hub's cache, by the variables that huggingface_hub reads."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(name):
            return Path(os.environ[name]).expanduser()
    if os.environ.get("HF_HOME"):
        return Path(os.environ["HF_HOME"]).expanduser() / "hub"
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "huggingface" / "hub"


def is_offline() -> bool:
    """Whether the environment forbids downloads."""
    return (os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or "").upper() in _TRUE


def cached_folder(model: HubId) -> Path | None:
    """The snapshot of a model in the cache if it holds a configuration, else None, as in a damaged cache."""
    snapshot = _snapshot(model)
    if snapshot is None or any((snapshot / name).exists() for name in MAIN_FILES):
        return snapshot
    return snapshot if (snapshot / INDEX).exists() and not _missing_parts(snapshot / INDEX) else None


def _snapshot(model: HubId) -> Path | None:
    """The folder of the commit that a model's revision is in the cache, which need not exist."""
    repository = cache() / f"models--{model.name.replace('/', '--')}"
    commit = model.revision
    if _COMMIT.fullmatch(commit) is None:
        try:
            commit = (repository / "refs" / model.revision).read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            return None
    return repository / "snapshots" / commit if _COMMIT.fullmatch(commit) else None


def _missing_parts(index: Path) -> list[str]:
    """The config files of a pipeline's transformers that are not next to its index."""
    names = [f"{name}/config.json" for name in transformers_of(parts_of(index))]
    return [name for name in names if not (index.parent / name).exists()]


def _advice(model: HubId) -> str:
    revision = "" if model.revision == "main" else f" --revision {model.revision}"
    snapshot = _snapshot(model)
    is_pipeline = snapshot is not None and (snapshot / INDEX).exists()
    files = f"--include {INDEX} '*/config.json'" if is_pipeline else "config.json"
    return f"hf download {model.name} {files}{revision}"


def _downloaded(model: HubId) -> Path:
    """The folder of the cache after its config files were downloaded, no others."""
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError
    except ModuleNotFoundError as error:
        raise HubError(
            f"{model} is no local path and not in the cache of the Hugging Face Hub; to download its config: "
            "pip install huggingface_hub, or give a folder"
        ) from error
    import logging

    check_connection(model)
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it writes a line for each attempt

    def fetched(name: str) -> Path | None:
        try:
            return Path(hf_hub_download(model.name, name, revision=model.revision))
        except LocalEntryNotFoundError:  # derives from the next, and means that the network failed
            raise
        except EntryNotFoundError:
            return None

    with _in_words(model):
        for name in MAIN_FILES:
            if (file := fetched(name)) is not None:
                for side in SIDE_FILES:
                    fetched(side)
                return file.parent
        index = fetched(INDEX)
        if index is None:
            files = " or ".join((*MAIN_FILES, INDEX))
            raise HubError(f"{model} has no {files} on the Hugging Face Hub: no model to read")
        for name in _missing_parts(index):
            if fetched(name) is None:
                raise HubError(f"{model} has no {name} on the Hugging Face Hub, which its {INDEX} names")
        return index.parent


def check_connection(model: HubId) -> None:
    """Raise a HubError where the Hub cannot be reached; huggingface_hub would try again for half a minute.

    Behind a proxy nothing is tried, since the Hub's own name need not be known there.
    """
    import socket
    from urllib.parse import urlsplit
    from urllib.request import getproxies

    endpoint = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    if {"http", "https", "all"} & set(getproxies()):
        return
    try:
        port = endpoint.port or (80 if endpoint.scheme == "http" else 443)
        socket.create_connection((endpoint.hostname or "", port), timeout=_SECONDS).close()
    except (OSError, ValueError) as error:
        raise HubError(_unreachable(model, one_line(error))) from error


def _unreachable(model: HubId, reason: str) -> str:
    text = f"{model} is no local folder and not in the cache ({printable(str(cache()))}), and the Hugging Face Hub "
    text += f"cannot be reached ({reason}): check the network, or give a local folder; where there is a network: "
    return text + _advice(model)


@contextmanager
def _in_words(model: HubId) -> Iterator[None]:
    """Let each error of huggingface_hub be one line that says what to do.

    Errors are distinguished by the names of their classes, because network errors come from requests in version 0 of
    the package, and from httpx since version 1.
    """
    try:
        yield
    except HubError:
        raise
    except Exception as error:
        names = {cls.__name__ for cls in type(error).__mro__}
        status = getattr(getattr(error, "response", None), "status_code", None)
        page = f"https://huggingface.co/{model.name}"
        if "GatedRepoError" in names or status == 403:
            text = f"{model} asks for access: accept its conditions at {page}, then log in with: hf auth login"
        elif "RevisionNotFoundError" in names:
            text = f"{model.name} has no branch, tag or commit {model.revision!r} on the Hugging Face Hub"
        elif "RepositoryNotFoundError" in names or status in (401, 404):
            text = f"{model} is no local path, and no model of the Hugging Face Hub that is open to you: look for a "
            text += f"slip at {page}; for a private one: hf auth login"
        elif isinstance(error, OSError) and error.errno is not None and error.filename is not None:
            text = f"{model}: {error.filename}: {error.strerror}"
        elif isinstance(error, OSError | ValueError) or names & {"HTTPError", "TransportError", "HfHubHTTPError"}:
            text = _unreachable(model, type(error).__name__)
        else:
            raise
        raise HubError(text) from error
