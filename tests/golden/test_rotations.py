"""Rotated queries and keys, tables of cosines and sines, and layers that rotate, from other people's code."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from posenc import AxialRoPE, MRoPE, RoPE, RotaryEncoding, YaRN, attention, read_attention
from posenc.frequencies import DyPE, RIFLEx, identify_k
from posenc.positions import NO_POSITION, centred, grid, spaced, with_prefix, with_suffix
from posenc.rotary import (
    GRAPEM,
    ComRoPEAP,
    ComRoPELD,
    FoPE,
    LieRE,
    MHRoPE,
    MixedRoPE,
    PoPE,
    RoPEpp,
    VJEPARoPE,
    pair_order,
)
from posenc.score import DualChunk
from tests.golden import config, load, names
from tests.golden.runner import Comparisons, golden_test, relative
from tests.samples import FLOATS

Arrays = Mapping[str, Tensor]
Settings = dict[str, Any]


def both(got: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor], tolerance: float) -> Comparisons:
    """Queries and keys, or cosines and sines."""
    for each, reference in zip(got, expected, strict=True):
        yield each, reference, tolerance


def vision(name: str) -> tuple[dict[str, Tensor], Settings]:
    """The arrays of a file in the dtypes of its authors, and what it was made with."""
    return load(name, None), config(name)


def rope(name: str) -> Comparisons:
    built, golden = config(name), load(name)
    options = {"base": built["theta"], "rotary_dim": built.get("rotary_dim")}
    head_dim, positions = built.get("head_dim") or built["dim"], golden["positions"]
    encoding = RoPE(head_dim, **options)
    for like, tolerance in ((torch.empty(0, dtype=torch.float64), 1e-9), (None, 3e-7)):
        yield from both(encoding.table(positions, like=like), (golden["cos_f64"], golden["sin_f64"]), tolerance)
    if "inv_freq_f64" in golden:
        yield *relative(encoding.spectrum().theta, golden["inv_freq_f64"]), 1e-12
        assert encoding.spectrum().gain == golden["attention_factor"] == 1.0
    for layout, ending in (("half", "half"), ("interleaved", "inter")):
        if "meta" in name and layout == "half":
            continue
        for dtype, tolerance in ((torch.float64, 1e-8), (torch.float32, 5e-6)):
            arrays, turned = load(name, dtype), RoPE(head_dim, layout=layout, **options)
            q, k = turned(arrays["q"], arrays["k"], positions, positions)
            assert q.dtype == dtype
            yield q, golden[f"q_{ending}"], tolerance
            assert torch.equal(k, turned.rotate(arrays["k"], turned.table(positions, like=q))), "keys as queries"


def rope_of_meta_in_float32(name: str) -> Comparisons:
    golden, built = load(name, torch.float32), config(name)
    encoding, positions = RoPE(built["dim"], base=built["theta"], layout="interleaved"), golden["positions"]
    off = encoding.rotate(golden["q"], encoding.table(positions)) - golden["q_inter_f32"]
    yield off / (1e-5 + 1e-6 * positions[:, None]), torch.zeros_like(off), 1.0  # a float32 product: 1e-7 a token


def fope(name: str) -> Comparisons:
    inputs = config(name)
    width, dropped, past = inputs["head_dim"], inputs["fourier_ignore_zero"], inputs["past"]
    for dtype, tolerance in FLOATS.items():
        arrays = load(name, dtype)
        keys = torch.arange(arrays["k"].shape[2])
        for rest, ending, table in (("doubled", "", "official"), ("pass", "_zero_pad", "zero_pad")):
            encoding = FoPE(
                width, num_heads=inputs["heads"], original_length=inputs["max_sequence_length"],
                base=inputs["rope_theta"], spectrum_dim=inputs["fourier_dim"] or None,
                slow="drop" if dropped else "zero", rest=rest,
                series=min(arrays["inv_freq_kept"].shape[0], width // 4) if dropped else None,
                per_head=inputs["fourier_separate_head"], separate=inputs["fourier_separate_basis"],
                normalized=inputs["fourier_norm"],
            ).to(dtype)  # fmt: skip
            assert encoding.cos_coef.shape[1] == len(arrays["inv_freq_kept"])
            for word in ("cos_coef", "sin_coef"):
                if getattr(encoding, word) is not None:
                    getattr(encoding, word).data.copy_(arrays[word])
            cos, sin = (part.expand_as(arrays["cos_table"]) for part in encoding.table(keys, like=arrays["k"]))
            yield from both((cos, sin), (arrays["cos_table"], arrays[f"sin_table_{table}"]), tolerance)
            rotated = encoding(arrays["q"], arrays["k"], keys[past:], keys)
            yield from both(rotated, (arrays[f"q_rot{ending}"], arrays[f"k_rot{ending}"]), 10 * tolerance)


def rope_pp(name: str) -> Comparisons:
    inputs = config(name)
    scaled, mode = inputs["rope_config"], inputs["mode"]
    encoding = RoPEpp(
        inputs["head_dim"], num_heads=inputs["output_heads"], base=inputs["rope_theta"],
        imaginary={"imagh": "half", "imago": "all"}.get(mode, "odd"),
        scaling=YaRN(scaled["factor"], original_length=4096, ramp="rotations") if scaled else None,
    )  # fmt: skip
    yield *relative(encoding.spectrum().theta, load(name)["inv_freq"]), 1e-12
    for dtype, tolerance in FLOATS.items():
        arrays = load(name, dtype)
        assert encoding.imaginary_heads() == arrays["imaginary_head"].tolist()
        leaves = [arrays[x].requires_grad_() for x in "qkv"]
        q, k, v = leaves
        shared = RoPEpp.doubled(q) if mode in ("imag1", "imag2") else q
        assert torch.equal(shared, q[:, arrays["source_query_head"]])
        for backend in ("dense", "sdpa"):
            out = attention(shared, k, v, [encoding], backend=backend)
            yield out, arrays["out"], tolerance
            gradients = torch.autograd.grad(out, leaves, arrays["grad_out"], retain_graph=True)
            for x, gradient in zip("qkv", gradients, strict=True):
                yield gradient, arrays[f"grad_{x}"], 10 * tolerance
        read, seen = read_attention(shared, k, v, [encoding]), arrays["allowed"]
        yield read.scores[:, :, seen], arrays["scores"][:, :, seen], tolerance
        yield read.weights, arrays["weights"], tolerance


def pope(name: str) -> Comparisons:
    inputs = config(name)
    heads, num_kv_heads, axial, width = (inputs[word] for word in ("heads", "kv_heads", "axial", "rotary_dim"))
    channels, order, options = torch.arange(inputs["head_dim"]), torch.arange(heads), {"rotary_dim": width}
    if axial:  # theirs has the fastest coordinate first
        sections = axial[1]
        channels, options = torch.cat([channels[sections[0] :], channels[: sections[0]]]), {"sections": sections[::-1]}
    if inputs["gqa_order"]:  # query head h has key head h mod num_kv_heads there
        order = torch.arange(heads).view(-1, num_kv_heads).T.flatten()
    at = grid(*axial[0]) if axial else torch.arange(inputs["k_len"])
    for dtype, tolerance in FLOATS.items():
        arrays = load(name, dtype)
        encoding = PoPE(
            inputs["head_dim"], num_heads=heads, num_kv_heads=num_kv_heads, base=inputs["theta"], **options
        ).to(dtype)
        encoding.bias.data.copy_(arrays["bias"][:, channels[:width]])
        q, k, v = (arrays[x].requires_grad_() for x in "qkv")
        inside = (q[:, order][..., channels], k[..., channels], v)
        call = {"q_pos": at[-inputs["q_len"] :], "k_pos": at, "causal": axial is None}
        for backend in ("dense", "sdpa"):
            out = attention(*inside, [encoding], backend=backend, **call)
            yield out, arrays["out"][:, order], tolerance
            leaves = [q, k, v, encoding.bias]
            gradients = torch.autograd.grad(out, leaves, arrays["grad_out"][:, order], retain_graph=True)
            of_bias = arrays["grad_bias"][:, channels[:width]]
            for got, exact in zip(gradients, [*(arrays[f"grad_{x}"] for x in "qkv"), of_bias], strict=True):
                yield got, exact, 10 * tolerance
        seen, scores = arrays["allowed"], read_attention(*inside, [encoding], **call).scores
        yield scores[:, :, seen], arrays["scores"][:, order][:, :, seen], tolerance
        if dtype == torch.float64 and not axial:
            for got, x in zip(encoding(q, k, call["q_pos"], at), "qk", strict=True):
                reference, baseline = arrays[f"{x}_feat"].split([2 * width, inputs["head_dim"] - width], -1)
                yield got, torch.cat([reference[..., ::2], reference[..., 1::2], baseline], -1), 1e-12


def grape_m(name: str) -> Comparisons:
    inputs = config(name)
    for dtype, tolerance in FLOATS.items():
        arrays = load(name, dtype)
        encoding = GRAPEM(
            inputs["head_dim"], num_heads=inputs["heads"], per_head=not inputs["share_across_heads"],
            base=inputs["base"], log_scale=inputs["log_freq_scale"],
        ).to(dtype)  # fmt: skip
        encoding.log_theta.data.copy_(arrays["log_freq"].view_as(encoding.log_theta))
        yield encoding.frequencies().expand(inputs["heads"], -1), load(name)["freq"], 10 * tolerance
        q, k = (arrays[x].transpose(1, 2).requires_grad_() for x in "qk")
        at = arrays["phase"][0, :, 0]
        rotated = encoding(q, k, at, at)
        yield from both(rotated, tuple(arrays[f"{x}_rot"].transpose(1, 2) for x in "qk"), 2 * tolerance)
        given = [arrays[f"grad_out_{x}"].transpose(1, 2) for x in "qk"]
        *of_tensors, of_theta = torch.autograd.grad(rotated, (q, k, encoding.log_theta), given)
        yield from both(of_tensors, tuple(arrays[f"grad_{x}"].transpose(1, 2) for x in "qk"), 10 * tolerance)
        yield of_theta, arrays["grad_log_freq"].view_as(of_theta), 100 * tolerance  # sums over positions


def dual_chunk_of_vllm(name: str) -> Comparisons:
    """Queries and keys turned for each range."""
    golden, settings = load(name), config(name)
    layout = "half" if settings["neox"] else "interleaved"
    rope = RoPE(settings["head_dim"], base=settings["rope_theta"], layout=layout, rotary_dim=settings["rotary_dim"])
    encoding = DualChunk(rope, size=settings["chunk_size"], local=settings["local_size"])
    positions = golden["positions"][0]
    heads = {"q": settings["heads"], "k": settings["kv_heads"]}
    q, k = (golden[x].view(1, len(positions), heads[x], -1).transpose(1, 2) for x in "qk")
    ranges = encoding.ranges(positions, positions)
    for part, key in zip(ranges, ("q_intra", "q_succ", "q_inter"), strict=True):
        for x, at, expected in ((q, part.q_pos, golden[key]), (k, part.k_pos, golden["k_rot"])):
            yield rope.rotate(x, rope.table(at, like=x))[0].transpose(0, 1).flatten(1), expected, 1e-12


def rotated(encoding: RotaryEncoding, positions: Tensor, arrays: Arrays, tolerance: float, which="qk") -> Comparisons:
    """What ``encoding`` makes of q and k, or of x, at these positions."""
    for x in which:
        yield encoding.rotate(arrays[x], encoding.table(positions)), arrays[f"{x}_rot"], tolerance


def places_of(arrays: Arrays, meta: Settings) -> Tensor:
    """rope-vit's coordinates, which are those of `grid`."""
    positions = torch.stack([arrays["t_y"], arrays["t_x"]], -1).long()
    if "end_y" in meta:
        assert torch.equal(positions, grid(meta["end_y"], meta["end_x"]))
    return positions


