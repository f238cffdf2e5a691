"""What encodings that read queries, keys and tokens make of them, and whole layers, from other people's code."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posenc import Context, ForgetGate, LogN, attention, read_attention
from posenc.call import prepare_call
from posenc.layers import KVCache, SelfAttention
from posenc.positions import grid
from posenc.score import (
    GRAPEA,
    DecomposedRelative,
    GRAPEContext,
    RePo,
    SelectiveRoPE,
    SSMax,
    StepTemperature,
    XPos,
)
from posenc.score.path import reflected
from posenc.score.temperature import Temperature
from tests.golden import config, load
from tests.golden.runner import Comparisons, golden_test, relative
from tests.golden.test_attention import dape
from tests.samples import FLOATS


def context_of(q: Tensor, k: Tensor, token_state: Tensor | None = None, mask: Tensor | None = None) -> Context:
    """What an encoding reads of a call whose keys lie at 0, 1, 2, … and whose queries are the last."""
    at = torch.arange(k.shape[2])
    return Context(q, k, k, at[len(at) - q.shape[2] :], at, 1.0, mask, token_state)


def heads_second(arrays: Mapping[str, Tensor], words: str) -> list[Tensor]:
    """Arrays (batch, tokens, heads, width) as (batch, heads, tokens, width)."""
    return [arrays[word].transpose(1, 2) for word in words.split()]


def dape_scores(name: str) -> Comparisons:
    for dtype, tolerance in FLOATS.items():
        golden = load(name, dtype)
        seen = golden["mask_allowed"].bool()
        got = dape(golden, name).encoding(golden["content_logits"], context_of(golden["q"], golden["k"]))
        yield got[..., seen], golden["logits"][..., seen], tolerance


def data_alibi_bias(name: str) -> Comparisons:
    golden = load(name)
    kind = next((kind for kind in ("bidirectional", "rows") if kind in name), "data")
    scale = {"ddalibi_postlogscale_l9": 0.25, "ddalibi_rows_l9": 0.5}.get(name, 1.0)
    heads, scores = golden["q"].shape[1], torch.zeros_like(golden["bias"])
    encoding = ForgetGate(golden["x"].shape[-1], num_heads=heads, kind=kind, post_log_scale=scale).double()
    state = {} if kind == "rows" else {"bias": golden["bias_param"]}
    encoding.load_state_dict({"weight": golden["weight"], **state})
    seen = golden.get("mask_allowed", torch.ones(scores.shape[-2:])).bool()[None, None]
    got = encoding(scores, context_of(golden["q"], golden["k"], encoding.token_state(golden["x"]), seen))
    yield torch.where(seen, got, 0.0), torch.where(seen, golden["bias"], 0.0), 1e-12


def grape_a(name: str) -> Comparisons:
    """Biases and gradients under keys, queries and both."""
    inputs = config(name)
    gate = {"key-gated": "key", "query-gated": "query", "querykey-gated": "both"}[inputs["kind"]]
    for dtype, tolerance in FLOATS.items():
        arrays = load(name, dtype)
        encoding = GRAPEA(inputs["head_dim"], num_heads=inputs["heads"], gate=gate, normalized=inputs["l2_norm"])
        encoding.to(dtype).load_state_dict({word: arrays[word] for word, _ in encoding.named_parameters()})
        q, k = (t.requires_grad_() for t in heads_second(arrays, "q k"))
        bias = encoding(torch.zeros_like(arrays["bias"]), context_of(q, k))
        yield bias, arrays["bias"], 10 * tolerance
        leaves = {"q": q, "k": k, **dict(encoding.named_parameters())}
        gradients = torch.autograd.grad(bias, list(leaves.values()), arrays["grad_out"], materialize_grads=True)
        for leaf, got in zip(leaves, gradients, strict=True):
            expected = arrays.get(f"grad_{leaf}", torch.zeros_like(arrays["q"]))
            expected = expected.transpose(1, 2) if leaf in "qk" else expected
            yield got, expected, 10 * tolerance * max(1.0, float(expected.abs().max()))


def grape_context(name: str) -> Comparisons:
    """Phases, rotated queries and keys, and gradients for given logits."""
    inputs = config(name)
    for dtype, tolerance in FLOATS.items():
        arrays = load(name, dtype)
        encoding = GRAPEContext(
            16, head_dim=inputs["head_dim"], num_kv_heads=inputs["heads"], base=inputs["base"],
            per_head=not inputs["share_across_heads"], per_head_phase=inputs["per_head_phase"],
            omega_scale=inputs["omega_scale"],
        ).to(dtype)  # fmt: skip
        encoding.log_theta.data.copy_(arrays["log_freq"].view_as(encoding.log_theta))
        q, k, logits = (t.requires_grad_() for t in heads_second(arrays, "q k omega_logit"))
        rotated = encoding.absorb_into_qk(context_of(q, k, logits))
        for got, expected in zip(rotated, heads_second(arrays, "q_rot k_rot"), strict=True):
            yield got, expected, tolerance
        given = heads_second(arrays, "grad_out_q grad_out_k")
        *of_tensors, of_theta = torch.autograd.grad(rotated, (q, k, logits, encoding.log_theta), given)
        for got, expected in zip(of_tensors, heads_second(arrays, "grad_q grad_k grad_omega_logit"), strict=True):
            yield got, expected, 10 * tolerance
        yield of_theta, arrays["grad_log_freq"].view_as(of_theta), 100 * tolerance  # sums over positions


def path(name: str) -> Comparisons:
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 2e-5)):
        golden = load(name, dtype)
        q, k, v, w, beta = heads_second(golden, "q k v w beta")
        scores = (q @ k.mT - reflected(q, k, w, beta)) * golden["scale"]
        hidden = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).triu(1)
        attn = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        yield attn, golden["attn"], tolerance
        yield (attn @ v).transpose(1, 2), golden["out"], tolerance


def repo(name: str) -> Comparisons:
    """Positions, rotated queries and keys; the last queries alone."""
    inputs, exact = config(name), load(name)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 3e-5)):
        arrays = load(name, dtype)
        sizes = {"head_dim": inputs["head_dim"], "num_kv_heads": inputs["heads"], "hidden": inputs["mid"]}
        encoding = RePo(arrays["x"].shape[-1], **sizes, base=inputs["theta"], layout=inputs["layout"]).to(dtype)
        encoding.load_state_dict({word: arrays[f"{word}_weight"] for word in ("gate", "content", "final")})
        q, k, state = arrays["q"], arrays["k"], encoding.token_state(arrays["x"])
        yield state, exact["predicted"], tolerance
        q_rot, k_rot = encoding.absorb_into_qk(context_of(q, k, state))
        yield q_rot, exact["q_rot"], tolerance
        yield k_rot, exact["k_rot"], tolerance
        yield encoding.absorb_into_qk(context_of(q[:, :, -3:], k, state))[0], exact["q_rot"][:, :, -3:], tolerance


SELECTIVE = {  # ours to theirs, with how theirs is reversed
    "down": ("phi_proj.0.weight", None), "lengths": ("phi_proj.scalar", None),
    "taps": ("phi_conv1d.weight", lambda w: w[:, 0].flip(-1).T), "bias": ("phi_bias", lambda b: b[0, 0]),
    "temperature": ("temperature", lambda t: t.flatten()),
}  # fmt: skip


def selective_rope(name: str) -> Comparisons:
    """Angles, rotated queries and keys, gradients of all parameters; the last queries alone."""
    inputs = config(name)
    rfa, full = inputs.get("temp_type") == "rfa", inputs.get("phi_parametrization") == "full-rank"
    gate = {None: "head", "gla": "pair"}[inputs.get("gate_parametrization")] if inputs.get("use_gate") else None
    ending = ".1" if gate == "pair" else ""
    reference: dict[str, tuple[str, Callable[[Tensor], Tensor] | None]] = {
        **SELECTIVE,
        "up": ("phi_proj.weight" if full else "phi_proj.1.weight", None),
        "gate_down": ("phase_gate_proj.0.weight", None),
        "gate_up": (f"phase_gate_proj{ending}.weight", None),
        "gate_bias": (f"phase_gate_proj{ending}.bias", None),
    }
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-4)):  # angles grow with the sum
        arrays = load(name, dtype)
        encoding = SelectiveRoPE(
            inputs["heads"] * inputs["head_dim"], head_dim=inputs["head_dim"], num_kv_heads=inputs["heads"],
            rank=None if full else inputs["phi_proj_rank"], taps=None if inputs["skip_conv"] else 4,
            activation=inputs.get("conv_act") == "silu", bias=inputs.get("use_bias", False), gate=gate,
            gate_rank=inputs.get("gate_low_rank_dim", 16), base=inputs.get("temp_theta", 0.9 if rfa else 500_000),
            temperature=inputs.get("temp_max", 1.0), learned=True,
        ).to(dtype)  # fmt: skip
        encoding.temperature.requires_grad_(inputs.get("temp_grad", False))
        stored = load(name)["param.temperature"].flatten()  # of float32
        yield *relative(encoding.temperature, stored), 2e-7
        gradients = {}
        for ours, parameter in encoding.named_parameters():
            theirs, reverse = reference[ours]
            reverse = reverse or (lambda t: t)
            parameter.data.copy_(reverse(arrays[f"param.{theirs}"]))
            if parameter.requires_grad:
                gradients[ours] = reverse(arrays[f"grad_param.{theirs}"])
        x, q, k = arrays["hidden"].requires_grad_(), *(t.requires_grad_() for t in heads_second(arrays, "q k"))
        context = context_of(q, k, encoding.token_state(x))
        yield encoding.angles(context), arrays["angle"].transpose(1, 2), tolerance
        rotated = encoding.absorb_into_qk(context)
        for got, expected in zip(rotated, heads_second(arrays, "q_rot k_rot"), strict=True):
            yield got, expected, tolerance
        leaves = {"q": q, "k": k, "hidden": x, **{n: p for n, p in encoding.named_parameters() if p.requires_grad}}
        gradients |= dict(zip("qk", heads_second(arrays, "grad_q grad_k"), strict=True))
        gradients["hidden"] = arrays["grad_hidden"]
        given = heads_second(arrays, "grad_out_q grad_out_k")
        for leaf, got in zip(leaves, torch.autograd.grad(rotated, list(leaves.values()), given), strict=True):
            yield got, gradients[leaf], 10 * tolerance
        last = encoding.absorb_into_qk(context_of(q[:, :, -3:], k, encoding.token_state(x)))[0]
        assert torch.equal(last, rotated[0][:, :, -3:])


def factor_at(encoding: Temperature, q: Tensor, positions: Tensor) -> Tensor:
    defaults = {"x": None, "token_states": None, "mask": None, "segments": None, "causal": True, "scale": None}
    call = prepare_call(q, q, q, [encoding], q_pos=positions, k_pos=positions, **defaults)
    return encoding.factor(call.context(None, None))


def temperature(name: str) -> Comparisons:
    """What models multiply their queries with."""
    meta = config(name)
    if meta["kind"] == "log_n_clipped":
        encoding: Temperature = LogN(meta["training_length"])
    elif meta["kind"] == "llama4":
        encoding = StepTemperature(meta["floor_scale"], strength=meta["attn_scale"])
    else:
        length, strength = meta["original_max_position_embeddings"], meta["llama_4_scaling_beta"]
        encoding = StepTemperature(length, strength=strength, offset=0)
    for dtype, tolerance in FLOATS.items():
        golden = load(name, dtype)
        q, positions = golden["q"], golden["positions"]
        yield factor_at(encoding, q, positions).expand(1, 1, -1)[0, 0], load(name)["scale_f64"], 1e-12
        scores = read_attention(q, q, q, [encoding], q_pos=positions, scale=1.0, causal=False).scores
        yield scores, golden["q_scaled"] @ q.mT, tolerance * 40


def learned_temperature(name: str) -> Comparisons:
    """A learned logarithm of the position."""
    golden, first = load(name), config(name)["head_dim_first"]
    q, expected, upstream = (golden[x] if first else golden[x].transpose(1, 2) for x in ("q", "q_scaled", "grad_out"))
    encoding = SSMax(config(name)["heads"], bias=True, count="position").double()
    encoding.load_state_dict({"scale": golden["scale"], "bias": golden["bias"]})
    scaled = q * factor_at(encoding, q, golden["position_ids"]).unsqueeze(-1)
    yield scaled, expected, 1e-12
    scaled.backward(upstream)
    yield encoding.scale.grad, golden["grad_scale"], 1e-11
    yield encoding.bias.grad, golden["grad_bias"], 1e-11


def decay(gates: Tensor, queries: int) -> Tensor:
    """The bias (batch, heads, queries, keys) of the last queries under these log gates: scores of q·k = 0."""
    batch, heads, keys = gates.shape
    q, k = (torch.zeros(batch, heads, length, 1, dtype=gates.dtype) for length in (queries, keys))
    return read_attention(q, k, encodings=[ForgetGate(16, num_heads=heads)], token_states=[gates]).scores


def fox_decay(name: str) -> Comparisons:
    golden = load(name)
    queries, keys = golden["decay_bias"].shape[-2:]
    seen = torch.ones(queries, keys).bool().tril(keys - queries)
    yield decay(golden["log_fgate"], queries)[..., seen], golden["decay_bias"][..., seen], 1e-12


def layer_of_fox(name: str) -> Comparisons:
    """At once, and decoded token by token."""
    golden = load(name)
    module = SelfAttention(24, 3, encodings=[ForgetGate(24, num_heads=3)]).double()
    state = {f"{which}_proj.weight": golden[f"p_{which}_proj__weight"] for which in "qkvo"}
    state |= {f"encodings.0.{n}": golden[f"p_fgate_proj__{n}"] for n in ("weight", "bias")}
    module.load_state_dict(state)
    x, cache, first = golden["x"], KVCache(), int(golden["prefill_len"])
    yield module(x), golden["out"], 1e-11
    yield module.encodings[0].token_state(x), golden["inner_log_fgate"], 1e-12
    pieces = [module(part, cache=cache) for part in x.split([first] + [1] * (x.shape[1] - first), 1)]
    yield torch.cat(pieces, 1), golden["decode_out"], 1e-11


def layer_of_gates_without_data(name: str) -> Comparisons:
    golden = load(name)
    for kind, tolerance in (("bias", 1e-11), ("fixed", 1e-8)):  # theirs began in float32
        gate = ForgetGate(32, num_heads=4, kind=kind, decay_time=(1, 64))
        if kind == "bias":
            yield gate.bias, golden["p_fgate_bias"], 3e-7
            gate.bias.data = golden["p_fgate_bias"]
        module: nn.Module = SelfAttention(32, 4, encodings=[gate]).double()
        for which in "qkvo":
            module.get_submodule(f"{which}_proj").weight.data = golden[f"p_{which}_proj__weight"]
        yield module(golden["x"]), golden["out"], tolerance


def layer_of_cable(name: str) -> Comparisons:
    """Its bias is a forget gate of the opposite sign, log f_l = −softplus(h_l), and its products have no scale."""

    def parameters(arrays: Mapping[str, Tensor], prefix: str = "") -> dict[str, Tensor]:
        layer = {f"encodings.0.{kind}": -arrays[f"{prefix}h_attn_{kind}"] for kind in ("weight", "bias")}
        for kind in ("weight", "bias"):
            parts = arrays[f"{prefix}c_attn_{kind}"].chunk(3)
            layer |= {f"{which}_proj.{kind}": part for which, part in zip("qkv", parts, strict=True)}
            layer[f"o_proj.{kind}"] = arrays[f"{prefix}c_proj_{kind}"]
        return layer

    exact = load(name)
    for dtype, tolerance in FLOATS.items():
        golden = load(name, dtype)
        _, heads, length, _ = golden["q"].shape
        dim, x = golden["x"].shape[-1], golden["x"].requires_grad_()
        module = SelfAttention(dim, heads, encodings=[ForgetGate(dim, num_heads=heads)], bias=True, scale=1.0).to(dtype)
        module.load_state_dict(parameters(golden))
        gates = module.encodings[0].token_state(x)
        yield gates, -F.softplus(exact["gate"]), tolerance
        seen = torch.ones(length, length).bool().tril()
        yield decay(gates, length)[..., seen], exact["bias"][..., seen], 10 * tolerance
        out = module(x)
        yield out, exact["out"], 10 * tolerance
        out.backward(golden["grad_out"])
        yield x.grad, exact["grad_x"], 100 * tolerance
        for parameter, expected in parameters(exact, "grad_").items():
            yield module.get_parameter(parameter).grad, expected, 100 * tolerance


def with_tables_of(arrays: Mapping[str, Tensor], window: tuple[int, ...] | None = None) -> DecomposedRelative:
    """The encoding with a model's tables, for a window of another size if need be."""
    tables = arrays["rel_pos_h"], arrays["rel_pos_w"]
    encoding = DecomposedRelative(tables[0].shape[1], window=[(len(table) + 1) // 2 for table in tables]).double()
    encoding.from_official(*tables)
    return encoding if window is None else encoding.resized(window)


def layer_of_decomposed(name: str) -> Comparisons:
    """SAM's and ViTDet's whole layers, their queries in another order."""
    arrays, meta = load(name), config(name)
    sizes, x = tuple(meta["sizes"]), arrays["x"].flatten(1, 2)
    in_heads = (x @ arrays["qkv_w"].T + arrays["qkv_b"]).unflatten(-1, (3, meta["heads"], -1))
    q, k, v = in_heads.permute(2, 0, 3, 1, 4)
    places, order = grid(*sizes), torch.randperm(sizes[0] * sizes[1])
    options = {"q_pos": places[order], "k_pos": places, "causal": False}
    out = attention(q[:, :, order], k, v, [with_tables_of(arrays, sizes)], **options)
    y = out.transpose(1, 2).flatten(2) @ arrays["proj_w"].T + arrays["proj_b"]
    yield y, arrays["y"].flatten(1, 2)[:, order], 5e-6 if "sam" in name else 1e-12  # SAM's softmax is of float32


def decomposed_for_pooled_keys(name: str) -> Comparisons:
    """Queries of 6 × 4 and keys pooled to 3 × 2: they lie at 1, 3, 5 and 1, 3."""
    arrays = load(name)
    q, eye = arrays["q"].unsqueeze(1), torch.eye(6, dtype=torch.float64).expand(2, 1, 6, 6)
    k = torch.zeros(2, 1, 6, q.shape[-1], dtype=torch.float64)
    options = {"q_pos": grid(6, 4), "k_pos": grid(3, 2) * 2 + 1, "causal": False}
    out = attention(q, k, eye, [with_tables_of(arrays)], **options)
    yield out[:, 0], arrays["bias"].flatten(2).softmax(-1), 2e-6


def xpos(name: str) -> Comparisons:
    golden, inputs = load(name), config(name)
    offset, tokens, expected = inputs["offset"], inputs["T"], golden["scores"]
    encoding = XPos(inputs["dim"], scale_base=inputs["scale_base"], gamma=inputs["gamma"])
    for dtype, tolerance in ((torch.float64, 1e-8), (torch.float32, 3e-5)):
        q, k = (golden[x].to(dtype).view(1, *golden[x].shape[-3:]) for x in "qk")
        q_pos, k_pos = torch.arange(offset, offset + tokens), torch.arange(k.shape[2])
        past = q_pos[:, None] >= k_pos
        read = read_attention(q, k, encodings=[encoding], q_pos=q_pos, k_pos=k_pos, mask=past, scale=1.0)
        yield read.scores.view(expected.shape)[:, past], expected[:, past], tolerance


test_scores = golden_test({
    "xpos_*": xpos,
    "dape_*": dape_scores,
    "ddalibi_*": data_alibi_bias,
    "grape_a_*": grape_a,
    "grape_m_ctx_*": grape_context,
    "path_*": path,
    "repo_*": repo,
    "selrope_*": selective_rope,
    "logn_*": temperature,
    "temp_llama4_*": temperature,
    "temp_mi*l[34]_*": temperature,
    "temp_mistral_large4_*": learned_temperature,
    "fox_*": fox_decay,
    "foxlayer_llama_full": layer_of_fox,
    "foxlayer_fixed_*": layer_of_gates_without_data,
    "cable_*": layer_of_cable,
    "vision/decomposed_[sv]*": layer_of_decomposed,
    "vision/decomposed_pooled__*": decomposed_for_pooled_keys,
})  # fmt: skip
