"""Jobs on a Ray cluster, of this machine: what a run does when a machine, a job or the run itself ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import posenc
from posenc.lab import commands
from posenc.lab.checkpoint import read_checkpoint
from posenc.lab.jobs import read_job
from posenc.lab.runners.retries import DEATHS

TINY = (
    "--train-length 8 --lengths 1,2,4 --batch-size 4 --windows 4 --dim 16 --layers 1 --heads 2 --no-cost "
    "--precision float32 --device cpu --checkpoint-every 1 --no-control"
)
RAY = ("--runner", "ray", "--ray-address", "local", "--workers", "2")
HERE = ("--runner", "slurm", "--slurm-cluster", "debug")  # all jobs in this process, one after the other
STEPS = 400

OWN = '''
import torch
from posenc import BiasEncoding


class Nothing(BiasEncoding):
    """No bias at all."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads

    def forward(self, q_pos: torch.Tensor, k_pos: torch.Tensor) -> torch.Tensor:
        shape = (*k_pos.shape[:-1], self.num_heads, q_pos.shape[-1], k_pos.shape[-1])
        return torch.zeros(shape, device=k_pos.device)
'''


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory, write_texts: Callable[[Path], Path]) -> Path:
    return write_texts(tmp_path_factory.mktemp("data") / "texts")


@pytest.fixture(autouse=True)
def _undisturbed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Processes find these sources; and what Ray does with a termination ends with the test."""
    monkeypatch.setenv("PYTHONPATH", str(Path(posenc.__file__).parents[1]))
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def typed(texts: Path, out: Path, encodings: str, *more: str, steps: int = STEPS) -> list[str]:
    options = ["--data", str(texts), "--out", str(out), "--steps", str(steps), *TINY.split(), *more]
    return ["compare", *encodings.split(), *options]


def bits(out: Path) -> dict[str, object]:
    """What was measured of each encoding."""
    rows = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    return {
        row["encoding"]: (row["bits_per_byte"], row["loss_by_position"], row["training"]["loss_bits"]) for row in rows
    }


@pytest.fixture(scope="module")
def quiet(texts: Path) -> Path:
    """A finished run of nope and t5 that nobody disturbed."""
    out = texts.parent / "quiet"
    assert commands.run(typed(texts, out, "nope t5", *HERE)) == 0
    return out


def test_without_ray_one_line_says_what_to_install(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "posenc.lab.runners.ray_cluster", raising=False)
    assert commands.run(typed(texts, tmp_path / "run", "nope", *RAY)) == 2
    assert capsys.readouterr().err == "error: --runner ray needs ray: pip install 'posenc[ray]'\n"
    assert not (tmp_path / "run").exists()


@pytest.mark.ray
@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_where_nothing_answers_is_one_line(
    texts: Path, tmp_path: Path, scheme: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        address = f"{scheme}127.0.0.1:{taken.getsockname()[1]}"
        assert commands.run(typed(texts, tmp_path / "run", "nope", "--runner", "ray", "--ray-address", address)) == 2
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert err.startswith(f"error: --ray-address {address}: ")
    assert "`ray start --head`" in err


@pytest.mark.ray
@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
@pytest.mark.parametrize(("address", "words"), [("local", "--device cuda: not available here"), ("auto", "no machine")])
def test_a_device_must_be_here_only_if_the_cluster_is_this_machine(
    texts: Path, tmp_path: Path, address: str, words: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    ray_cluster = pytest.importorskip("posenc.lab.runners.ray_cluster", reason="ray is not installed")
    monkeypatch.setattr("posenc.lab.plan.describe_machine", lambda device: {})  # of a GPU that is not here
    monkeypatch.setattr(ray_cluster, "run_ray", lambda *args, gpus, **more: [f"no machine of {gpus} GPU"])
    command = typed(texts, tmp_path / "run", "nope", "--device", "cuda", "--runner", "ray", "--ray-address", address)
    assert commands.run(command) != 0
    assert words in capsys.readouterr().err


@pytest.mark.ray
def test_it_is_said_when_no_machine_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    ray_cluster = pytest.importorskip("posenc.lab.runners.ray_cluster", reason="ray is not installed")
    nodes = [
        {"Alive": True, "Resources": {"CPU": 4.0}},
        {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}},
        {"Alive": True, "Resources": {"CPU": 2.0, "GPU": 1.0}},
    ]
    monkeypatch.setattr(ray_cluster, "_connected", lambda address, cores: contextlib.nullcontext())
    monkeypatch.setattr(ray_cluster.ray, "nodes", lambda: nodes)
    said: list[str] = []
    for threads, gpus in ((4, 0), (2, 1), (8, 0), (4, 1)):
        none_left = ray_cluster.run_ray(
            [], "auto", workers=None, threads=threads, gpus=gpus, on_poll=lambda names: None, on_restart=said.append
        )
        assert none_left == []
    assert said == [
        "no machine of the cluster has 8 cores; jobs wait until one joins that has",
        "no machine of the cluster has 4 cores and 1 GPU; jobs wait until one joins that has",
    ]


@pytest.mark.slow
@pytest.mark.ray
def test_a_machine_that_is_lost_changes_no_number(
    quiet: Path, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    out, lost = tmp_path / "run", list[object]()
    head = {"num_cpus": 0, "include_dashboard": False}
    machines = Cluster(initialize_head=True, head_node_args=head)
    first, _ = machines.add_node(num_cpus=1), machines.add_node(num_cpus=1)

    def lose() -> None:
        while len(list(out.glob("jobs/*/checkpoint.pt"))) < 2:
            time.sleep(0.05)
        machines.remove_node(first, allow_graceful=False)
        lost.append(first)

    accident = threading.Thread(target=lose, daemon=True)
    accident.start()
    try:
        more = ("--runner", "ray", "--ray-address", machines.address)
        assert commands.run(typed(texts, out, "nope t5", *more)) == 0
    finally:
        machines.shutdown()
    assert lost
    assert "it is taken up again" in " ".join(capsys.readouterr().out.split())
    assert bits(out) == bits(quiet)


@pytest.mark.slow
@pytest.mark.ray
def test_own_classes_are_found_and_a_job_that_fails_is_not_tried_again(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(OWN)
    out = tmp_path / "run"
    more = ("--lr", "1e30", "--clip", "1e30")
    assert commands.run(typed(texts, out, "mine:Nothing", *RAY, *more, steps=50)) == 1
    err = capsys.readouterr().err
    log = out / "jobs" / "mine.Nothing-seed0" / "log.txt"
    assert err.startswith("error: mine.Nothing-seed0: ")
    assert "loss or gradient is not finite" in err
    assert str(log) in err
    assert "Traceback" not in err
    assert log.read_text().count("Traceback") == 1
    assert commands.run(typed(texts, tmp_path / "good", "mine:Nothing", *RAY, steps=20)) == 0


@pytest.mark.slow
@pytest.mark.ray
def test_a_job_that_always_ends_its_own_process_fails_in_the_end(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)
    lines = OWN.replace(
        "        return torch.zeros(", "        import os; os.kill(os.getpid(), 9)\n        return torch.zeros("
    )
    (tmp_path / "deadly.py").write_text(lines)
    out = tmp_path / "run"
    assert commands.run(typed(texts, out, "deadly:Nothing", *RAY)) == 1
    told = capsys.readouterr()
    assert " ".join(told.out.split()).count("it is taken up again") == DEATHS - 1
    assert told.err.startswith("error: deadly.Nothing-seed0: The worker died unexpectedly")
    assert f"{DEATHS} times without a new checkpoint" in told.err


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_was_stopped_goes_on_where_it_was(
    quiet: Path, texts: Path, tmp_path: Path, number: signal.Signals
) -> None:
    pytest.importorskip("ray")
    out, log = tmp_path / "run", tmp_path / "log"
    command = typed(texts, out, "nope t5", *RAY)
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "posenc", *command], stdout=file, stderr=file,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
    while not list(out.glob("jobs/*/checkpoint.pt")):
        assert process.poll() is None, log.read_text()
        time.sleep(0.02)
    os.kill(process.pid, number)
    assert process.wait(timeout=120) == (-number if number == signal.SIGKILL else 130)
    if number != signal.SIGKILL:
        assert log.read_text().splitlines()[-1].startswith("stopped: nothing is lost; to go on: posenc compare nope")
    assert any(_steps(folder) < STEPS for folder in out.glob("jobs/*/"))
    assert commands.run(command) == 0
    assert bits(out) == bits(quiet)


def _steps(folder: Path) -> int:
    state = read_checkpoint(folder / "checkpoint.pt", read_job(folder).identity)
    return 0 if state is None else state.step