def axial_of_rope_vit(name: str) -> Comparisons:
    arrays, meta = vision(name)
    encoding, positions = AxialRoPE(meta["head_dim"], base=meta["theta"]), places_of(arrays, meta)
    yield from both(encoding.table(positions), (arrays["cis_re"], arrays["cis_im"]), meta["tol"])
    yield from rotated(encoding, positions, arrays, 1e-5)


def layer_of_rope_vit(name: str) -> Comparisons:
    """The layer of its demonstration: one class token before the grid."""
    arrays, meta = vision(name)
    width, options = meta["dim"] // meta["heads"], {"base": meta["theta"]}
    encoding: RotaryEncoding = AxialRoPE(width, **options)
    if "mixed" in name:
        encoding = MixedRoPE(width, num_heads=meta["heads"], **options).from_official(arrays["freqs"])
    positions = torch.cat([torch.tensor([[NO_POSITION, 0]]), grid(meta["grid"], meta["grid"])])
    q, k, v = (arrays["x"] @ arrays["qkv_w"].mT).unflatten(-1, (3, meta["heads"], -1)).permute(2, 0, 3, 1, 4)
    out = attention(q, k, v, [encoding], q_pos=positions, k_pos=positions, causal=False).transpose(1, 2).flatten(2)
    yield out @ arrays["proj_w"].mT + arrays["proj_b"], arrays["y"], meta["tol"]


