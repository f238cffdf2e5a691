"""Encodings that remap distances, each against its authors' code; decoding token by token; sizes that are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

from posenc import Encoding, Llama3, LogN, RoPE, attention
from posenc.attend import Backend
from posenc.catalogue import encoding_info
from posenc.score import STRING, DualChunk, LeakyReRoPE, LMInfinite, ReRoPE, SelfExtend, StreamingLLM
from tests.golden import config, load, names
from tests.samples import FLOATS, expect_golden, gap, refusals

EACH_FLOAT = pytest.mark.parametrize(("dtype", "tolerance"), FLOATS.items(), ids=str)
EACH_BACKEND = pytest.mark.parametrize("backend", ["ranged", "dense"])
Settings = dict[str, Any]


def self_extend(rope: RoPE, settings: Settings) -> list[Encoding]:
    exact = settings["offset_division"] == "true"
    encoding = SelfExtend(rope, window=settings["neighbor_window"], group=settings["group_size"], exact=exact)
    return [encoding] if settings["scale_base"] < 0 else [encoding, LogN(settings["scale_base"])]


def rerope(rope: RoPE, settings: Settings) -> list[Encoding]:
    window, factor = settings["window"], settings["scaling_factor"]
    encoding = ReRoPE(rope, window=window) if factor is None else LeakyReRoPE(rope, window=window, factor=factor)
    return [encoding, LogN(settings["training_length"])]


def dual_chunk(rope: RoPE, settings: Settings) -> list[Encoding]:
    return [DualChunk(rope, size=settings["chunk_size"], local=settings["local_window"], gain=settings["mscale"])]


def string(rope: RoPE, settings: Settings) -> list[Encoding]:
    shift, local, gain = settings["shifted_offset"], settings["local_value"], settings["attention_factor"]
    return [STRING(rope, shift=shift, local=local, gain=gain)]


def lm_infinite(rope: RoPE, settings: Settings) -> list[Encoding]:
    sinks = settings["global_branch"] if settings["lambda_mask"] else None
    return [LMInfinite(rope, window=settings["local_branch"], sinks=sinks, limit=settings["limit_distance"])]


GOLDEN: dict[str, Callable[[RoPE, Settings], list[Encoding]]] = {
    **{name: self_extend for name in names("selfextend_*") if "leftpad" not in name},
    **dict.fromkeys((*names("rerope_*"), *names("leaky_rerope_*")), rerope),
    **{name: dual_chunk for name in names("dca_*") if "vllm" not in name},
    **dict.fromkeys(names("string_*"), string),
    **dict.fromkeys(names("lminf_*"), lm_infinite),
}


def rope_of(settings: Settings) -> RoPE:
    """The rotation of a golden file, under its Llama 3 scaling where it has one."""
    llama3, scaling = settings.get("llama3_scaling"), None
    if llama3:
        numbers = json.loads(llama3) if isinstance(llama3, str) else llama3
        scaling = Llama3(
            numbers["factor"], original_length=int(numbers["original_max_position_embeddings"]),
            low_freq_factor=numbers["low_freq_factor"], high_freq_factor=numbers["high_freq_factor"],
        )  # fmt: skip
    return RoPE(settings["head_dim"], base=settings["rope_theta"], scaling=scaling)


@EACH_FLOAT
@EACH_BACKEND
@pytest.mark.parametrize("name", GOLDEN)
def test_golden(name: str, backend: Backend, dtype: torch.dtype, tolerance: float) -> None:
    golden, settings = load(name, dtype), config(name)
    if name.startswith("string"):
        golden["out"] = golden["out_disjoint"]
    gradients = {} if "grad_out" in golden else None
    encodings = GOLDEN[name](rope_of(settings), settings)
    expect_golden(golden, encodings, tolerance, gradients=gradients, scale=None, backend=backend)


def streaming_windows(settings: Settings) -> list[tuple[int, int, int]]:
    """Of each token: cached tokens that it sees, the newest of these, and tokens of its own chunk so far."""
    windows, cached = [], 0
    for size in settings["chunks"]:
        room = settings["start_size"] + settings["recent_size"]
        if settings["eviction"] == "before":
            cached = min(cached, room - size)
        windows += [(cached, cached - settings["start_size"], index + 1) for index in range(size)]
        cached += size
        if settings["eviction"] == "after":
            cached = min(cached, room)
    return windows


@EACH_FLOAT
@EACH_BACKEND
@pytest.mark.parametrize("name", names("streaming_*"))
def test_golden_streaming_llm(name: str, backend: Backend, dtype: torch.dtype, tolerance: float) -> None:
    """Each token with the window that its call leaves it: of the cache, and of its own chunk."""
    golden, settings = load(name, dtype), config(name)
    q, k, v = (golden[part] for part in "qkv")
    for token, (cached, newest, chunk) in enumerate(streaming_windows(settings)):
        window = token + 1 if token + 1 == cached + chunk else newest + chunk  # the whole text until some is dropped
        encoding = StreamingLLM(rope_of(settings), window=window, sinks=settings["start_size"])
        call = q[:, :, token : token + 1], k[:, :, : token + 1], v[:, :, : token + 1]
        out = attention(*call, [encoding], backend=backend)
        assert gap(out, golden["out"][:, :, token : token + 1]) < tolerance, token


@EACH_BACKEND
def test_streaming_llm_at_once_and_token_by_token(backend: Backend) -> None:
    name = "streaming_one_by_one_t30_s4_r8"
    golden, settings = load(name), config(name)
    encoding = StreamingLLM(rope_of(settings), window=settings["recent_size"] + 1, sinks=settings["start_size"])
    out = attention(golden["q"], golden["k"], golden["v"], [encoding], backend=backend)
    assert gap(out, golden["out"]) < 1e-12


@pytest.mark.parametrize("name", names("dca_vllm_*"))
def test_rotated_queries_and_keys_of_vllm(name: str) -> None:
    golden, settings = load(name), config(name)
    layout = "half" if settings["neox"] else "interleaved"
    rope = RoPE(settings["head_dim"], base=settings["rope_theta"], layout=layout, rotary_dim=settings["rotary_dim"])
    encoding = DualChunk(rope, size=settings["chunk_size"], local=settings["local_size"])
    positions = golden["positions"][0]
    heads = {"q": settings["heads"], "k": settings["kv_heads"]}
    q, k = (golden[part].view(1, len(positions), heads[part], -1).transpose(1, 2) for part in "qk")
    parts = encoding.ranges(positions, positions)
    for part, key in zip(parts, ("q_intra", "q_succ", "q_inter"), strict=True):
        for x, at, expected in ((q, part.q_pos, golden[key]), (k, part.k_pos, golden["k_rot"])):
            rotated = rope.rotate(x, rope.table(at, like=x))
            assert gap(rotated[0].transpose(0, 1).flatten(1), expected) < 1e-12, key


def test_a_group_of_one_is_the_rotation() -> None:
    golden = load("selfextend_g1_l24_w5")
    q, k, v = (golden[part] for part in "qkv")
    grouped = attention(q, k, v, [SelfExtend(RoPE(8), window=5, group=1)])
    assert gap(grouped, attention(q, k, v, [RoPE(8)])) < 1e-13


@pytest.mark.parametrize("times", [1.5, 2, 3, 4, 8])
@pytest.mark.parametrize("trained", [64, 100, 4096])
def test_the_group_for_a_length_is_the_smallest_without_a_new_position(trained: int, times: float) -> None:
    longest = int(trained * times)
    entry = encoding_info("self_extend")
    shape = {"head_dim": 8, **entry.lengths(trained), "train_length": trained, "max_length": longest}

    def farthest(group: int) -> float:
        encoding = SelfExtend(RoPE(8), window=entry.lengths(trained)["window"], group=group)
        positions = torch.arange(longest)
        far = encoding.ranges(positions, positions)[-1]
        return float((far.q_pos - far.k_pos[0]).max())

    group = entry.defaults(shape)["group"]
    assert isinstance(group, int)
    assert farthest(group) < trained
    assert group == 2 or farthest(group - 1) >= trained


DECODED: dict[str, Callable[[], Encoding]] = {
    "self_extend": lambda: SelfExtend(RoPE(8), window=7, group=3),
    "rerope": lambda: ReRoPE(RoPE(8), window=7),
    "leaky_rerope": lambda: LeakyReRoPE(RoPE(8), window=7, factor=3),
    "dual_chunk": lambda: DualChunk(RoPE(8), size=8, local=3),
    "string": lambda: STRING(RoPE(8), shift=9, local=3),
    "lm_infinite": lambda: LMInfinite(RoPE(8), window=7, sinks=3),
    "streaming_llm": lambda: StreamingLLM(RoPE(8), window=7, sinks=3),
}


test_refusals = refusals(
    {
        "factor": [lambda: LeakyReRoPE(RoPE(8), factor=0.5)],
        "local": [lambda: STRING(RoPE(8), shift=4, local=5), lambda: DualChunk(RoPE(8), size=8, local=8)],
        "limit": [lambda: LMInfinite(RoPE(8), limit=0)],
        "sinks": [lambda: StreamingLLM(RoPE(8), sinks=-1)],
        "group": [lambda: SelfExtend(RoPE(8), group=0)],
        "rotation": [lambda: SelfExtend(64)],  # type: ignore[arg-type]
    }
)
