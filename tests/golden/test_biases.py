"""Biases from positions, their tables and resizing, and layers that add them, from other people's code."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from posenc import T5Bias, attention
from posenc.bias import KERPLE, ALiBi2D, BEiTBias, DistanceMLP, LogCPB, SwinBias, T5GridBias, alibi_slopes
from posenc.positions import NO_POSITION, grid
from tests.golden import config, load
from tests.golden.runner import EXACT, Comparisons, golden_test
from tests.samples import BACKENDS, FLOATS, weights

COORDINATES = (torch.int64, torch.float32, torch.float64)


def alibi_of_press(name: str) -> Comparisons:
    """Slopes for 1 to 128 heads."""
    table = load(name)["slopes"]
    for heads in range(1, 129):
        yield torch.tensor(alibi_slopes(heads), dtype=torch.float64), table[heads, :heads], 1e-15


def t5_buckets(name: str) -> Comparisons:
    golden = load(name)
    for key in golden.keys() - {"relative"}:
        both, buckets, distance = (int(n) for n in re.findall(r"\d+", key))
        bias = T5Bias(1, num_buckets=buckets, max_distance=distance, bidirectional=bool(both))
        for relative in (golden["relative"], golden["relative"].int(), golden["relative"].double()):
            yield bias.bucket(relative), golden[key], EXACT


def layer_of_t5(name: str) -> Comparisons:
    golden = load(name)
    bias = T5Bias(golden["table"].shape[1], num_buckets=golden["table"].shape[0], bidirectional=True).double()
    bias.load_state_dict({"weight": golden["table"]})
    q, k, v = ((golden["x"] @ golden[w].T).unflatten(-1, (3, 8)).transpose(1, 2) for w in ("wq", "wk", "wv"))
    for backend in BACKENDS:
        options = {"scale": 1.0, "causal": False, "backend": backend}
        out = attention(q, k, v, [bias], **options).transpose(1, 2).flatten(2)
        yield out @ golden["wo"].T, golden["out"], 1e-11
        yield weights(q, k, [bias], **options), golden["attn"], 1e-11


def kerple_with_the_slopes_of_alibi(name: str) -> Comparisons:
    arrays, kerple, positions = load(name), KERPLE(8, kind="power").double(), torch.arange(16).double()
    kerple.load_state_dict({"p": torch.ones(8), "a": arrays["bias_a"]})
    seen = arrays["mask_allowed"].bool()
    yield kerple(positions, positions)[:, seen], arrays["bias"][0][:, seen], 1e-12


def bam(name: str) -> Comparisons:
    """The prior of past and future keys, wherever the text lies; one file has a shift, one a head without decay."""
    arrays = load(name)
    shift, expected = bool((arrays["loc"] != 0).any()), arrays["bias"]
    assert shift == ("trained_loc" in name)
    if "default" in name:  # what a new one starts from
        yield KERPLE(8, kind="bam").log_a, arrays["scale"].float(), 1e-6
    at, largest = torch.arange(expected.shape[-1]), max(1.0, float(expected.abs().max()))
    for dtype, tolerance in FLOATS.items():
        kernel = KERPLE(len(arrays["scale"]), kind="bam", shift=shift, dtype=dtype)
        state = {"p": arrays["shape"], "log_a": arrays["scale"]} | ({"mu": arrays["loc"]} if shift else {})
        kernel.load_state_dict(state)
        yield kernel(at, at), expected, tolerance * largest
        yield kernel(at[-1:] + 70, at + 70), expected[:, -1:], tolerance * largest


def alibi_2d(name: str) -> Comparisons:
    made_with = config(name)
    side = math.isqrt(made_with["patches"])
    for dtype in COORDINATES:
        image = grid(side, side).to(dtype)
        yield ALiBi2D(made_with["heads"])(image, image), load(name)["bias"], 1e-6  # the file holds float32


def beit_of(table: Tensor, window: list[int]) -> BEiTBias:
    beit = BEiTBias(table.shape[1], window=window).double()
    beit.load_state_dict({"table": table})
    return beit


def beit(name: str) -> Comparisons:
    """Biases at another size, with a class token; rows lie in the authors' order."""
    arrays, made_with = load(name), config(name)
    resized = beit_of(arrays["table"], made_with["grid"]).resized(made_with["new"], mode="bilinear")
    image = torch.cat([torch.tensor([[NO_POSITION, 0]]), grid(*made_with["new"])])
    for dtype in COORDINATES:
        yield resized(image.to(dtype), image.to(dtype)), arrays["bias"], 2e-6  # the file holds float32
    if made_with["grid"] == made_with["new"]:
        rows = torch.arange(len(arrays["table"])).double()[:, None].expand_as(arrays["table"])
        yield beit_of(rows, made_with["grid"])(image, image)[0], arrays["index"], EXACT


