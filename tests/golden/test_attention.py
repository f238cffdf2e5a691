"""Results of attention under an encoding, its weights, biases and gradients, from other people's code.

A function says how to make the encoding of a file from the file's own parameters, and what the call is given.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posenc import ALiBi, AttentionSink, Encoding, ForgetGate, Llama3, LogN, RoPE, T5Bias, attention, read_attention
from posenc.bias import FIRE, KERPLE, Sandwich, alibi_slopes
from posenc.call import prepare_call
from posenc.positions import from_mask
from posenc.score import (
    DAPE,
    GRAPEAP,
    STRING,
    CoPE,
    DualChunk,
    LeakyReRoPE,
    LMInfinite,
    ReRoPE,
    SelfExtend,
    Shaw,
    SSMax,
    StreamingLLM,
)
from posenc.score.transformer_xl import TransformerXL
from posenc.weight import StickBreaking
from tests.golden import config, load
from tests.golden.runner import Comparisons, golden_test, results
from tests.samples import BACKENDS, FLOATS, gap, weights

Arrays = Mapping[str, Tensor]
Settings = dict[str, Any]
KERNELS = ("auto", "dense", "sdpa", "tiled")


@dataclass
class Call:
    """What attention is given for a file; ``bias`` is where the encoding's own bias is compared."""

    encoding: Encoding | list[Encoding]
    options: dict[str, object] = field(default_factory=dict)
    bias: tuple[Tensor, Tensor] | None = None  # positions of queries and keys
    gradients: dict[str, Tensor] | None = None  # by the file's name for the parameter; None: none are compared
    slack: float = 10.0  # gradients may be so many times as far off


def called(
    make: Callable[[Arrays, str], Call],
    backends: tuple[str, ...] = ("auto",),
    tolerance: Mapping[torch.dtype, float] = FLOATS,
) -> Callable[[str], Comparisons]:
    """A row: each result in each precision on each backend, then the bias."""

    def row(name: str) -> Comparisons:
        for dtype, close in tolerance.items():
            for backend in backends:
                arrays = load(name, dtype)
                call = make(arrays, name)
                encodings = call.encoding if isinstance(call.encoding, list) else [call.encoding]
                options = {"backend": backend, "gradients": call.gradients, "slack": call.slack, **call.options}
                yield from results(arrays, encodings, close, **options)
            if call.bias is not None:
                got = call.encoding(*call.bias)
                expected = load(name)["bias"].view_as(got)
                if isinstance(call.encoding, (KERPLE, FIRE)):  # whose files say nothing of the future
                    seen = call.bias[1] <= call.bias[0][:, None]
                    got, expected = got[:, seen], expected[:, seen]
                if isinstance(call.encoding, KERPLE):  # whose biases grow
                    close *= max(1.0, float(expected.abs().max()))
                yield got, expected, close

    row.__name__ = make.__name__
    return row


def holding(encoding: nn.Module, arrays: Arrays, **parameters: Tensor) -> Encoding:
    """The encoding with these parameters, in the dtype of the call."""
    encoding.to(arrays["q"].dtype).load_state_dict(parameters)
    return encoding


def counted(arrays: Arrays) -> tuple[Tensor, Tensor]:
    """Positions 0, 1, 2, … of keys, in the dtype of the call, and of the queries, which are the last."""
    k_pos = torch.arange(arrays["k"].shape[2]).to(arrays["q"].dtype)
    return k_pos[-arrays["q"].shape[2] :], k_pos


def alibi(arrays: Arrays, name: str) -> Call:
    encoding = ALiBi(arrays["q"].shape[1])
    assert gap(torch.tensor(encoding.slopes, dtype=arrays["q"].dtype), arrays["slopes"]) < FLOATS[arrays["q"].dtype]
    return Call(encoding)  # Press adds one row everywhere, which differs by a constant: `alibi_of_press`


def alibi_of_mpt(arrays: Arrays, name: str) -> Call:
    return Call(ALiBi(5), {"causal": False}, bias=counted(arrays))


def alibi_by_positions(arrays: Arrays, name: str) -> Call:
    positions = arrays["positions"]
    return Call(ALiBi(4, slopes=[*alibi_slopes(3), 0.0]), {"q_pos": positions}, bias=(positions, positions))


