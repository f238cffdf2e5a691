"""What rotating queries and keys of image and video models costs, against diffusers' own functions in one process.

    python benchmarks/pictures.py --write pictures

Queries and keys are laid out as these models have them, (1, tokens, heads, 128). FLUX.1 and Qwen-Image: a picture of
1,024 x 1,024 pixels, which is 64 x 64 latent patches, and 512 tokens of text, 24 heads. Wan 2.1 1.3B: 17 frames of
480 x 832, which are 5 x 30 x 52 latent patches, 12 heads. Cosmos: a picture of 64 x 64 patches, 16 heads.

- rotation: one layer's queries and keys, with tables at hand. diffusers: the function that the model's attention calls.
- tables: what a model computes once for a call and all its layers share. diffusers: the model's module of positions;
  Qwen-Image's keeps the picture's table from one call to the next.

Ratios are posenc's time over diffusers' in the same round: medians with their intervals. Memory is the peak of the
tensors that one call makes. Every result is compared with diffusers' first.
"""

from __future__ import annotations

import argparse
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from measuring import header, interleaved, store, tensors_peak
from timing import relative
from torch import Tensor

from posenc.diffusion import preset
from posenc.positions import Image, Text, Video
from posenc.rotary import AxialRoPE

WIDTH = 128
GOAL = 1.05
TOLERANCE = {torch.float32: 2e-4, torch.bfloat16: 0.07}  # their float32 angles; two roundings to bfloat16
Heads = list[Tensor]  # (1, tokens, heads, width) of each stream


class Model(NamedTuple):
    """One model's rotation: its own and posenc's, of the same queries or keys.

    Attributes:
        heads: of queries and keys.
        tokens: of each stream that the model rotates by itself, such as picture and text of Qwen-Image.
        tables, rotate: diffusers' own: tables, and one tensor of each stream rotated by them.
        rope, positions: posenc's.
    """

    heads: int
    tokens: tuple[int, ...]
    tables: Callable[[], Any]
    rotate: Callable[[Heads, Any], Heads]
    rope: AxialRoPE
    positions: Tensor


def flux() -> Model:
    from diffusers.models.embeddings import apply_rotary_emb
    from diffusers.models.transformers.transformer_flux import FluxPosEmbed

    rope, positions = preset("flux-1", [Text(512), Image(64, 64)])
    module, ids = FluxPosEmbed(10_000, [16, 56, 56]), positions.float()
    return Model(
        24, (4608,), lambda: module(ids), lambda x, t: [apply_rotary_emb(x[0], t, sequence_dim=1)], rope, positions
    )


def qwen_image() -> Model:
    from diffusers.models.transformers.transformer_qwenimage import QwenEmbedRope, apply_rotary_emb_qwen

    rope, positions = preset("qwen-image", [Image(64, 64), Text(512)])
    module = QwenEmbedRope(10_000, [16, 56, 56], scale_rope=True)

    def tables() -> Any:
        return module([[(1, 64, 64)]], max_txt_seq_len=512, device=torch.device("cpu"))

    def rotate(x: Heads, waves: Any) -> Heads:
        return [apply_rotary_emb_qwen(part, wave, use_real=False) for part, wave in zip(x, waves, strict=True)]

    return Model(24, (4096, 512), tables, rotate, rope, positions)


def wan() -> Model:
    from diffusers.models.transformers.transformer_wan import WanAttnProcessor, WanRotaryPosEmbed

    rope, positions = preset("wan", [Video(5, 30, 52)])
    module, latent = WanRotaryPosEmbed(WIDTH, (1, 2, 2), 1024), torch.zeros(1, 16, 5, 60, 104)
    apply = _function_inside(WanAttnProcessor.__call__, "apply_rotary_emb")
    return Model(12, (7800,), lambda: module(latent), lambda x, t: [apply(x[0], *t)], rope, positions)