def beit_resized(name: str) -> Comparisons:
    arrays, made_with = load(name), config(name)
    resized = beit_of(arrays["table"], made_with["window"]).resized(made_with["new"])
    yield resized.table, arrays["resized"], 2e-4  # the file holds float32, and timm's factor six digits


def swin(name: str) -> Comparisons:
    """Biases, the order of rows, and the whole layer."""
    arrays, window = load(name), config(name)["window"]
    encoding, positions, x = SwinBias(arrays["table"].shape[1], window=window).double(), grid(*window), arrays["x"]
    encoding.load_state_dict({"table": arrays["table"]})
    for dtype in COORDINATES:
        yield encoding(positions.to(dtype), positions.to(dtype)), arrays["bias"], EXACT
    in_heads = F.linear(x, arrays["qkv_w"], arrays["qkv_b"]).view(*x.shape[:2], 3, encoding.num_heads, -1)
    options = {"q_pos": positions, "k_pos": positions, "causal": False}
    out = attention(*in_heads.permute(2, 0, 3, 1, 4), [encoding], **options).transpose(1, 2).flatten(2)
    yield F.linear(out, arrays["proj_w"], arrays["proj_b"]), arrays["y"], 1e-6  # the file holds float32
    encoding.table.data.copy_(torch.arange(len(encoding.table))[:, None].expand_as(encoding.table))
    yield encoding(positions, positions)[0], arrays["index"], EXACT


def swin_resized(name: str) -> Comparisons:
    arrays, made_with = load(name), config(name)
    old, new = made_with["old"], made_with["new"]
    encoding = SwinBias(arrays["table"].shape[1], window=(old, old)).double()
    encoding.load_state_dict({"table": arrays["table"]})
    resized = encoding.resized((new, new))
    assert resized.window == (new, new)
    yield resized.table, arrays["resized"], 1e-5  # the file holds float32


def log_cpb(name: str) -> Comparisons:
    """Swin V2's bias, and its layer of cosine attention: q and k normalised, the learned scale inside q."""
    arrays, made_with = load(name), config(name)
    trained = [before or now for before, now in zip(made_with["pretrained_window"], made_with["window"], strict=True)]
    heads, hidden = arrays["w2"].shape
    cpb, positions, x = (
        LogCPB(heads, axes=2, hidden=hidden, window=trained).double(),
        grid(*made_with["window"]),
        arrays["x"],
    )
    cpb.load_state_dict({"inner_weight": arrays["w1"], "inner_bias": arrays["b1"], "outer_weight": arrays["w2"]})
    bias = torch.cat([arrays["q_b"], torch.zeros_like(arrays["q_b"]), arrays["v_b"]])
    q, k, v = F.linear(x, arrays["qkv_w"], bias).view(*x.shape[:2], 3, heads, -1).permute(2, 0, 3, 1, 4)
    q = F.normalize(q, dim=-1) * arrays["logit_scale"].clamp(max=math.log(100)).exp()
    options = {"q_pos": positions, "k_pos": positions, "causal": False, "scale": 1.0, "backend": "dense"}
    out = attention(q, F.normalize(k, dim=-1), v, [cpb], **options).transpose(1, 2).flatten(2)
    yield F.linear(out, arrays["proj_w"], arrays["proj_b"]), arrays["y"], 2e-6  # the file holds float32
    for dtype in (torch.float64, torch.float32):
        at = positions.to(dtype)
        got = cpb.to(dtype)(at, at)
        assert got.dtype == dtype
        yield got, arrays["bias"], 2e-5


