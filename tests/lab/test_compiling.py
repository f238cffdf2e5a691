"""Compiled blocks: the same numbers up to rounding, the same names, and a clear word where nothing compiles."""

from __future__ import annotations

import dataclasses
import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from posenc.lab.checkpoint import read_checkpoint
from posenc.lab.compiling import check_compiler, compile_blocks
from posenc.lab.jobs import Job, read_result
from posenc.lab.machine import check_machine
from posenc.lab.model import Decoder
from posenc.lab.specs import Shape
from posenc.lab.text.profiles import Settings

MakeJob = Callable[..., tuple[Job, Path]]


def test_all_layers_are_one_compilation_and_keep_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = []

    def count(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., object]:
        graphs.append(graph)
        return graph.forward

    model = Decoder("rope+fox", Shape(16, 2, 10, 8), hidden=32, seed=0)
    tokens = torch.arange(16).view(2, 8)
    expected, names = model(tokens), list(model.state_dict())
    monkeypatch.setattr("torch.compile", functools.partial(torch.compile, backend=count))
    for _ in range(2):  # what another job of the same process compiled is not in the way
        compile_blocks(model)
        assert torch.allclose(model(tokens), expected, atol=1e-6)
    assert list(model.state_dict()) == names
    assert len(graphs) == 2


def test_a_machine_without_a_compiler_is_told_so(tiny: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(function: object) -> object:
        def call(x: object) -> object:
            raise RuntimeError("\n  no compiler was found\nmore lines")

        return call

    check_compiler.cache_clear()
    monkeypatch.setattr("torch.compile", broken)
    settings = dataclasses.replace(tiny, compile=True)
    with pytest.raises(
        ValueError, match=r"--compile: .* on cpu here \(no compiler was found\): .* --no-compile"
    ) as found:
        check_machine(settings, elsewhere=False)
    assert "\n" not in str(found.value)
    check_machine(settings, elsewhere=True)  # there may be one there
    check_machine(tiny, elsewhere=False)


def test_a_numbered_device_is_refused(tiny: Settings) -> None:
    with pytest.raises(ValueError, match=r"--device cuda:1: cuda is needed; CUDA_VISIBLE_DEVICES"):
        check_machine(dataclasses.replace(tiny, device="cuda:1"), elsewhere=False)


def _run(folder: Path, spec: str) -> None:
    """In a process of its own: accelerate takes one precision for each."""
    program = [sys.executable, "-m", "posenc.lab.worker", str(folder), "--rows", spec, "--parent", str(os.getpid())]
    done = subprocess.run(program, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "precision"), [("rope", "float32"), ("t5", "float32"), ("fox", "float32"), ("fox", "bfloat16")]
)
def test_a_compiled_training_ends_with_the_numbers_of_an_eager_one(
    make_job: MakeJob, tiny: Settings, spec: str, precision: str
) -> None:
    eager = dataclasses.replace(tiny, layers=2, precision=precision)
    results, names = [], []
    for settings in (eager, dataclasses.replace(eager, compile=True)):
        job, folder = make_job(spec, settings=settings, name=str(settings.compile))
        _run(folder, spec)
        result, state = read_result(folder, job), read_checkpoint(folder / "checkpoint.pt", job.identity)
        assert result is not None
        assert state is not None
        results.append([x for bits in result["rows"][spec]["bits"] for x in bits])
        names.append(list(state.model))
    assert names[0] == names[1]
    assert results[1] == pytest.approx(results[0], abs=2e-2 if precision == "bfloat16" else 1e-3)


@pytest.mark.slow
def test_the_real_compiler_is_looked_for(tmp_path: Path) -> None:
    program = "from posenc.lab.compiling import check_compiler; check_compiler('cpu')"
    here = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    assert subprocess.run([sys.executable, "-c", program], env=here, timeout=240).returncode == 0
    bare = {**here, "CXX": str(tmp_path / "no-compiler"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "other")}
    refused = subprocess.run([sys.executable, "-c", program], env=bare, capture_output=True, text=True, timeout=240)
    assert refused.returncode == 1
    assert "ValueError: --compile: torch.compile does not work on cpu here" in refused.stderr