def first_halves(arrays: Arrays) -> tuple[Tensor, Tensor]:
    """Cosines and sines of each pair, which stand twice in the file."""
    return arrays["cos"].chunk(2, -1)[0], arrays["sin"].chunk(2, -1)[0]


def qwen_vision(name: str) -> Comparisons:
    arrays, meta = vision(name)
    encoding = AxialRoPE(meta["head_dim"], convention="qwen-vl", base=meta["theta"])
    yield from both(encoding.table(arrays["position_ids"]), first_halves(arrays), meta["tol"])
    in_order = {word: arrays[word].transpose(0, 1)[None] for word in ("q", "k", "q_rot", "k_rot")}
    yield from rotated(encoding, arrays["position_ids"], in_order, 5e-5)


def dinov3(name: str) -> Comparisons:
    arrays, meta = vision(name)
    sizes = torch.tensor([meta["H"], meta["W"]])
    by = {"min": sizes.min(), "max": sizes.max()}.get(meta.get("normalize_coords"), sizes)
    places = 2 * (grid(meta["H"], meta["W"]) + 0.5) / by - 1
    periods = {word: meta[word] for word in ("min_period", "max_period") if word in meta}
    encoding = AxialRoPE(meta["head_dim"], convention="dinov3", base=meta["base"], **periods)
    yield from both(encoding.table(places), first_halves(arrays), meta["tol"])
    ahead = torch.eye(2, dtype=torch.float64) / 64  # frequencies are read off tokens a 64th of a unit along an axis
    cos, sin = encoding.table(ahead, like=ahead)
    for angle in torch.atan2(sin, cos) * 64:
        yield 2 * math.pi / angle[angle != 0], arrays["periods"], float(1e-6 * arrays["periods"].max())
    positions = torch.cat([torch.tensor([[NO_POSITION, 0.0], [NO_POSITION, 1.0]]), places])
    yield from rotated(encoding, positions, arrays, 1e-5, "x")