def alibi_by_whole_positions(arrays: Arrays, name: str) -> Call:
    return Call(alibi_by_positions(arrays, name).encoding, {"q_pos": arrays["positions"].long()})


def kerple(arrays: Arrays, name: str) -> Call:
    kind = "log" if "log" in name else "power"
    encoding = KERPLE(len(arrays["bias_p"]), kind=kind)
    values = {word: arrays[f"bias_{word}"].view_as(getattr(encoding, word)) for word in "pa"}
    return Call(holding(encoding, arrays, **values), bias=counted(arrays))


def sandwich(arrays: Arrays, name: str) -> Call:
    encoding = Sandwich(arrays["bias"].shape[1], dim=int(arrays["d_bar"]))
    return Call(encoding, {"causal": "mask_allowed" in arrays}, bias=counted(arrays))


def t5(arrays: Arrays, name: str) -> Call:
    both, (buckets, heads) = bool(arrays["bidirectional"]), arrays["table"].shape
    encoding = T5Bias(heads, num_buckets=buckets, max_distance=int(arrays["max_distance"]), bidirectional=both)
    return Call(holding(encoding, arrays, weight=arrays["table"]), {"causal": not both}, bias=counted(arrays))


def t5_further_on(arrays: Arrays, name: str) -> Call:
    call, (q_pos, k_pos) = t5(arrays, name), (p.long() for p in counted(arrays))
    return Call(call.encoding, {**call.options, "q_pos": q_pos + 1000, "k_pos": k_pos + 1000})


def fox(arrays: Arrays, name: str) -> Call:
    gates = arrays["log_fgate"].requires_grad_()
    encoding = ForgetGate(16, num_heads=arrays["q"].shape[1])
    return Call(encoding, {"token_states": [gates]}, gradients={"log_fgate": gates}, slack=20)


def data_alibi(arrays: Arrays, name: str) -> Call:
    kind = next((kind for kind in ("bidirectional", "rows") if kind in name), "data")
    scale = {"ddalibi_postlogscale_l9": 0.25, "ddalibi_rows_l9": 0.5}.get(name, 1.0)
    dim, heads = arrays["x"].shape[-1], arrays["q"].shape[1]
    encoding = ForgetGate(dim, num_heads=heads, kind=kind, post_log_scale=scale)
    bias = {} if kind == "rows" else {"bias": arrays["bias_param"]}
    options = {"x": arrays["x"], "causal": kind != "bidirectional"}
    return Call(holding(encoding, arrays, weight=arrays["weight"], **bias), options)


def dape(arrays: Arrays, name: str) -> Call:
    heads = arrays["q"].shape[1]
    inner = ALiBi(heads, slopes=arrays["p_slopes"].tolist()) if "p_slopes" in arrays else KERPLE(heads)
    state = {} if "p_slopes" in arrays else {f"bias.{n}": arrays[f"p_bias_{n}"].flatten() for n in "pa"}
    for layer, number in (("inner", 0), ("outer", 2)):
        state |= {f"{layer}.{n}": arrays[f"p_mlp2__{number}__{n}"] for n in ("weight", "bias")}
    return Call(holding(DAPE(inner, hidden=len(arrays["p_mlp2__0__bias"])), arrays, **state))


def sink(arrays: Arrays, name: str) -> Call:
    encoding = holding(AttentionSink(len(arrays["sinks"])), arrays, logits=arrays["sinks"])
    return Call(encoding, {"window": config(name)["sliding_window"]}, gradients={"sinks": encoding.logits})


def ssmax(arrays: Arrays, name: str) -> Call:
    settings = config(name)
    state = {"scale": arrays["s"]} | ({"bias": arrays["b"]} if settings["bias"] else {})
    encoding = holding(SSMax(settings["heads"], bias=settings["bias"]), arrays, **state)
    gradients = {"s": encoding.scale} | ({"b": encoding.bias} if settings["bias"] else {})
    return Call(encoding, {"causal": settings["causal"]}, gradients=gradients, slack=20)


def fire(arrays: Arrays, name: str) -> Call:
    encoding = FIRE(len(arrays["b2"]), hidden=len(arrays["b1"]), threshold=float(arrays["init_L"]))
    state = {"inner.weight": "w1", "inner.bias": "b1", "outer.weight": "w2", "outer.bias": "b2"}
    state |= {"c": "c", "multiplier": "L_multiplier"}
    shapes = encoding.state_dict()
    holding(encoding, arrays, **{ours: arrays[theirs].view_as(shapes[ours]) for ours, theirs in state.items()})
    positions = arrays["positions"]
    queries = positions[len(positions) - arrays["q"].shape[2] :]
    return Call(encoding, {"q_pos": queries, "k_pos": positions}, bias=(queries, positions))


