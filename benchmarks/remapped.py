"""What remapped distances cost: several rotations of the same queries and keys, joined, compared with one rotation.

    python benchmarks/remapped.py --write remapped

The base is `attention` under RoPE alone, one rotation and the kernel's causal flag. Windows and chunks are of a
model trained at a quarter of the length. Rows "padding in front" and "packed documents" have a mask a block of queries;
with several rows the baseline is RoPE with the same padding or documents. A decoding step has keys that were cached as
they were, and rotates them all in each range, where RoPE's keys were cached rotated: the base of a step attends alone.
Memory is what tensors hold at the most, besides q, k and v, at a length and at twice that.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import partial

import torch
from measuring import Measured, header, paired, random_qkv, store, tensors_peak
from torch import Tensor

from posenc import Encoding, RoPE
from posenc import attention as attend
from posenc.score import STRING, DualChunk, LeakyReRoPE, LMInfinite, ReRoPE, SelfExtend, StreamingLLM

Call = Callable[..., Tensor]


def rows(width: int, trained: int) -> dict[str, list[Encoding]]:
    """Each method as it stands in its paper for a model of this trained length."""
    rope = RoPE(width)
    return {
        "RoPE, one rotation": [rope],
        "Self-Extend": [SelfExtend(rope, window=trained // 2, group=8)],
        "ReRoPE": [ReRoPE(rope, window=trained // 2)],
        "leaky ReRoPE": [LeakyReRoPE(rope, window=trained // 2, factor=8)],
        "STRING": [STRING(rope, shift=trained // 3, local=trained // 32)],
        "dual chunks (3 ranges)": [DualChunk(rope, size=trained * 3 // 4, local=trained // 8)],
        "LM-Infinite": [LMInfinite(rope, window=trained, sinks=10)],
        "StreamingLLM": [StreamingLLM(rope, window=trained - 4, sinks=4)],
    }


def trained_step(q: Tensor, k: Tensor, v: Tensor, encodings: list[Encoding]) -> object:
    q, k, v = (t.detach().requires_grad_() for t in (q, k, v))
    return torch.autograd.grad(attend(q, k, v, encodings).sum(), (q, k, v))


def lines(title: str, measured: Mapping[str, Measured], memory: Mapping[str, str]) -> str:
    text = [f"\n## {title}\n", "| | × base | ms | MiB at length, at twice that |", "|---|---|---|---|"]
    text += [f"| {n} | {m.ratio:.2f} | {m.seconds * 1e3:.1f} | {memory.get(n, '–')} |" for n, m in measured.items()]
    print("\n".join(text), flush=True)
    return "\n".join(text) + "\n"


def peaks(length: int, shape: tuple[int, int, int], call: Callable[[Tensor, Tensor, Tensor], object]) -> str:
    heads, num_kv_heads, width = shape
    sizes = ((1, heads, n, width) for n in (length, 2 * length))
    tensors = (random_qkv(size, (1, num_kv_heads, size[2], width)) for size in sizes)
    return ", ".join(f"{tensors_peak(partial(call, *qkv)):.0f}" for qkv in tensors)


def tables(args: argparse.Namespace) -> str:
    shape, length = (args.heads, args.num_kv_heads, args.width), args.length
    q, k, v = random_qkv((1, args.heads, length, args.width), (1, args.num_kv_heads, length, args.width))
    methods, base = rows(args.width, length // 4), "RoPE, one rotation"
    setting = f"{length} tokens, {args.heads} query and {args.num_kv_heads} key heads of width {args.width}, float32"
    text = ""
    with torch.no_grad():
        forward = {name: partial(attend, q, k, v, encodings) for name, encodings in methods.items()}
        memory = {
            name: peaks(length, shape, lambda q, k, v, e=encodings: attend(q, k, v, e))  # type: ignore[misc]
            for name, encodings in methods.items()
        }
        text += lines(f"Forward, {setting}", paired(forward, forward[base], args.rounds), memory)
    backward = {name: partial(trained_step, q, k, v, encodings) for name, encodings in methods.items()}
    text += lines(f"Forward and backward, {setting}", paired(backward, backward[base], args.rounds), {})
    hidden = (torch.arange(length) >= length // 8)[None, None]
    packed = torch.arange(length) // (length // 4)
    for what, options in (("padding in front", {"mask": hidden}), ("four packed documents", {"segments": packed})):
        with torch.no_grad():
            masked = {name: partial(attend, q, k, v, methods[name], **options) for name in (base, "Self-Extend")}  # type: ignore[arg-type]
            text += lines(f"Forward, {what}, {setting}", paired(masked, masked[base], args.rounds), {})
    with torch.no_grad():
        last = q[:, :, -1:]
        step = {"attention alone": partial(attend, last, k, v, [])}
        step |= {name: partial(attend, last, k, v, encodings) for name, encodings in methods.items()}
        measured = paired(step, step["attention alone"], 10 * args.rounds)
        return text + lines(f"A decoding step with keys as they were, {setting}", measured, {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--num-kv-heads", type=int, default=8)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--write", metavar="NAME", help="store the tables as results/NAME.md")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    text = header("Several rotations of the same queries and keys, against one") + tables(args)
    if args.write:
        store(text, args.write)


if __name__ == "__main__":
    main()
