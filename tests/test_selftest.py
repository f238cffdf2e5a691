"""``posenc selftest``: what it checks on a CPU, and that what is wrong is found and ends with exit code 1."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import torch

import posenc_cli
from posenc.backends import BACKENDS, tiles
from posenc.testing import selftest


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of the calls alone."""
    every = selftest._cpu_calls

    def calls() -> Iterator[tuple[str, object, dict[str, object]]]:
        return (call for call in every() if call[0] in ("T5", "FoX, window and documents"))

    monkeypatch.setattr(selftest, "_cpu_calls", calls)


def test_on_a_cpu_each_backend_is_checked(few: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert posenc_cli.run(["selftest", "--device", "cpu", "--json"]) == 0
    first, *checks = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert first["kind"] == "versions"
    assert first["torch"] == torch.__version__
    assert {record["status"] for record in checks} == {"right"}
    assert {"tiled: T5", "sdpa: T5", "rows: T5", "tiled: FoX, window and documents"} <= {c["what"] for c in checks}


def test_what_is_wrong_is_found(few: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    wrong_tiles = BACKENDS["tiled"]._replace(run=lambda call: tiles.run(call) * (1 + 1e-6))
    monkeypatch.setitem(BACKENDS, "tiled", wrong_tiles)
    assert posenc_cli.run(["selftest", "--device", "cpu", "--json"]) == 1
    _, *checks = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    wrong = [record for record in checks if record["status"] == "wrong"]
    assert {record["what"].partition(":")[0] for record in wrong} == {"tiled"}
    assert all(record["fault"] for record in wrong)
    assert posenc_cli.run(["selftest", "--device", "cpu"]) == 1
    assert "wrong" in capsys.readouterr().out


def test_a_gpu_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert posenc_cli.run(["selftest", "--device", "cuda"]) == 2
    assert "--device cuda" in capsys.readouterr().err


def test_kinds_are_every_kernel_in_every_dtype() -> None:
    kinds = [kind for kind, size in selftest.kinds() if size is None]
    assert len(set(kinds)) == len(kinds)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        of_dtype = [kind for kind in kinds if kind.dtype == dtype]
        of_all = {"softmax", "few queries", "sticks", "counts", "rotation", "append", "log gates"}
        assert of_all <= {kind.kernel for kind in of_dtype}
        flags = {flag for kind in of_dtype for flag in kind.flags}
        modes = {"row", "slopes", "gates", "network", "sink", "softcap", "dropout", "window", "documents", "padding"}
        assert modes | {"slots", "ring", "half", "interleaved"} <= flags
    long = [(kind.flags[0], size[4]) for kind, size in selftest.kinds() if size is not None]
    assert ("gates", 4096) in long