def eva(name: str) -> Comparisons:
    arrays, meta = vision(name)
    positions = grid(*meta["feat_shape"]) / torch.tensor(meta["feat_shape"]) * torch.tensor(meta["ref_feat_shape"])
    encoding = AxialRoPE(meta["head_dim"], convention="eva-02", base=meta["temperature"])
    yield from both(encoding.table(positions), (arrays["cos"][:, ::2], arrays["sin"][:, ::2]), meta["tol"])
    yield from rotated(encoding, positions, arrays, 1e-5, "x")


CONVENTIONS = {"gemma4": "gemma-4", "kimi": "kimi-k2.5", "llama4": "llama-4", "efficientloftr": "efficient-loftr"}


def models_of_transformers(name: str) -> Comparisons:
    arrays, meta = vision(name)
    convention = CONVENTIONS[name.split("_")[1]]
    x, expected = arrays["x"].transpose(1, 2), arrays["x_rot"].transpose(1, 2)
    places = with_suffix(grid(*meta["sizes"])) if convention == "llama-4" else grid(*meta["sizes"])
    encoding = AxialRoPE(x.shape[-1], convention=convention)
    yield encoding.rotate(x, encoding.table(places)), expected, 2e-6
    yield encoding(x, x, places, places)[1], expected, 2e-6