def cosmos() -> Model:
    from diffusers.models.embeddings import apply_rotary_emb
    from diffusers.models.transformers.transformer_cosmos import CosmosRotaryPosEmbed

    rope, positions = preset("cosmos", [Video(1, 64, 64)])
    module, latent = CosmosRotaryPosEmbed(WIDTH, rope_scale=(2.0, 1.0, 1.0)), torch.zeros(1, 16, 1, 128, 128)

    def rotate(x: Heads, tables: Any) -> Heads:  # its attention has heads before tokens
        by_head = apply_rotary_emb(x[0].transpose(1, 2), tables, use_real=True, use_real_unbind_dim=-2)
        return [by_head.transpose(1, 2)]

    return Model(16, (4096,), lambda: module(latent), rotate, rope, positions)


MODELS = {"FLUX.1": flux, "Qwen-Image": qwen_image, "Wan 2.1": wan, "Cosmos": cosmos}


def _function_inside(outer: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A function that another one defines for itself and that closes over nothing."""
    code = next(constant for constant in outer.__code__.co_consts if getattr(constant, "co_name", "") == name)
    return types.FunctionType(code, outer.__globals__)


def by_posenc(model: Model, x: Heads, tables: list[Any]) -> Heads:
    return [
        model.rope.rotate(part.transpose(1, 2), table).transpose(1, 2) for part, table in zip(x, tables, strict=True)
    ]


def row(name: str, model: Model, dtype: torch.dtype, rounds: int) -> str:
    """The cells of a model."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(1, tokens, model.heads, WIDTH) for tokens in model.tokens]
    q, k = ([torch.randn(shape, generator=generator).to(dtype) for shape in shapes] for _ in range(2))
    own_tables, cos_sin = model.tables(), model.rope.table(model.positions)
    tables = list(zip(*(part.split(model.tokens) for part in cos_sin), strict=True))
    calls = {
        "diffusers": lambda: [model.rotate(x, own_tables) for x in (q, k)],
        "posenc": lambda: [by_posenc(model, x, tables) for x in (q, k)],
    }
    with torch.no_grad():
        pairs = [zip(*both, strict=True) for both in zip(*(run() for run in calls.values()), strict=True)]
        error = max(float((first.double() - second.double()).abs().max()) for pair in pairs for first, second in pair)
        if error > TOLERANCE[dtype]:
            raise SystemExit(f"{name}: posenc and diffusers differ by {error}: no timing")
        seconds = interleaved(calls, rounds)
        memory = {of: tensors_peak(run) for of, run in calls.items()}
        of_tables = interleaved(
            {"diffusers": model.tables, "posenc": lambda: model.rope.table(model.positions)}, rounds
        )
    taken = relative(dict(enumerate(seconds["posenc"])), dict(enumerate(seconds["diffusers"])))
    shortest, once = ({of: 1e3 * min(times) for of, times in each.items()} for each in (seconds, of_tables))
    cells = [
        name,
        f"{sum(model.tokens):,} x {model.heads}",
        f"{taken.median:.2f}",
        f"{taken.low:.2f} to {taken.high:.2f}",
        f"{memory['posenc'] / memory['diffusers']:.2f}",
        f"{shortest['diffusers']:.0f}, {shortest['posenc']:.0f}",
        f"{memory['diffusers']:.0f}, {memory['posenc']:.0f}",
        f"{error:.1e}",
        f"{once['diffusers']:.1f}, {once['posenc']:.1f}",
    ]
    return f"| {' | '.join(cells)} |\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"], choices=["float32", "bfloat16"])
    parser.add_argument("--write", metavar="NAME", help="store the tables as results/NAME.md")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    text = header("Rotating queries and keys of image and video models, against diffusers", ["diffusers"])
    text += (
        "\nposenc over diffusers, in one process and in alternating order; goal of rotation: at most "
        f"{GOAL} in time and memory.\n"
    )
    for dtype in args.dtypes:
        text += (
            f"\n## {dtype}\n\n"
            "| | tokens x heads | rotation, time × | interval | memory × | shortest ms (diffusers, posenc) "
            "| MiB (diffusers, posenc) | largest difference | tables, shortest ms |\n" + "|---" * 9 + "|\n"
        )
        for name in args.models:
            text += row(name, MODELS[name](), getattr(torch, dtype), args.rounds)
    print(text)
    if args.write:
        store(text, args.write)


if __name__ == "__main__":
    main()