def fire_gradients(name: str) -> Comparisons:
    arrays = load(name)
    call = fire(arrays, name)
    qkv = (arrays[t] for t in "qkv")
    attention(*qkv, [call.encoding], scale=float(arrays["scale"]), **call.options).backward(arrays["grad_out"])
    inner, outer = call.encoding.inner, call.encoding.outer
    pairs = {"c": call.encoding.c, "L_multiplier": call.encoding.multiplier, "w1": inner.weight, "w2": outer.weight}
    for word, parameter in pairs.items():
        expected = arrays[f"grad_{word}"]
        yield parameter.grad.reshape(expected.shape), expected, 1e-9 * max(1.0, float(expected.abs().max()))


def shaw(name: str) -> Comparisons:
    for dtype, tolerance in FLOATS.items():
        arrays = load(name, dtype)
        encoding = Shaw(arrays["table_k"].shape[1], max_distance=int(arrays["max_rel"]))
        holding(encoding, arrays, key_table=arrays["table_k"], value_table=arrays["table_v"])
        options = {"causal": "bidir" not in name, "scale": 1.0}  # tensor2tensor scales q before the call
        q, k, v = (arrays[x] for x in "qkv")
        yield attention(q, k, v, [encoding], **options), arrays["out"], 10 * tolerance
        encoding.value_table = None
        yield weights(q, k, [encoding], **options), arrays["attn"], 10 * tolerance


def cope(arrays: Arrays, name: str) -> Call:
    separate = {"gates": "separate", "dim": 1, "num_kv_heads": arrays["k"].shape[1]} if "k_gate" in arrays else {}
    scaled = "nodiv" not in name and "decode" not in name
    encoding = CoPE(8, max_position=int(arrays["npos"]) - 1, scaled=scaled, **separate).to(arrays["q"].dtype)
    encoding.table.data.copy_(arrays["pos_emb"][0])
    gate = [arrays["k_gate"].requires_grad_()] if separate else None
    return Call(encoding, {"token_states": gate, "mask": arrays.get("mask_allowed"), "scale": None})


def cope_gradients_and_counts(name: str) -> Comparisons:
    for dtype, tolerance in FLOATS.items():
        arrays = load(name, dtype)
        call = cope(arrays, name)
        inputs = {x: arrays[x].requires_grad_() for x in ("q", "k", "v", "k_gate") if x in arrays}
        q, k, v = (inputs[x] for x in "qkv")
        out = attention(q, k, v, [call.encoding], **call.options)
        expected = [*(arrays[f"grad_{x}"] for x in inputs), arrays["grad_pos_emb"][0]]
        gradients = torch.autograd.grad(out, [*inputs.values(), call.encoding.table], arrays["grad_out"])
        for got, exact in zip(gradients, expected, strict=True):
            yield got, exact, 50 * tolerance
        defaults = {"q_pos": None, "k_pos": None, "x": None, "segments": None, "causal": True}
        problem = prepare_call(q, k, v, [], **defaults, **{**call.options, "token_states": None})
        context = problem.context(problem.visible(), None)
        if call.options["token_states"] is not None:
            context = context._replace(token_state=call.options["token_states"][0])
        yield call.encoding.counts(q, context), arrays["positions"], 10 * tolerance
        if name == "cope_div_default_b2h2_l15_d8":
            call.encoding.scaled = False
            assert gap(attention(q, k, v, [call.encoding]), arrays["out"]) > 1e-2


def rope_of(settings: Settings) -> RoPE:
    """The rotation of a file, under its Llama 3 scaling where it has one."""
    llama3, scaling = settings.get("llama3_scaling"), None
    if llama3:
        numbers = json.loads(llama3) if isinstance(llama3, str) else llama3
        scaling = Llama3(
            numbers["factor"], original_length=int(numbers["original_max_position_embeddings"]),
            low_freq_factor=numbers["low_freq_factor"], high_freq_factor=numbers["high_freq_factor"],
        )  # fmt: skip
    return RoPE(settings["head_dim"], base=settings["rope_theta"], scaling=scaling)


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