def distance_mlp_of(arrays: Mapping[str, Tensor], options: Mapping[str, int]) -> DistanceMLP:
    """Ours with x-transformers' weights."""
    layers, norm = options["depth"], options["norm"]
    bias = DistanceMLP(options["heads"], hidden=options["dim"], layers=layers, log=options["log_distance"], norm=norm)
    renamed = {}
    for i in range(layers + 1):
        name = f"mlp.{i}.0" if i < layers else f"mlp.{i}"
        renamed |= {f"linears.{i}.{word}": arrays[f"{name}.{word}"] for word in ("weight", "bias")}
    for i in range(layers if norm else 0):
        name = {"weight": "weight", "bias": "bias"} if i else {"weight": "gamma"}
        renamed |= {f"norms.{i}.{ours}": arrays[f"mlp.{i}.1.{theirs}"] for ours, theirs in name.items()}
    bias.double().load_state_dict(renamed)
    return bias


def distance_mlp(name: str) -> Comparisons:
    arrays = load(name)
    queries, keys = arrays["bias"].shape[1:]
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 2e-5)):
        bias, positions = distance_mlp_of(arrays, config(name)).to(dtype), torch.arange(keys).to(dtype)
        got = bias(positions[keys - queries :], positions)
        assert got.dtype == dtype
        yield got, arrays["bias"], tolerance * max(1.0, float(arrays["bias"].abs().max()))


def t5_grid_of(arrays: Mapping[str, Tensor], **options: object) -> T5GridBias:
    """The encoding with a model's tables, (buckets, heads) each."""
    tables = [arrays[name] for name in ("table_t", "table_x", "table_y")]
    sizes = tuple(len(table) for table in tables)
    bias = T5GridBias(tables[0].shape[1], axes=3, num_buckets=sizes, **options).double()
    bias.load_state_dict({"weight": torch.cat(tables)})
    return bias


def layoutlm(name: str) -> Comparisons:
    """The place in the text, the left edge and the lower edge of each box; version 3 divides by √head_dim = 4."""
    arrays = load(name, None)
    scale = 16**-0.5 if "layoutlmv3" in name else 1.0
    bias = t5_grid_of(arrays, max_distance=(128, 256, 256), bias_scale=scale)
    places = torch.cat([arrays["positions"].unsqueeze(-1), arrays["bbox"][..., [0, 3]]], -1)
    yield bias(places, places), arrays["bias"], 1e-12


def udop(name: str) -> Comparisons:
    """The place in the text and the middle of each box, from 0 to 1, in float32 as theirs."""
    arrays = load(name, None)
    bias = t5_grid_of(arrays, max_distance=(128, 100, 100), factor=(1.0, 100.0, 100.0))
    bbox = arrays["bbox"]
    text = torch.arange(bbox.shape[1], dtype=torch.float32).expand(bbox.shape[0], -1)
    places = torch.stack([text, bbox[..., [0, 2]].mean(-1), bbox[..., [1, 3]].mean(-1)], -1)
    yield bias(places, places), arrays["bias"], 1e-12


def buckets_of_a_page(name: str) -> Comparisons:
    """Every difference that a page of a thousand units has."""
    arrays = load(name, None)
    for buckets, longest in config(name)["shapes"]:
        bias = T5GridBias(1, axes=1, num_buckets=buckets, max_distance=longest)
        yield bias.bucket(arrays["differences"], 0), arrays[f"buckets_{buckets}_{longest}"], EXACT


test_biases = golden_test({
    "alibi_slopes_*": alibi_of_press,
    "t5_bucket_tables": t5_buckets,
    "t5_hf_layer_*": layer_of_t5,
    "kerple_power_original_alibi_*": kerple_with_the_slopes_of_alibi,
    "bam_*": bam,
    "swinv2_logcpb_*": log_cpb,
    "distance_mlp_*": distance_mlp,
    "vision/alibi2d__*": alibi_2d,
    "vision/beit_rpb__*": beit,
    "vision/beit_geometric__*": beit_resized,
    "vision/swin_rpb__*": swin,
    "vision/swin_rpb_resize__*": swin_resized,
    "vision/t5_grid_layoutlmv*": layoutlm,
    "vision/t5_grid_udop__*": udop,
    "vision/t5_grid_buckets": buckets_of_a_page,
})  # fmt: skip