def efficient_loftr_in_heads(name: str) -> Comparisons:
    """Its rotation of the whole width is, in heads, one of frequencies of their own: pairs read rows and columns."""
    arrays, meta = vision(name)
    heads, width = meta["heads"], arrays["x"].shape[-1]
    theta, pairs = torch.zeros(width // 2, 2, dtype=torch.float64), torch.arange(width // 2)
    theta[pairs, pairs % 2] = 10_000.0 ** (-(pairs // 2).double() / (width // 4))  # of each pair, (row, column)
    frequencies = theta.view(heads, -1, 2).mT
    encoding = MixedRoPE(width // heads, num_heads=heads, frequencies=frequencies, learned=False)
    in_heads = {w: arrays[w].squeeze(2).unflatten(-1, (heads, -1)).transpose(1, 2) for w in ("x", "x_rot")}
    yield from rotated(encoding, grid(*meta["sizes"]) + 1, in_heads, 2e-6, "x")


def sam_2(name: str) -> Comparisons:
    """Its memory: the tokens of several pictures, and the pointers behind them, which stay as they are."""
    arrays, meta = vision(name)
    encoding, places = AxialRoPE(16, convention="sam-2"), grid(*meta["sizes"])
    q, k = encoding(arrays["q"], arrays["k"], places, with_suffix(places.repeat(meta["frames"], 1), meta["pointers"]))
    yield from both((q, k), (arrays["q_rot"], arrays["k_rot"]), 2e-6)
    assert torch.equal(k[..., -4:, :], arrays["k"][..., -4:, :])


def mlcd(name: str) -> Comparisons:
    """The class token has angles of its own."""
    arrays, meta = vision(name)
    encoding, places = AxialRoPE(16, convention="qwen-vl", prefix=1), with_prefix(grid(*meta["sizes"]))
    encoding.angles.data = arrays["angles"]
    assert list(encoding.state_dict()) == ["angles"]
    yield encoding.rotate(arrays["x"].transpose(1, 2), encoding.table(places)), arrays["x_rot"].transpose(1, 2), 2e-6


def in_axes(freqs: Tensor) -> Tensor:
    """(2, heads, pairs) of rope-vit, column before row, as (heads, axes, pairs)."""
    return freqs.flip(0).transpose(0, 1).double()


def mixed_initial(name: str) -> Comparisons:
    """The frame of a head, drawn at the angle that the authors drew: the first vector has the first half of pairs."""
    arrays, meta = vision(name)
    with mock.patch.object(torch, "rand", return_value=arrays["angles"].double() / (2 * math.pi)):
        encoding = MixedRoPE(meta["head_dim"], num_heads=len(arrays["angles"]), base=meta["theta"], dtype=torch.float64)
    yield encoding.theta, in_axes(arrays["freqs"]), meta["tol"]


def mixed(name: str) -> Comparisons:
    arrays, meta = vision(name)
    positions = places_of(arrays, meta)
    for layer in range(meta["layers"]):
        encoding = MixedRoPE(meta["head_dim"], num_heads=meta["heads"], base=meta["theta"])
        encoding.from_official(arrays["freqs"][:, layer])
        yield from both(encoding.table(positions), (arrays["cis_re"][layer], arrays["cis_im"][layer]), meta["tol"])
        of_layer = {x: arrays[x] for x in "qk"} | {f"{x}_rot": arrays[f"{x}_rot"][layer] for x in "qk"}
        yield from rotated(encoding, positions, of_layer, 1e-5)


def swin(name: str) -> Comparisons:
    arrays, meta = vision(name)
    positions = places_of(arrays, meta)
    encoding = MixedRoPE(meta["head_dim"], num_heads=meta["heads"], base=meta["theta"], directions="axial")
    if not meta["rotate"]:
        yield encoding.theta, in_axes(arrays["freqs"]), 1e-6
    encoding.from_official(arrays["freqs"])
    yield from both(encoding.table(positions), (arrays["cis_re"], arrays["cis_im"]), meta["tol"])
    yield from rotated(encoding, positions, arrays, 1e-5, "q")


def vjepa(name: str) -> Comparisons:
    arrays, meta = vision(name)
    positions = torch.stack([arrays["pos_d"], arrays["pos_h"], arrays["pos_w"]], -1).long()
    assert torch.equal(positions, grid(meta["frames"], meta["grid"], meta["grid"]))
    tail = meta["unrotated_tail"]
    for released, word in ((True, "released"), (False, "fixed")):
        encoding = VJEPARoPE(meta["head_dim"], released=released)
        got = encoding.rotate(arrays["x"], encoding.table(positions))
        yield got, arrays[f"x_rot_{word}"], meta["tol"]
        assert tail == 0 or torch.equal(got[..., -tail:], arrays["x"][..., -tail:])


def comrope(name: str) -> Comparisons:
    """Its rotations and matrices, and its layer with a class token."""
    arrays, meta = vision(name)
    kind = ComRoPEAP if "_ap_" in name else ComRoPELD
    positions, heads, width = arrays["positions"], meta["heads"], meta["head_dim"]
    encoding = kind(width, num_heads=heads, axes=meta["num_axes"], block=meta["block"])
    encoding.from_official(arrays["freqs"], *([arrays["multiplier"]] if kind is ComRoPELD else []))
    for x in "qk":
        got = encoding.rotate(arrays[x], encoding.table(positions))
        yield got, arrays[f"{x}_rot"], meta["tol_rot"]
        exact = torch.einsum("thij,bhtj->bhti", arrays["R64"], arrays[x].double())
        yield got, exact, 2e-5
        wide = encoding.rotate(arrays[x].double(), encoding.table(positions.double(), like=exact))
        yield wide, exact, 1e-6  # their generators are rounded to float32
    basis = torch.eye(width, dtype=torch.float64).expand(1, heads, width, width)
    tables = (encoding.table(at.double().expand(width, -1), like=basis) for at in positions)
    matrices = torch.stack([encoding.rotate(basis, table)[0].mT for table in tables])
    yield matrices, arrays["R64"], 1e-6
    yield matrices, arrays["R"], meta["tol"]
    if meta["frames"] is None:
        yield with_prefix(centred(grid(4, 4), (4, 4)), at=0.5), positions, 1e-6
    in_heads = (arrays["x"] @ arrays[f"{t}_w"].mT + arrays[f"{t}_b"] for t in "qkv")
    q, k, v = (t.unflatten(-1, (heads, -1)).transpose(1, 2) for t in in_heads)
    out = attention(q, k, v, [encoding], q_pos=positions, k_pos=positions, causal=False).transpose(1, 2).flatten(2)
    yield out @ arrays["o_w"].mT + arrays["o_b"], arrays["y"], 1e-5


def liere(name: str) -> Comparisons:
    arrays, meta = vision(name)
    sizes, trained = ([side // p for side, p in zip(meta[w], meta["patch"], strict=True)]
                      for w in ("infer_image", "image"))  # fmt: skip
    yield spaced(grid(*sizes), sizes, trained), arrays["positions"], 1e-6
    for layer in range(arrays["params"].shape[1]):
        encoding = LieRE(
            64, num_heads=meta["heads"], axes=meta["axes"], block=meta["generator_dim"], per_head=meta["per_head"]
        ).from_official(arrays["params"][:, layer])
        if encoding.block > 2:
            (table,) = encoding.table(arrays["positions"])
            exact = arrays["R_from_f64_exp"][1:, layer].unflatten(1, (encoding._rows, -1)).transpose(0, 1)
            yield table, exact, meta["tol"]
        for x in "qk":
            got = encoding.rotate(arrays[x], encoding.table(with_prefix(arrays["positions"])))
            yield got, arrays[f"{x}_rot"][layer], meta["tol_rot"]
            assert torch.equal(got[:, :, 0], arrays[x][:, :, 0])


def liere_of_comrope(name: str) -> Comparisons:
    arrays, meta = vision(name)
    encoding = LieRE(meta["head_dim"], num_heads=meta["heads"], block=meta["block"]).from_official(arrays["freqs"])
    (table,) = encoding.table(arrays["positions"])
    exact = arrays["R64"].unflatten(-1, (-1, 4)).unflatten(2, (-1, 4)).diagonal(dim1=2, dim2=4).movedim(-1, 2)
    yield table, exact.transpose(0, 1), meta["tol"]
    yield from rotated(encoding, arrays["positions"], arrays, meta["tol_rot"])


def plain_rope_of_comrope(name: str) -> Comparisons:
    """Blocks of 2 that all heads share."""
    arrays, meta = vision(name)
    encoding = LieRE(meta["head_dim"], num_heads=meta["heads"], block=2, per_head=False)
    yield from rotated(encoding.from_official(arrays["A"][0]), arrays["positions"], arrays, meta["tol_rot"])


def mrope_of_qwen(name: str) -> Comparisons:
    arrays, meta = vision(name)
    encoding = MRoPE(
        meta["head_dim"], sections=meta["sections"], interleaved=meta.get("interleaved", False), base=meta["theta"]
    )
    yield *relative(encoding.spectrum().theta, arrays["inv_freq"].double()), 1e-6
    positions = arrays["position_ids"].movedim(0, -1)
    read = positions[..., encoding.order()].float()
    product = read * arrays["inv_freq"]  # theirs is in float32, off by 1e-7 a token
    yield from both((product.cos(), product.sin()), first_halves(arrays), 1e-6)
    for got, rounded in zip(encoding.table(positions), (product.cos(), product.sin()), strict=True):
        yield (got - rounded) / (1e-6 + 2e-7 * read), torch.zeros_like(got), 1.0
    yield from rotated(encoding, positions, arrays, meta["tol_rot"])
    with pytest.raises(ValueError, match=r"positions\.movedim\(0, -1\)"):
        encoding.table(arrays["position_ids"])


DESIGNS = {"videorope_d32": "videorope", "hope_d128": "hope", "mmrope_d40": "mm-rope"}


def designs_of_the_comparison(name: str) -> Comparisons:
    """Which axis each pair reads, and the tables of the comparison's authors."""
    settings, arrays = config(name), load(name)
    head_dim, base = settings["head_dim"], settings["base"]
    order = [-1 if axis == 3 else axis for axis in arrays["axis_of_pair"][0].tolist()]
    design = DESIGNS.get(name.partition("mmalloc_")[2])
    if design:
        sections = (len(order), 0, 0) if design == "mm-rope" else settings["mrope_section"]
        assert pair_order(design, sections) == order
        encoding = MRoPE(head_dim, order=order, base=base)
    else:
        interleaved = "Interleave" in settings["module"]
        encoding = MRoPE(head_dim, sections=settings["mrope_section"], interleaved=interleaved, base=base)
    assert encoding.order() == MRoPE(head_dim, order=order, base=base).order() == order
    expected = tuple(arrays[f"{part}_authors_f32"][:, : len(order)].float() for part in ("cos", "sin"))
    yield from both(encoding.table(arrays["positions"]), expected, 1e-5)


def mhrope(name: str) -> Comparisons:
    arrays, encoding = load(name), MHRoPE(128, num_heads=8, heads=(2, 3, 3), base=1e6)
    assert encoding.order() == arrays["axis_of_pair"][:, 0].tolist()
    expected = tuple(arrays[f"{part}_authors_f32"][..., :64].float() for part in ("cos", "sin"))
    yield from both(encoding.table(arrays["positions"]), expected, 2e-5)


def designs_of_their_authors(name: str) -> Comparisons:
    """Sections of 3, 5 and 4 pairs: rows and columns alternate, whatever the share of each."""
    arrays = load(name)
    order = pair_order(name.rpartition("/")[2], arrays["sections"].tolist(), code="authors")
    got = MRoPE(24, order=order, base=1e4)(arrays["q"], arrays["k"], *[arrays["positions"]] * 2)
    yield from both(got, (arrays["q_rot"], arrays["k_rot"]), 1e-12)


def diffusion(name: str) -> Comparisons:
    """The position module of a diffusion model whose axes differ in width, by the numbers of its configuration."""
    built, arrays = config(name), load(name, None)
    base, options = built.get("bases", built.get("theta")), {"layout": built["layout"]}
    if "rope_freq_dim" in built:  # MiniMax-H3: three axes of 2 · rope_freq_dim channels, the rest is not rotated
        width = 2 * built["rope_freq_dim"]
        options |= {"axes_dims": (width,) * 3, "rotary_dim": 3 * width}
    else:
        options |= {"axes_dims": built["axes_dims"]}
    if "L_test" in built:
        options["scaling"] = (RIFLEx(built["k"], length=built["L_test"]), None, None)
    encoding, positions = AxialRoPE(built["head_dim"], base=base, **options), arrays["positions"]
    table, expected = encoding.table(positions, like=positions), (arrays["cos"], arrays["sin"])
    yield from both(table, expected, 1e-11)
    for x in "qk":
        yield encoding.rotate(arrays[x], table), arrays[f"{x}_rot"], 1e-11
    single = encoding.table(positions.float() if positions.frac().any() else positions.long())
    assert single[0].dtype == torch.float32
    yield single[0], expected[0], 2e-5


def dype(name: str) -> Comparisons:
    """At each step of denoising."""
    settings, arrays = config(name), load(name, None)
    positions, widths = arrays["positions"], settings["axes_dims"]
    largest = [int(positions[:, axis].max()) + 1 for axis in (1, 2)]
    options = {"original_length": settings["base_patches"], "timestep": settings["timestep"]}
    options |= {"dynamic": settings["dype"], "method": settings.get("method_", "yarn")}
    steps = [DyPE(size, **options) for size in settings.get("video_fhw", [0, *largest])[1:]]
    encoding = AxialRoPE(sum(widths), axes_dims=widths, base=settings["theta"], scaling=(None, *steps))
    yield from both(encoding.table(positions, like=positions), (arrays["cos"], arrays["sin"]), 1e-12)


def riflex_period(name: str) -> Comparisons:
    """The period that repeats, as the authors find it."""
    for base, width, repeats_at, k, period in load(name, None)["table"].tolist():
        yield torch.tensor(identify_k(int(width), base, repeats_at)), torch.tensor([int(k), int(period)]), 1e-9


def modules_with_axes() -> Iterator[str]:
    """Files of diffusion models that say no tolerances of their own; the others are in tests/test_presets.py."""
    for name in names("diffusion/*"):
        if "identify" not in name and "dype" not in name and "tolerances" not in config(name):
            yield name


test_rotations = golden_test({
    "rope_*": rope,
    "rope_meta_*": rope_of_meta_in_float32,
    "fope_*": fope,
    "ropepp_*": rope_pp,
    "pope_*": pope,
    "grape_m_[ps]*": grape_m,
    "dca_vllm_*": dual_chunk_of_vllm,
    "vision/rope2d_axial__*": axial_of_rope_vit,
    "vision/rope2d_attention__*": layer_of_rope_vit,
    "vision/rope2d_qwen_vision__*": qwen_vision,
    "vision/rope2d_dinov3__*": dinov3,
    "vision/rope2d_eva_timm__*": eva,
    **{f"vision/rope2d_{model}*": models_of_transformers for model in CONVENTIONS},
    "vision/rope2d_efficientloftr__d48_3x5": efficient_loftr_in_heads,
    "vision/rope2d_sam2__*": sam_2,
    "vision/rope2d_mlcd__*": mlcd,
    "vision/rope2d_mixed_init__*": mixed_initial,
    "vision/rope2d_mixed__*": mixed,
    "vision/rope2d_swin__*": swin,
    "vision/rope3d_vjepa2__*": vjepa,
    "vision/comrope_[al][pd]__*": comrope,
    "vision/liere__*": liere,
    "vision/comroperepo_liere__*": liere_of_comrope,
    "vision/comroperepo_vanilla_rope__*": plain_rope_of_comrope,
    "vision/mrope_qwen*_vl__*": mrope_of_qwen,
    "multimodal/mmalloc_[!m]*": designs_of_the_comparison,
    "multimodal/mmalloc_mrope*": designs_of_the_comparison,
    "multimodal/mmalloc_mmrope*": designs_of_the_comparison,
    "multimodal/mmalloc_mhrope*": mhrope,
    "multimodal_authors/*": designs_of_their_authors,
    **dict.fromkeys(modules_with_axes(), diffusion),
    "diffusion/*dype*": dype,
    "diffusion/riflex_identify_k": riflex_period,
})  # fmt: skip