def remapped(make: Callable[[RoPE, Settings], list[Encoding]]) -> Callable[[str], Comparisons]:
    """A row of an encoding that remaps distances; ``make`` gives the list of a file from its rotation."""

    def call(arrays: dict[str, Tensor], name: str) -> Call:
        if name.startswith("string"):
            arrays["out"] = arrays["out_disjoint"]
        settings = config(name)
        return Call(make(rope_of(settings), settings), {"scale": None}, gradients={} if "grad_out" in arrays else None)

    call.__name__ = make.__name__
    return called(call, ("ranged", "dense"))


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


def streaming_llm(name: str) -> Comparisons:
    """Each token with the window that its call leaves it: of the cache, and of its own chunk; one file at once, too."""
    settings, sinks = config(name), config(name)["start_size"]
    for backend in ("ranged", "dense"):
        for dtype, tolerance in FLOATS.items():
            arrays = load(name, dtype)
            q, k, v = (arrays[part] for part in "qkv")
            for token, (cached, newest, chunk) in enumerate(streaming_windows(settings)):
                window = token + 1 if token + 1 == cached + chunk else newest + chunk  # all, until some is dropped
                encoding = StreamingLLM(rope_of(settings), window=window, sinks=sinks)
                call = q[:, :, token : token + 1], k[:, :, : token + 1], v[:, :, : token + 1]
                yield attention(*call, [encoding], backend=backend), arrays["out"][:, :, token : token + 1], tolerance
            if dtype == torch.float64 and name == "streaming_one_by_one_t30_s4_r8":
                encoding = StreamingLLM(rope_of(settings), window=settings["recent_size"] + 1, sinks=sinks)
                yield attention(q, k, v, [encoding], backend=backend), arrays["out"], 1e-12


def stick_breaking(name: str) -> Comparisons:
    for dtype, tolerance in FLOATS.items():
        arrays = load(name, dtype)
        q, k, v = (arrays[x].requires_grad_() for x in "qkv")
        current, options = bool(arrays["attend_current"]), {"scale": float(arrays["scale"])}
        stick = StickBreaking(attend_current=current)
        yield from results(arrays, [stick], tolerance)
        defaults = {"q_pos": None, "k_pos": None, "x": None, "token_states": None, "mask": None, "segments": None}
        problem = prepare_call(q, k, v, [], causal=True, scale=None, **defaults)
        left = stick.remainder_of(q @ k.mT * options["scale"], problem.context(problem.visible(), None))
        yield left, arrays["rem"], tolerance
        own = StickBreaking(attend_current=current, remainder="own")
        out = attention(q, k, v, [own], **options)
        yield out, arrays["out"] + arrays["rem"].unsqueeze(-1) * v[:, :, -q.shape[2] :], tolerance
        if "out_plus_rem_v" in arrays:
            yield out, arrays["out_plus_rem_v"], tolerance
        if "grad_out" in arrays:
            for x, gradient in zip("qkv", torch.autograd.grad(out, (q, k, v), arrays["grad_out"]), strict=True):
                yield gradient, arrays[f"grad_{x}"], 5 * tolerance


def stick_breaking_under_left_padding(name: str) -> Comparisons:
    for dtype, tolerance in FLOATS.items():
        arrays = load(name, dtype)
        real = torch.arange(12) >= arrays["start"][:, None]
        out = attention(*(arrays[x] for x in "qkv"), [StickBreaking()], mask=real[:, None])
        for row, start in enumerate(arrays["start"].tolist()):
            yield out[row, :, start:], arrays["out"][row, :, start:], tolerance


def alibi_of_press(name: str) -> Comparisons:
    """Press adds the same row everywhere, which differs by a constant a row."""
    golden, positions = load(name), torch.arange(19).double()
    off = golden["bias"][0] - ALiBi(8)(positions, positions)
    seen = golden["mask_allowed"].bool()
    spread = off.masked_fill(~seen, -torch.inf).amax(-1) - off.masked_fill(~seen, torch.inf).amin(-1)
    yield spread, torch.zeros_like(spread), 1e-12


