"""A kernel serves only after its check: planted faults, on the CPU, where tiles stand in for the kernels."""

from __future__ import annotations

import json
import math
import warnings

import pytest
import torch

from posenc.backends import tiles
from posenc.backends.triton import guard, launch, rotation
from posenc.backends.triton.guard import VARIABLE, Kind, check, refusal
from posenc.call import AttentionCall
from posenc.rotary._rotate import rotate_pairs

errors = pytest.importorskip("triton.runtime.errors", reason="Triton is not installed")

CPU = torch.device("cpu")
KIND = Kind("softmax", ("row", "gates", "causal"), torch.float32, 16, 16, True)
KINDS = [
    KIND,
    KIND._replace(flags=("slopes", "sink", "window", "causal"), training=False),
    KIND._replace(flags=("row", "softcap", "dropout", "documents", "padding"), dtype=torch.bfloat16),
    KIND._replace(kernel="few queries", flags=("row", "gates", "causal", "padding"), training=False),
    KIND._replace(flags=("network", "causal")),
    KIND._replace(kernel="sticks", flags=("vector", "current", "causal")),
    KIND._replace(kernel="counts", flags=("own gates", "causal"), dtype=torch.float16),
]


@pytest.fixture(autouse=True)
def _card(monkeypatch, tmp_path):
    """A device whose kernels nobody has checked, with a cache folder of its own."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(guard, "_name", lambda device: "a card")
    monkeypatch.setattr(guard, "_folder_key", lambda device: tmp_path.name)
    monkeypatch.setattr(guard, "SIZES", ((2, 4, 2, 20, 30), (1, 2, 1, 25, 25)))
    monkeypatch.setattr(guard, "FEW_SIZES", ((2, 4, 2, 3, 30), (1, 2, 1, 1, 25)))
    guard._verdicts.cache_clear()


class Counting:
    """Tiles in place of a kernel, with a fault planted into their results; counts its calls."""

    def __init__(self, fault=None):
        self.fault, self.calls = fault, 0

    def __call__(self, call: AttentionCall) -> torch.Tensor:
        self.calls += 1
        out = tiles.run(call)
        return out if self.fault is None else self.fault(out, call)


def wrong_gradient(out, call):
    """The right result, and a gradient of k that is 2 % too large."""
    more = 0.02 * call.k.sum()
    return out + (more - more.detach())


FAULTS = {
    "zeros": lambda out, call: out * 0,
    "one percent": lambda out, call: out * 1.01,
    "not a number": lambda out, call: out + torch.nan,
    "one query": lambda out, call: torch.cat([out[:, :, :1] * 0.9, out[:, :, 1:]], 2),
    "other head": lambda out, call: out.flip(1),
    "gradient": wrong_gradient,
}


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_is_right_serves_and_is_checked_once(kind, tmp_path):
    run = Counting()
    assert refusal(kind, CPU, run) is None
    assert run.calls == len(guard.SIZES)
    assert refusal(kind, CPU, run) is None
    guard._verdicts.cache_clear()  # another process
    assert refusal(kind, CPU, run) is None
    assert run.calls == len(guard.SIZES)
    assert json.loads((guard.folder() / f"{tmp_path.name}.json").read_text()) == {str(kind): ""}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_never_serves(fault):
    run = Counting(FAULTS[fault])
    with pytest.warns(RuntimeWarning, match="a card"):
        first = refusal(KIND, CPU, run)
    assert first is not None
    assert str(KIND) in first
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert refusal(KIND, CPU, run) == first, "one warning"
        guard._verdicts.cache_clear()
        assert refusal(KIND, CPU, run) == first, "and none in a later process"


def test_inference_needs_no_gradients_and_says_nothing_of_training():
    run = Counting(wrong_gradient)
    assert refusal(KIND._replace(training=False), CPU, run) is None
    assert check(KIND, CPU, run) is not None


def test_a_kernel_without_room_never_serves():
    def run(call):
        raise errors.OutOfResources(300_000, 232_448, "shared memory")

    with pytest.warns(RuntimeWarning, match="OutOfResources"):
        assert refusal(KIND, CPU, run) is not None


def test_errors_of_the_device_surface_and_are_no_verdict():
    def run(call):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(RuntimeError, match="illegal memory access"):
        refusal(KIND, CPU, run)
    assert refusal(KIND, CPU, Counting()) is None


def test_the_user_decides_otherwise(monkeypatch):
    wrong = Counting(FAULTS["zeros"])
    monkeypatch.setenv(VARIABLE, "1")
    assert refusal(KIND, CPU, wrong) is None
    monkeypatch.setenv(VARIABLE, "0")
    assert VARIABLE in refusal(KIND, CPU, Counting())
    assert wrong.calls == 0
    monkeypatch.setenv(VARIABLE, "yes")
    with pytest.raises(ValueError, match=VARIABLE):
        refusal(KIND, CPU, Counting())


def test_nothing_is_checked_under_a_compiler():
    run = Counting()

    graph = torch.compile(lambda x: x + (1 if refusal(KIND, CPU, run) is None else -1), backend="eager", fullgraph=True)
    assert graph(torch.zeros(1)).item() == -1
    assert run.calls == 0
    assert refusal(KIND, CPU, run) is None
    torch.compiler.reset()
    assert graph(torch.zeros(1)).item() == 1
    assert run.calls == len(guard.SIZES)


def test_a_cache_that_cannot_be_written_is_no_error(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert refusal(KIND, CPU, Counting()) is None


@pytest.mark.parametrize("text", ["", "no JSON", "[]", '{"kind": 1}'])
def test_a_broken_file_of_verdicts_is_none(text, tmp_path):
    guard.folder().mkdir(parents=True)
    (guard.folder() / f"{tmp_path.name}.json").write_text(text)
    assert refusal(KIND, CPU, Counting()) is None


def test_smaller_tiles_where_the_device_has_no_room(monkeypatch):
    monkeypatch.setattr(launch, "_skipped", {})
    constants = {"EXACT": False, "ROW": True, "SEGMENTS": 0, "WIDTH": 64, "VALUES": 64}
    q, tried = torch.zeros(1), []
    tiles_of = launch.candidates("forward", constants, q)
    assert len(tiles_of) > 2

    def start(tile):
        tried.append(tile)
        if tile != tiles_of[2]:
            raise errors.OutOfResources(1, 0, "shared memory")
        return "ran"

    assert launch.fitted("forward", constants, q, start) == "ran"
    assert launch.fitted("forward", constants, q, start) == "ran"
    assert tried == [*tiles_of[:3], tiles_of[2]], "what did not fit is not tried again"

    def never(tile):
        raise errors.OutOfResources(1, 0, "registers")

    with pytest.raises(errors.OutOfResources):
        launch.fitted("keys", constants, q, never)


@pytest.mark.parametrize("kernel", ["forward", "queries", "keys", "row"])
@pytest.mark.parametrize("room", [101_376, 166_912, 232_448])
@pytest.mark.parametrize("width", [64, 128, 256])
def test_tiles_fit_the_device(kernel, room, width, monkeypatch):
    monkeypatch.setattr(launch, "shared_memory", lambda device: room)
    for exact in (False, True):
        for of_term in ({"ROW": True, "SEGMENTS": 0}, {"ROW": False, "SEGMENTS": 64}):
            constants = {"EXACT": exact, "WIDTH": width, "VALUES": width, **of_term}
            for tile in launch.candidates(kernel, constants, torch.zeros(1)):
                assert tile.bytes(kernel, constants) <= room


class CountingRotation(Counting):
    """The definition in place of the kernel that rotates."""

    def __call__(self, q, k, cos, sin, layout):
        self.calls += 1
        late = [t[..., k.shape[2] - q.shape[2] :, :] for t in (cos, sin)]
        new_q, new_k = rotate_pairs(q, *late, layout), rotate_pairs(k, cos, sin, layout)
        return (new_q, new_k) if self.fault is None else self.fault(new_q, new_k)


def wrong_gradient_of_keys(q, k):
    more = 0.05 * k.sum()
    return q, k + (more - more.detach())


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "fault", [None, wrong_gradient_of_keys, lambda q, k: (q * 1.05, k), lambda q, k: (q, k.roll(1, 2))]
)
def test_a_rotation_serves_after_its_check(layout, dtype, fault):
    kind, run = Kind("rotation", (layout,), dtype, 24, 16, True), CountingRotation(fault)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refused = [refusal(kind, CPU, run, rotation._results) for _ in range(2)]
    assert [said is None for said in refused] == [fault is None] * 2
    assert run.calls <= len(guard.SIZES)


@pytest.mark.parametrize("fault", [None, lambda cos, sin: (sin, cos), lambda cos, sin: (cos, sin * 1.001)])
def test_a_table_serves_after_its_check(fault):
    def run(positions, turns, gain):
        angles = (turns * positions.unsqueeze(-1)).double() * (2 * math.pi / 2**64)
        cos, sin = (angles.cos() * gain).float(), (angles.sin() * gain).float()
        return (cos, sin) if fault is None else fault(cos, sin)

    kind = Kind("rotation table", (), torch.float32, 12, 12, False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert (refusal(kind, CPU, run, rotation._table_results) is None) == (fault is None)
