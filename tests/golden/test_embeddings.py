"""Embeddings added to tokens, their tables at other sizes, and rows of token ids, from other people's code."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from posenc import Learned, LearnedGrid, Sinusoidal, positions
from posenc.embedding import RandomFourier, SinusoidalGrid, resize_grid
from posenc.embedding.abacus import Abacus
from posenc.positions import NO_POSITION, aligned, from_mask, grid, signed
from tests.golden import config, load
from tests.golden.runner import EXACT, Comparisons, golden_test

FORMS = {  # the array, and the form that it is
    "interleaved": {"layout": "interleaved"},
    "half_paper": {"layout": "half"},
    "half_t2t": {"layout": "half", "spacing": "tensor2tensor"},
}


def sinusoidal(name: str) -> Comparisons:
    golden, dim = load(name), config(name)["dim"]
    for array, form in FORMS.items():
        encoding, at = Sinusoidal(dim, **form), golden["positions"]
        yield encoding.encode(at, torch.float64), golden[array], 1e-9
        yield encoding.encode(at), golden[array], 3e-7  # float32 keeps the angle at every position
        x = torch.randn(2, len(at), dim, dtype=torch.float64)
        yield encoding(x, at), x + golden[array], 1e-9


def sinusoidal_of_other_libraries(name: str) -> Comparisons:
    """A padded table, and a scaled one whose angles are float32 products: off by about 1e-7 a token."""
    golden, dim = load(name), config(name)["dim"]
    rows = [row for row in range(16) if row != 1]  # fairseq zeroes the row of the padding index
    table = Sinusoidal(dim, layout="half", spacing="tensor2tensor").encode(torch.arange(16), torch.float64)
    yield table[rows], golden["half_t2t_padded"][rows], 1e-9
    at = golden["positions_f32"]
    off = Sinusoidal(dim, layout="half").encode(at) * dim**-0.5 - golden["xt_scaled_f32"]
    yield off / (1e-6 + 2e-7 * at[:, None]), torch.zeros_like(off), 1.0


def both(encoding: SinusoidalGrid, at: Tensor, expected: Tensor, tolerance: float) -> Comparisons:
    """In float64, and in float32, which must equal it."""
    wide = encoding.encode(at, torch.float64)
    yield wide, expected, tolerance
    yield encoding.encode(at), wide, 3e-7


ROUNDED = 2e-6  # for files of float32; MAE's are of float64


def mae(name: str) -> Comparisons:
    arrays, meta = load(name, None), config(name)
    if "grid" in arrays:  # one that is no square
        column, row = arrays["grid"].reshape(2, -1)
        at = torch.stack([row, column], -1)
        assert torch.equal(at, grid(meta["h"], meta["w"]).float())
    else:
        at = grid(meta["grid"], meta["grid"])
        at = torch.cat([torch.tensor([[NO_POSITION, 0]]), at]) if meta["cls"] else at
    yield from both(SinusoidalGrid(meta["dim"]), at, arrays["emb64"], 1e-12)


def simplevit(name: str) -> Comparisons:
    arrays, meta = load(name), config(name)
    encoding = SinusoidalGrid(meta["dim"], family="simplevit", base=float(meta["temperature"]))
    yield from both(encoding, grid(meta["h"], meta["w"]), arrays["emb"], ROUNDED)


def timm(name: str) -> Comparisons:
    arrays, meta = load(name), config(name)
    encoding = SinusoidalGrid(meta["dim"], family="timm", base=float(meta["temperature"]))
    yield from both(encoding, grid(*meta["feat_shape"]), arrays["emb"], ROUNDED)


def timm_by_axis(name: str) -> Comparisons:
    """MAE's with its halves swapped: reversed, their tokens go down the columns, and columns come first."""
    arrays, meta = load(name), config(name)
    height, width = meta["feat_shape"]
    expected = arrays["emb"].roll(-(meta["dim"] // 2), -1)
    yield from both(SinusoidalGrid(meta["dim"]), grid(width, height), expected, ROUNDED)


def positional_encodings(name: str) -> Comparisons:
    arrays, meta = load(name), config(name)
    shape, channels = meta["shape"], meta["channels"]
    encoding = SinusoidalGrid(channels, axes=len(shape), family="interleaved")
    at = grid(*shape) if len(shape) > 1 else torch.arange(*shape)
    yield from both(encoding, at, arrays["emb"].reshape(-1, channels), ROUNDED)


def perceiver(name: str) -> Comparisons:
    arrays, meta = load(name), config(name)
    sizes, axes, expected = meta["sizes"], len(meta["sizes"]), arrays["features"]
    encoding = SinusoidalGrid(expected.shape[-1], axes=axes, family="perceiver", resolution=meta["resolution"])
    at = signed(grid(*sizes).double(), sizes, corners=True)
    yield from both(encoding, at.squeeze(-1) if axes == 1 else at, expected, 1e-5)  # their angles are of float32


def sam(name: str) -> Comparisons:
    """The embedding of its picture, and of points in pixels of a picture of 64 × 64, whose centres are meant."""
    arrays = load(name)
    features = RandomFourier(16).double().from_official(arrays["positional_embedding"])
    places = signed(grid(3, 5).double(), (3, 5))
    picture = features.encode(places, torch.float64)
    yield picture, arrays["picture"].flatten(0, 1), 1e-12
    points = signed(arrays["points"].flip(-1), (64, 64))  # x, y there; row, column here
    yield features.encode(points, torch.float64), arrays["embedded"], 1e-12
    x = torch.randn(1, 15, 16, dtype=torch.float64)
    yield features(x, places), x + picture, 1e-12


RESIZED = {
    "deit_hf_bicubic": {},
    "timm_noantialias": {},
    "timm_antialias": {"antialias": True},
    "dinov2_offset0_antialias": {"antialias": True},
    "dinov2_offset0.1": {"offset": 0.1},
}


def stretched(old: list[int], new: list[int], offset: float = 0.0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Coordinates, in patches of an old grid, of the patches of a new one over the same image, behind a class token."""
    places = aligned(grid(*new).to(dtype), new, old, offset=offset)
    return torch.cat([torch.tensor([[NO_POSITION] + [0] * (len(old) - 1)]), places])


def resized(name: str) -> Comparisons:
    """DeiT's, MAE's, transformers' and timm's tables, and DINOv2's, whose factor (m + 0.1) / n no size can give."""
    arrays, meta = load(name, None), config(name)
    table, old, new, close = arrays["table"], [meta["grid"]] * 2, meta["new"], meta["tol"]
    for array, options in RESIZED.items():
        got = resize_grid(table, tuple(old), new, prefix=1, **options)
        yield got, arrays[array], close
        assert torch.equal(got[0, 0], table[0, 0]), "the class token's row stays"
        yield resize_grid(table[0].double(), tuple(old), new, prefix=1, **options), arrays[array][0], close
    encoding = LearnedGrid.from_table(table)
    for array, offset in (("deit_hf_bicubic", 0.0), ("dinov2_offset0.1", 0.1)):
        yield encoding.encode(stretched(old, new, offset, torch.float32)), arrays[array][0], close
        wide = encoding.encode(stretched(old, new, offset))
        assert wide.dtype == torch.float64
        yield wide, arrays[array][0], close
        yield encoding.resized(new, offset=offset).table, arrays[array][0], close


def resized_by_liere(name: str) -> Comparisons:
    """Images and videos."""
    arrays, meta = load(name, None), config(name)
    old, new = ([n // p for n, p in zip(meta[k], meta["patch"], strict=True)] for k in ("model_image", "new_image"))
    mode = "bicubic" if len(old) == 2 else "bilinear"
    encoding, expected = LearnedGrid.from_table(arrays["table"], old, interpolation=mode), arrays["resized"][0]
    yield encoding.encode(stretched(old, new)), expected, meta["tol"]
    larger = encoding.resized(new)
    yield larger.table, expected, meta["tol"]
    assert torch.equal(larger.encode(torch.cat([stretched(old, new)[:1].long(), grid(*new)])), larger.table)


def learned(table: Tensor, max_length: int, **options: object) -> Learned:
    encoding = Learned(table.shape[1], max_length=max_length, **options).to(table.dtype)
    encoding.load_state_dict({"table": table}, strict=False)
    return encoding


def bert(name: str) -> Comparisons:
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 2e-6)):
        golden = load(name, dtype)
        encoding = learned(golden["pos"], 16, layer_norm=float(golden["ln_eps"])).eval()
        encoding.norm.load_state_dict({"weight": golden["ln_w"], "bias": golden["ln_b"]})
        x = golden["word"][golden["input_ids"]] + golden["typ"][golden["token_type_ids"]]
        yield encoding(x, torch.arange(5)), golden["out"], tolerance
        at = torch.tensor([[4, 5, 6, 7, 8], [0, 0, 1, 2, 3]])
        yield encoding(x, at), golden["out_custom_pos"], tolerance


def fairseq(name: str) -> Comparisons:
    """Rows, and a padding row that learns nothing."""
    for dtype in (torch.float64, torch.float32):
        golden = load(name, dtype)
        padding = int(golden["padding_idx"])
        encoding = learned(golden["weight"], int(golden["max_positions"]), offset=padding + 1, padding_idx=padding)
        real = golden["tokens"] != padding
        at = torch.where(real, from_mask(real), -1)
        yield at + encoding.offset, golden["positions"], EXACT
        yield encoding.encode(at), golden["out"], EXACT
        yield encoding.encode(torch.tensor([[5]])), golden["out_incremental"], EXACT
        encoding.encode(at).sum().backward()
        assert not encoding.table.grad[padding].any()
        assert encoding.table.grad[padding + 1].all()


def opt(name: str) -> Comparisons:
    for dtype in (torch.float64, torch.float32):
        golden = load(name, dtype)
        encoding, real = learned(golden["weight"], 10, offset=2), golden["attention_mask"].bool()
        at = torch.where(real, from_mask(real), -1)
        yield encoding.encode(at), golden["out"], EXACT
        yield encoding.encode(at[:, 2:]), golden["out_past2"], EXACT


def abacus(name: str) -> Comparisons:
    """Places of digits in their numbers, also shifted, and the rows at them."""
    golden = load(name)
    ids, digits, expected = golden["input_ids"], golden["digit_tokens"], golden["positions"]
    at = positions.abacus(ids, digits)
    yield at, expected, EXACT
    yield positions.abacus(ids[0].int(), digits.tolist()), expected[0], EXACT
    yield positions.abacus(ids, digits, shift=41), torch.where(expected > 0, expected + 41, 0), EXACT
    authors, x, encoding = nn.Embedding(16, 8), torch.randn(2, 9, 8), Abacus(8, max_length=16)
    encoding.load_state_dict({"table": authors.weight})
    yield encoding(x, at), x + authors(expected), EXACT


test_embeddings = golden_test({
    "sinusoidal_*": sinusoidal,
    "sinusoidal_d*": sinusoidal_of_other_libraries,
    "vision/sincos2d_mae_*": mae,
    "vision/sincos2d_simplevit__*": simplevit,
    "vision/sincos2d_timm__*rev0*": timm,
    "vision/sincos2d_timm__*rev1*": timm_by_axis,
    "vision/sincos?d_pkg__*": positional_encodings,
    "vision/fourier_perceiver__*": perceiver,
    "vision/random_fourier_sam__*": sam,
    "vision/ape_resize__*": resized,
    "vision/ape_resize_liere__*": resized_by_liere,
    "learned_bert_*": bert,
    "learned_fairseq_*": fairseq,
    "learned_opt_*": opt,
    "abacus_positions": abacus,
})  # fmt: skip