def alibi_of_bloom_under_left_padding(name: str) -> Comparisons:
    for dtype, tolerance in FLOATS.items():
        arrays = load(name, dtype)
        real = arrays["attention_mask"].bool()
        q, k, v = (arrays[x] for x in "qkv")
        for backend in BACKENDS:
            options = {"q_pos": from_mask(real), "mask": real[:, None], "scale": float(arrays["scale"])}
            out = attention(q, k, v, [ALiBi(4)], backend=backend, **options)
            attn = weights(q, k, [ALiBi(4)], backend=backend, **options)
            for row, start in enumerate(real.int().argmax(-1).tolist()):
                yield out[row, :, start:], arrays["out"][row, :, start:], tolerance
                yield attn[row, :, start:], arrays["attn"][row, :, start:], tolerance


def cable(name: str) -> Comparisons:
    """CABLE's bias is a forget gate of the opposite sign, log f_l = −softplus(h_l), and its products have no scale."""
    golden = load(name)
    q, k, v = (golden[x] for x in "qkv")
    gate = ForgetGate(16, num_heads=q.shape[1])
    options = {"token_states": [-F.softplus(golden["gate"])], "scale": 1.0}
    yield attention(q, k, v, [gate], **options), golden["heads_out"], 1e-12
    yield weights(q, k, [gate], **options), golden["weights"], 1e-12


def self_extend_under_left_padding(name: str) -> Comparisons:
    golden, settings = load(name), config(name)
    real, positions = torch.arange(30) >= torch.tensor(settings["left_pads"])[:, None], golden["position_ids"]
    for backend in ("ranged", "dense"):
        options = {"mask": real[:, None, :], "q_pos": positions, "k_pos": positions, "backend": backend}
        out = attention(*(golden[part] for part in "qkv"), self_extend(rope_of(settings), settings), **options)
        yield out.transpose(1, 2)[real], golden["out"].transpose(1, 2)[real], 1e-12


def weights_beside_a_sink(name: str) -> Comparisons:
    golden = load(name)
    encoding = holding(AttentionSink(len(golden["sinks"])), golden, logits=golden["sinks"])
    read = read_attention(*(golden[x] for x in "qkv"), [encoding], window=config(name)["sliding_window"])
    yield read.weights, golden["weights"], 1e-12
    yield 1 - read.weights.sum(-1), golden["sink_weight"], 1e-12


def grape_ap(name: str) -> Comparisons:
    """Results, biases and gradients, with a projection's p and tied to the keys."""
    inputs = config(name)
    tied = inputs["tie"] != "none"
    for dtype, tolerance in FLOATS.items():
        arrays = load(name, dtype)
        encoding = GRAPEAP(
            16, num_heads=inputs["heads"], path_dim=inputs["p_head_dim"], tie="key" if tied else "none"
        ).to(dtype)
        leaves = {x: arrays[x].transpose(1, 2).requires_grad_() for x in ("qkv" if tied else "qkvp")}
        q, k, v = (leaves[x] for x in "qkv")
        states = {"token_states": [leaves.get("p")]}
        out = attention(q, k, v, [encoding], **states)
        yield out, arrays["out"].transpose(1, 2), tolerance
        bias = read_attention(q, k, v, [encoding], **states).scores - read_attention(q, k, v).scores
        seen = arrays["allowed"]
        yield bias[:, :, seen], arrays["bias"][:, :, seen], 10 * tolerance
        gradients = torch.autograd.grad(out, list(leaves.values()), arrays["grad_out"].transpose(1, 2))
        for leaf, gradient in zip(leaves, gradients, strict=True):
            yield gradient, arrays[f"grad_{leaf}"].transpose(1, 2), 10 * tolerance


def transformer_xl(name: str) -> Comparisons:
    """With its waves, and with learned rows of distances behind projections of its own."""
    for dtype, tolerance in FLOATS.items():
        golden, options = load(name, dtype), {}
        if "learnable" in name:
            encoding = TransformerXL(16, num_heads=2, learned_distances=5)
            rows = {"table": golden["r_emb"].flip(0), "table_bias": golden["r_bias"].flip(0)}
            tokens = torch.cat([golden["mems"], golden["w"]]).transpose(0, 1)
            q, k, v = (tokens @ golden["qkv_weight"].T).view(2, 9, 3, 2, 8).permute(2, 0, 3, 1, 4)
            q = q[:, :, 3:]
        else:
            encoding = TransformerXL(golden["r_weight"].shape[1], num_heads=2)
            rows, (q, k, v) = {"v": golden["v_bias"], "weight": golden["r_weight"]}, (golden[x] for x in "qkv")
        encoding.to(dtype).load_state_dict({"u": golden["u"], **rows})
        options["scale"] = float(golden["scale"])
        yield weights(q, k, [encoding], **options), golden["attn"], 10 * tolerance
        yield attention(q, k, v, [encoding], **options).transpose(1, 2).flatten(2), golden["attn_vec"], 10 * tolerance


