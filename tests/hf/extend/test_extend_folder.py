"""What `posenc extend` says before, during and after its measurements, and what its folder holds."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

import posenc_cli
from posenc.evaluation.log import MeasurementLog, fingerprint
from posenc.hf.attach.loading import load_causal_lm, within_memory
from posenc.hf.extend import Extension, extend
from posenc.hf.extend.extension import _has_weights_of
from tests.hf.extend.extended import TARGET, TRAINED, request, saved, small, text


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory. Tried …"), RuntimeError("DefaultCPUAllocator: can't allocate memory")],
)
def test_a_lack_of_memory_is_one_line(error: Exception) -> None:
    with pytest.raises(ValueError, match=r"112 tokens.*--device-map auto"), within_memory(small(), 112):
        raise error


def test_where_only_the_configuration_changes_the_folder_is_the_old_one_with_links(tmp_path: Path) -> None:
    folder, new, model = tmp_path / "model", tmp_path / "new", small().to(torch.bfloat16)
    model.generation_config.max_length = TRAINED
    saved(folder, model)
    for name, changes in (("tokenizer_config.json", {"model_max_length": TRAINED}), ("config.json", {"mine": [1]})):
        (folder / name).write_text(json.dumps({**json.loads((folder / name).read_text()), **changes}, indent=4))
    done = extend(folder, TARGET, "yarn", out=new, dtype="float32", **request())
    assert (folder / "model.safetensors").samefile(new / "model.safetensors")
    assert str(folder) in done.weights
    assert done.weights in str(done)
    assert json.loads((new / "extension.json").read_text())["weights"] == done.weights
    before, after = (set((each / "config.json").read_text().splitlines()) for each in (folder, new))
    keys = {line.split('"')[1] for line in before - after if '"' in line}
    assert keys <= {"max_position_embeddings", "rope_parameters", "rope_type", "rope_theta"}, "its own layout stays"
    assert AutoTokenizer.from_pretrained(new).model_max_length == TARGET
    assert json.loads((new / "generation_config.json").read_text())["max_length"] == TARGET
    assert json.loads((folder / "tokenizer_config.json").read_text())["model_max_length"] == TRAINED
    original, again = (folder / "model.safetensors").read_bytes(), AutoModelForCausalLM.from_pretrained(new)
    assert again.dtype == torch.bfloat16, "of the files, not of the model in memory"
    with torch.no_grad():
        next(again.parameters()).zero_()
    again.save_pretrained(new)
    assert (folder / "model.safetensors").read_bytes() == original  # safetensors writes a new file


def test_a_replaced_source_is_not_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)  # a symbolic link would lead to the folder that is removed
    saved(tmp_path / "model", small())
    before = load_causal_lm(tmp_path / "model").model
    done = extend(tmp_path / "model", TARGET, "yarn", out=tmp_path / "model", overwrite=True, **request())
    assert done.weights == ""
    assert fingerprint(load_causal_lm(tmp_path / "model").model) == fingerprint(before)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), KeyboardInterrupt()])
def test_a_replaced_folder_comes_back_where_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    saved(tmp_path / "model", small())
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "mine").write_text("precious")
    replace = Path.replace

    def fails(self: Path, target: Path) -> Path:
        if isinstance(error, OSError) and self.name == "new" and self.parent.name.startswith(".new-"):
            raise error
        moved = replace(self, target)
        if not isinstance(error, OSError) and target.name == ".replaced":  # once the old folder has been moved away
            raise error
        return moved

    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(type(error)):
        extend(tmp_path / "model", TARGET, "yarn", out=tmp_path / "new", overwrite=True, **request())
    assert (tmp_path / "new" / "mine").read_text() == "precious"


def test_a_folder_within_the_model_or_around_it_is_refused(tmp_path: Path) -> None:
    saved(tmp_path / "models" / "model", small())
    for out in (tmp_path / "models" / "model" / "longer", tmp_path / "models"):
        with pytest.raises(ValueError, match="lie in one another"):
            extend(tmp_path / "models" / "model", TARGET, "yarn", out=out, overwrite=True, **request())
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["model"]


def test_generation_settings_that_cannot_be_saved(tmp_path: Path) -> None:
    saved(tmp_path / "model", small())
    file = tmp_path / "model" / "generation_config.json"
    file.write_text(json.dumps({"temperature": 0.9, "do_sample": False}))
    extend(tmp_path / "model", TARGET, "yarn", out=tmp_path / "new", **request())  # the file is taken as it is
    assert json.loads((tmp_path / "new" / "generation_config.json").read_text())["temperature"] == 0.9
    model, lines = small(), list[str]()
    model.generation_config.temperature = 0.9
    with pytest.raises(ValueError, match=r"transformers cannot save it: [^\n]*temperature"):
        extend(model, TARGET, "yarn", out=tmp_path / "other", **request(progress=lines.append))
    assert not (tmp_path / "other").exists()
    assert (tmp_path / "other.work" / "readings.jsonl").exists(), "what was measured is kept"


def test_shards_are_linked_with_their_index_and_adapters_are_not(tmp_path: Path) -> None:
    saved(tmp_path / "model", small(), max_shard_size="20KB")
    extend(tmp_path / "model", TARGET, "yarn", out=tmp_path / "new", **request())
    shards = [path.name for path in (tmp_path / "model").glob("*.safetensors")]
    assert len(shards) > 2
    assert all((tmp_path / "model" / name).samefile(tmp_path / "new" / name) for name in shards)
    AutoModelForCausalLM.from_pretrained(tmp_path / "new")
    (tmp_path / "model" / "adapter_config.json").write_text("{}")
    assert not _has_weights_of(tmp_path / "model", small())


def test_a_search_that_has_no_pieces_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    options = {**request(), "text": text(TARGET + 20), "last": 10}
    with pytest.raises(ValueError, match="searches need pieces"):
        extend(small(), TARGET, "longrope", out=tmp_path / "new", **options)
    assert not (tmp_path / "new.work").exists()


@pytest.mark.parametrize("method", ["yarn", "rerope"])
def test_a_full_disk_leaves_the_measurements_and_nothing_half_written(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    saved(tmp_path / "model", small())
    call: dict[str, Any] = {"out": tmp_path / "new", **request()}
    with monkeypatch.context() as patch:
        patch.setattr("posenc.hf.extend.folder.lengthened", full)
        with pytest.raises(OSError, match=r"new: cannot be written: No space left.*saved in .*new\.work") as caught:
            extend(tmp_path / "model", TARGET, method, **call)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "new").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "new.work"]
    lines: list[str] = []
    extend(tmp_path / "model", TARGET, method, **call, progress=lines.append)
    assert not any("perplexity" in line for line in lines)  # nothing was measured twice
    assert (tmp_path / "new" / "extension.json").exists()


def test_another_process_does_not_work_on_the_same_state(tmp_path: Path) -> None:
    out, lines = tmp_path / "new", list[str]()

    def second(line: str) -> None:
        if "document 2" in line:
            with pytest.raises(ValueError, match="another process is writing there"):
                extend(small(), TARGET, "yarn", out=out, progress=lines.append, **request())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extend(small(), TARGET, "yarn", out=out, progress=second, **request())
    assert not lines
    extend(small(), TARGET, "yarn", out=out, **request())  # the first one is gone
    assert not (tmp_path / "new.work").exists()


def test_a_full_disk_within_the_log_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = MeasurementLog(tmp_path / "readings.jsonl")
    log.put("first", 1)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device; 1 measurements .*readings\.jsonl"):
        log.put("second", 2)
    assert log.get("second") is None


def test_damaged_weights_are_named_before_the_model_is_built(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(tmp_path / "model", small(), max_shard_size="20KB")
    shard = sorted((tmp_path / "model").glob("*.safetensors"))[1]
    content = shard.read_bytes()
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 1234\n"
    for damaged, says in ((content[:-100], "truncated"), (pointer, "LFS"), (b"", "damaged")):
        shard.write_bytes(damaged)
        capsys.readouterr()
        for command in (["extend", "--length", "112"], ["evaluate"], ["attach", "fox", "--out", str(tmp_path / "new")]):
            assert posenc_cli.run([command[0], str(tmp_path / "model"), *command[1:]]) == 2
            error = capsys.readouterr().err
            assert shard.name in error
            assert says in error
            assert error.count("\n") == 1
    shard.unlink()
    assert posenc_cli.run(["extend", str(tmp_path / "model"), "--length", "112"]) == 2
    assert "lacks" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"device": "cuda"}, "device 'cuda': "),
        ({"device": "gpu"}, "device 'gpu': .*cpu, cuda"),
        ({"dtype": "float33"}, "dtype"),
        ({"device_map": "all"}, "device_map"),
    ],
)
def test_devices_and_dtypes_that_do_not_exist(options: dict[str, str], says: str, tmp_path: Path) -> None:
    if options.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("has CUDA")
    saved(tmp_path / "model", small())
    with pytest.raises(ValueError, match=says):
        load_causal_lm(tmp_path / "model", **options)  # type: ignore[arg-type]


def test_automatic_device_and_device_map(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    saved(tmp_path / "model", small())
    expected = extend(tmp_path / "model", TARGET, "yarn", **request())
    ways: list[dict[str, Any]] = [{"device": "auto"}, {"device_map": "auto"}]
    for options in ways:
        done = extend(tmp_path / "model", TARGET, "yarn", **request(), **options)
        assert losses(done) == pytest.approx(losses(expected), abs=1e-4)


def test_weights_that_accelerate_offloads(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    saved(tmp_path / "model", small())
    expected = extend(tmp_path / "model", TARGET, "yarn", **request())
    placed = {"model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk", "model.norm": "cpu"}
    placed |= {"model.rotary_emb": "cpu", "lm_head": "cpu"}
    model = AutoModelForCausalLM.from_pretrained(
        tmp_path / "model", device_map=placed, offload_folder=str(tmp_path / "offloaded")
    )
    assert any(weight.is_meta for weight in model.parameters())
    done = extend(model, TARGET, "yarn", **request())
    assert losses(done) == pytest.approx(losses(expected), abs=1e-5)


def losses(done: Extension) -> list[float]:
    """Of the windows at the new length."""
    return list(done.evaluation.values("perplexity", TARGET, done.method).values())


def quantized(folder: Path) -> None:
    """A checkpoint with two-bit weights, which transformers opens without any further package."""
    from transformers import BitNetQuantConfig
    from transformers.integrations import replace_with_bitnet_linear

    config = small(hidden_size=64).config
    settings = BitNetQuantConfig()
    model = replace_with_bitnet_linear(
        AutoModelForCausalLM.from_config(config), modules_to_not_convert=["lm_head"], quantization_config=settings
    )
    source = torch.Generator().manual_seed(0)
    for name, buffer in model.named_buffers():
        if name.endswith("weight"):
            buffer.copy_(torch.randint(0, 171, buffer.shape, generator=source).to(buffer.dtype) & 0b10101010)
        elif name.endswith("weight_scale"):
            buffer.fill_(8.0)
    model.config.quantization_config = settings
    saved(folder, model)


def test_a_quantized_checkpoint_stays_as_it_is(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    quantized(tmp_path / "model")
    before = load_causal_lm(tmp_path / "model").model
    assert any(buffer.dtype == torch.uint8 for buffer in before.buffers())
    done = extend(tmp_path / "model", TARGET, "yarn", out=tmp_path / "new", **request())
    assert max(losses(done)) < 20
    assert (tmp_path / "model" / "model.safetensors").samefile(tmp_path / "new" / "model.safetensors")
    config = AutoConfig.from_pretrained(tmp_path / "new")
    assert config.quantization_config["quant_method"] == "bitnet"
    assert config.rope_parameters["rope_type"] == "yarn"
    again = load_causal_lm(tmp_path / "new").model
    assert fingerprint(again) == fingerprint(before)


def test_the_fingerprint_sees_weights_in_buffers() -> None:
    model: Any = torch.nn.Linear(2, 2)
    model.register_buffer("packed", torch.zeros(4, dtype=torch.uint8))
    model.register_buffer("table", torch.zeros(4), persistent=False)
    before = fingerprint(model)
    model.table += 1
    assert fingerprint(model) == before
    model.packed += 1
    assert fingerprint(model) != before


@pytest.mark.slow
def test_ctrl_c_says_what_is_saved_and_how_to_continue(tmp_path: Path) -> None:
    saved(tmp_path / "model", small())
    (tmp_path / "text").write_text("the position of a token, and its distance from another, " * 60)
    arguments = ["extend", str(tmp_path / "model"), "--length", "112", "--method", "longrope", "--out"]
    arguments += [str(tmp_path / "a new"), "--text", str(tmp_path / "text"), "--windows", "2", "--search", "4000"]
    command = [sys.executable, "-m", "posenc", *arguments]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    for line in running.stderr:
        if "extending by" in line:
            running.send_signal(signal.SIGINT)
            break
    rest = running.stderr.read()
    assert running.wait(60) == 130
    last = rest.strip().splitlines()[-1]
    assert last.startswith("stopped: ")
    assert " readings" in last
    assert f"posenc extend {tmp_path / 'model'} --length 112" in last
    assert f"'{tmp_path / 'a new'}'" in last  # quoted for a shell
    assert (tmp_path / "a new.work" / "readings.jsonl").exists()
    shutil.rmtree(tmp_path / "a new.work")
