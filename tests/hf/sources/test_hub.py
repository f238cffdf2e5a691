"""Models of the Hugging Face Hub by name: a cache as the Hub lays it out, and every way in which it fails."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("huggingface_hub")

from huggingface_hub import constants, errors

import posenc_cli
from posenc.hf import read_rope
from posenc.hf.sources import load
from posenc.hf.sources.load import HubError, HubId, config_folder, hub_id, local_source

COMMIT, OTHER = "1" * 40, "2" * 40
CONFIG = {"model_type": "llama", "head_dim": 64, "rope_theta": 5e5, "max_position_embeddings": 8192}
MODEL = HubId("org/model", "main")


def cached(root: Path, commit: str = COMMIT, reference: str | None = "main", **config: Any) -> Path:
    """A model in a cache: a blob, a link to it in a snapshot, and a branch."""
    repository = root / "models--org--model"
    blob = repository / "blobs" / f"b{commit[0]}"
    snapshot = repository / "snapshots" / commit
    for folder in (blob.parent, snapshot, repository / "refs"):
        folder.mkdir(parents=True, exist_ok=True)
    blob.write_text(json.dumps({**CONFIG, **config}))
    (snapshot / "config.json").symlink_to(Path("../../blobs") / blob.name)
    if reference is not None:
        target = repository / "refs" / reference
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(commit)
    return snapshot


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, another working folder, and no network."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "hub"


@pytest.fixture
def server(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A Hub that has the files of a dictionary, or raises what stands there for a name."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(load, "check_connection", lambda: None)
    files: dict[str, Any] = {"asked": []}

    def download(name: str, file: str, *, revision: str) -> str:
        files["asked"].append(file)
        content = files.get(file, errors.EntryNotFoundError("none"))
        if isinstance(content, Exception):
            raise content
        path = root / f"models--{name.replace('/', '--')}" / "snapshots" / COMMIT / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
        return str(path)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    return files


def test_names_and_paths(root: Path, tmp_path: Path) -> None:
    assert hub_id("Qwen/Qwen3-8B") == ("Qwen/Qwen3-8B", "main")
    assert hub_id(Path("org/model@refs/pr/3")) == ("org/model", "refs/pr/3")
    for text in ("./org/model", "/org/model", "a/b/c", "org/model@../x", "runs/model.gguf", "o/config.json", ""):
        assert hub_id(text) is None
    Path("org/model").mkdir(parents=True)
    assert hub_id("org/model") is None, "a local path that exists comes first"
    cached(root)
    assert local_source("org/model") == Path("org/model")


def test_the_cache_is_read_without_a_network(root: Path) -> None:
    snapshot = cached(root)
    cached(root, OTHER, "refs/pr/1", rope_theta=1e6)
    assert local_source("org/model") == snapshot
    assert read_rope("org/model").rope.base == 5e5
    for revision in ("refs/pr/1", OTHER):
        assert read_rope(f"org/model@{revision}").rope.base == 1e6


@pytest.mark.parametrize("command", ["explain", "serve-flags", "recommend", "doctor"])
def test_commands_take_a_name(root: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    cached(root)
    assert posenc_cli.run([command, "org/model"]) == 0
    assert "500,000" in capsys.readouterr().out or command != "explain"


def test_a_cached_model_is_not_corrected_in_place(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cached(root)
    assert posenc_cli.run(["doctor", "org/model", "--in-place"]) == 2
    assert "--fix OUT" in capsys.readouterr().err


def test_offline(root: Path) -> None:
    with pytest.raises(HubError, match=r"HF_HUB_OFFLINE is set: hf download org/model config.json") as error:
        read_rope("org/model")
    assert "\n" not in str(error.value)


def test_a_slip_in_a_local_path_asks_nobody(server: dict[str, Any]) -> None:
    Path("models").mkdir()
    with pytest.raises(HubError, match=r"models/lama does not exist in this folder, and the cache"):
        read_rope("models/lama")
    assert server["asked"] == []


def test_a_cache_of_other_files_alone_is_asked_for_its_config(root: Path) -> None:
    (cached(root) / "config.json").unlink()
    with pytest.raises(HubError, match="not in the cache"):
        config_folder(MODEL)


def test_only_config_files_are_downloaded(server: dict[str, Any]) -> None:
    server |= {"config.json": CONFIG, "tokenizer_config.json": {}, "model.safetensors": 1}
    folder = config_folder(MODEL)
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "tokenizer_config.json"]
    assert set(server["asked"]) == {"config.json", *load.SIDE_FILES}


def test_a_repository_with_params_json(server: dict[str, Any]) -> None:
    server["params.json"] = {}
    assert (config_folder(MODEL) / "params.json").exists()


def test_a_repository_without_a_config(server: dict[str, Any]) -> None:
    with pytest.raises(HubError, match=r"has no config.json or params.json or model_index.json on the Hugging Face"):
        config_folder(MODEL)


INDEX = {
    "_class_name": "WanPipeline", "transformer": ["diffusers", "WanTransformer3DModel"],
    "transformer_2": ["diffusers", "WanTransformer3DModel"], "vae": ["diffusers", "AutoencoderKLWan"],
    "image_encoder": [None, None],
}  # fmt: skip
WAN = {"_class_name": "WanTransformer3DModel", "attention_head_dim": 128}


def test_of_a_pipeline_the_transformers_configs_are_downloaded(
    server: dict[str, Any], root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"model_index.json": INDEX, "transformer/config.json": WAN, "transformer_2/config.json": WAN}
    server |= files | {"vae/config.json": {}, "transformer/diffusion_pytorch_model.safetensors": 1}
    assert posenc_cli.run(["explain", "org/model"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("WanTransformer3DModel (diffusers)")
    assert out.endswith("transformer_2: the same\n")
    requests = ["config.json", "params.json", "model_index.json"]
    requests += ["transformer/config.json", "transformer_2/config.json"]
    assert server["asked"] == requests
    reference = root / "models--org--model" / "refs" / "main"  # which huggingface_hub writes
    reference.parent.mkdir()
    reference.write_text(COMMIT)
    snapshot = config_folder(MODEL)
    assert server["asked"] == requests, "read from the cache"
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    (snapshot / "transformer_2" / "config.json").unlink()
    with pytest.raises(HubError, match=r"hf download org/model --include model_index.json '\*/config.json'"):
        config_folder(MODEL)


def test_a_pipeline_whose_transformer_has_no_config(server: dict[str, Any]) -> None:
    server |= {"model_index.json": INDEX, "transformer/config.json": WAN}
    with pytest.raises(HubError, match=r"has no transformer_2/config.json .* which its model_index.json names"):
        config_folder(MODEL)


@pytest.mark.parametrize(
    ("kind", "status", "says"),
    [
        (errors.GatedRepoError, 401, "asks for access: accept its conditions at https://huggingface.co/org/model"),
        (errors.HfHubHTTPError, 403, "asks for access"),
        (errors.RepositoryNotFoundError, 401, "no model of the Hugging Face Hub that is open to you"),
        (errors.RevisionNotFoundError, 404, "has no branch, tag or commit 'main'"),
        (errors.LocalEntryNotFoundError, None, "cannot be reached .*LocalEntryNotFoundError.*: check the network"),
        (errors.HfHubHTTPError, 500, "cannot be reached"),
    ],
)
def test_refusals_in_one_line(server: dict[str, Any], kind: type[Exception], status: int | None, says: str) -> None:
    server["config.json"] = error = kind.__new__(kind)  # whose constructors differ between versions of the package
    error.args = ("two\nlines",)
    error.response = types.SimpleNamespace(status_code=status)  # type: ignore[attr-defined]
    with pytest.raises(HubError, match=says) as raised:
        read_rope("org/model")
    assert "\n" not in str(raised.value)


def test_no_network(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # where nobody listens
    with pytest.raises(HubError, match=r"cannot be reached .*: check the network, or give a local folder"):
        config_folder(MODEL)


def test_without_huggingface_hub(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(HubError, match="pip install huggingface_hub, or give a folder"):
        config_folder(MODEL)