def xlnet(name: str) -> Comparisons:
    """It looks both ways. Its numbers hold W r for each distance; the W that gives them is solved for.

    Tokens stand three positions apart, where few waves are alike, so that there is one.
    """
    exact = load(name)
    angle = 3 * exact["distances"].double()[:, None] * 50.0 ** (-torch.arange(32.0).double() / 32)
    waves = torch.cat([angle.sin(), angle.cos()], 1)
    weight = (torch.linalg.pinv(waves) @ exact["R_head"]).mT  # (heads, head_dim, dim)
    yield waves @ weight.mT, exact["R_head"], 1e-12
    for dtype, tolerance in FLOATS.items():
        golden = load(name, dtype)
        encoding = TransformerXL(64, num_heads=2, head_dim=8, base=50.0)
        state = {"u": golden["u"], "v": golden["v_bias"], "weight": weight.flatten(0, 1).to(dtype)}
        holding(encoding, golden, **state)
        options = {"scale": float(golden["scale"]), "causal": False, "q_pos": torch.arange(8) * 3}
        q, k, v = (golden[x] for x in "qkv")
        yield weights(q, k, [encoding], **options), golden["attn"], 10 * tolerance
        yield attention(q, k, v, [encoding], **options), golden["attn_vec"], 10 * tolerance


def nope(arrays: Arrays, name: str) -> Call:
    return Call([], {"causal": "bidir" not in name})


COARSE = {torch.float64: 1e-11, torch.float32: 1e-4}
TENFOLD = {dtype: 10 * close for dtype, close in FLOATS.items()}
T5 = ("t5_encoder_bidir_*", "t5_decoder_causal_*", "t5_decode_q1_*")
SINKS = (called(sink, ("auto", "dense", "tiled")), weights_beside_a_sink)
test_attention = golden_test({
    "nope_*": called(nope, BACKENDS),
    "alibi_causal_*": (called(alibi, BACKENDS), alibi_of_press),
    "alibi_decode_*": called(alibi, BACKENDS),
    "alibi_mpt_*": called(alibi_of_mpt, BACKENDS),
    "alibi_custompos_*": (called(alibi_by_positions, BACKENDS), called(alibi_by_whole_positions, BACKENDS)),
    "alibi_bloom_leftpad_*": alibi_of_bloom_under_left_padding,
    "kerple_log_*": called(kerple),
    "kerple_power_h4_*": called(kerple),
    "sandwich_*": called(sandwich, tolerance=COARSE),
    **dict.fromkeys(T5, (called(t5, BACKENDS), called(t5_further_on, BACKENDS))),
    "fire_*": called(fire, tolerance={torch.float64: 1e-10, torch.float32: 1e-4}),
    "fire_[!d]*": fire_gradients,
    "fox_*": called(fox),
    "cable_*": cable,
    "ddalibi_*": called(data_alibi),
    "dape_*": called(dape),
    "grape_ap_*": grape_ap,
    "sinks_*": SINKS,
    "softmax1_*": SINKS,
    "ssmax_*": called(ssmax, KERNELS),
    "shaw_*": shaw,
    "cope_*": (called(cope, tolerance=TENFOLD), cope_gradients_and_counts),
    "xl_*": transformer_xl,
    "xlnet_*": xlnet,
    "selfextend_[!l]*": remapped(self_extend),
    "selfextend_logscale_*": remapped(self_extend),
    "selfextend_leftpad_*": self_extend_under_left_padding,
    "rerope_*": remapped(rerope),
    "leaky_rerope_*": remapped(rerope),
    "dca_[!v]*": remapped(dual_chunk),
    "string_*": remapped(string),
    "lminf_*": remapped(lm_infinite),
    "streaming_*": streaming_llm,
    "sb_[!l]*": stick_breaking,
    "sb_leftpad_*": stick_breaking_under_left_padding,
})  # fmt: skip
