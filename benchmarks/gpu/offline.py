"""Compile the Triton kernels for NVIDIA GPUs without one, and say what each asks for: shared memory, registers, spills.

    python benchmarks/gpu/offline.py                          all kernels, bfloat16, sm_80 and sm_90
    python benchmarks/gpu/offline.py --arch 80 86 89 90 100 120 --widths 64 128 --dtypes bf16 fp32
    python benchmarks/gpu/offline.py --kernels walk           kernels with one of these words in their name
    python benchmarks/gpu/offline.py --check                  exit 1 where a kernel breaks a rule unannounced

It needs any build of torch, and triton, whose wheel has NVIDIA's assembler.

The library's own operators run on small CPU tensors while every launch is caught before it happens. A caught launch has
the arguments from which Triton derives types and specialisations (16-byte alignment, numbers divisible by 16, ones as
constants); the same are given to `triton.compile` for another target. Without them the code is another one: loads of
two bytes, no asynchronous copies.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

os.environ.pop("TRITON_INTERPRET", None)

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from posenc.backends.triton import counts, decode, launch, rotation, slots, softmax, sticks
from posenc.backends.triton.launch import KernelVisibility, Slots, Terms
from posenc.backends.triton.terms import kerple_row, log_gates
from posenc.dropout import Dropout
from posenc.structure import Counts, DistanceNetwork, Sticks

HERE = Path(__file__).resolve().parent
# Bytes of shared memory that a block may have.
SHARED = {80: 166_912, 86: 101_376, 89: 101_376, 90: 232_448, 100: 232_448, 120: 101_376}
SPILLED = 64  # bytes a thread
SPILLED_OF_KEYS = 256  # of the keys' gradient at 128 channels, whose two sums fill the registers
WALKS = ("forward", "queries_backward", "keys_backward", "row_backward", "walk", "parts")  # over keys, or queries
TYPES = {
    torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32", torch.float64: "fp64", torch.int64: "i64",
    torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "i1",
}  # fmt: skip
DTYPES = {name: dtype for dtype, name in TYPES.items() if dtype.is_floating_point}


class Launch(NamedTuple):
    """One launch as Triton would specialise it."""

    fn: Any
    signature: dict[str, str]
    constants: dict[tuple[int, ...], object]
    attributes: dict[tuple[int, ...], list[list[object]]]
    options: dict[str, int]
    label: str

    @property
    def name(self) -> str:
        return f"{self.fn.__module__.rsplit('.', 1)[-1]}.{self.fn.__name__}"

    @property
    def key(self) -> str:
        return repr((self.name, self.signature, self.constants, self.attributes, self.options))


class Cost(NamedTuple):
    """What a compiled kernel asks for."""

    shared: int
    registers: int
    spilled: int
    units: str
    copies: str
    error: str = ""


def specialised(fn: Any, args: tuple[object, ...], kwargs: dict[str, Any], label: str) -> Launch:
    """What Triton's just-in-time compiler makes of a call's arguments."""
    names = [parameter.name for parameter in fn.params]
    named = ("num_warps", "num_stages", "num_ctas", "maxnreg", "sanitize_overflow")
    options = {name: kwargs[name] for name in named if name in kwargs} | ({"debug": True} if fn.debug else {})
    values = dict(zip(names, args, strict=False)) | {name: kwargs[name] for name in names if name in kwargs}
    signature: dict[str, str] = {}
    constants: dict[tuple[int, ...], object] = {}
    attributes: dict[tuple[int, ...], list[list[object]]] = {}
    for at, parameter in enumerate(fn.params):
        value = values.get(parameter.name, parameter.default)
        value = value.value if isinstance(value, triton.language.constexpr) else value
        aligned = False
        one = type(value) is int and value == 1 and not parameter.do_not_specialize
        if parameter.is_constexpr or value is None or one:
            said = "constexpr"
            constants[(at,)] = value
        elif isinstance(value, Tensor):
            said, aligned = "*" + TYPES[value.dtype], value.data_ptr() % 16 == 0
        elif isinstance(value, bool):
            said = "i1"
        elif isinstance(value, int):
            said = "i32" if -(2**31) <= value < 2**31 else "i64"
            aligned = value % 16 == 0 and not parameter.do_not_specialize
        elif isinstance(value, float):
            said = "fp32"
        else:
            raise TypeError(f"{fn.__name__}: argument {parameter.name} is a {type(value).__name__}")
        signature[parameter.name] = said
        if aligned:
            attributes[(at,)] = [["tt.divisibility", 16]]
    return Launch(fn, signature, constants, attributes, options, label)


@contextmanager
def caught(into: list[Launch], label: Callable[[], str]) -> Iterator[None]:
    """Within this context nothing is launched; each launch is written down."""
    before = JITFunction.run

    def run(self: Any, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any) -> None:
        into.append(specialised(self, args, kwargs, label()))

    JITFunction.run = run
    try:
        yield
    finally:
        JITFunction.run = before


def launches(widths: list[int], dtypes: list[torch.dtype], arch: int, *, variants: bool) -> list[Launch]:
    """Each launch of rotation, softmax, stick-breaking and counts, forward and backward, once, as a target has it."""
    launch.shared_memory = lambda device: SHARED[arch]
    found: list[Launch] = []
    now = ""
    kinds = {"causal": KernelVisibility(True, 0, None, None)}
    if variants:
        ids = torch.zeros(1, 256, dtype=torch.int64)
        kinds["window and documents"] = KernelVisibility(True, 96, ids, ids)
    with caught(found, lambda: now):
        for dtype in dtypes:
            for width in widths:
                shapes = ((1, 4, 256, width), (1, 2, 256, width), (1, 2, 256, width))
                q, k, v = (torch.zeros(shape, dtype=dtype).requires_grad_() for shape in shapes)
                table = torch.zeros(width, 64, requires_grad=True)
                for said, visibility in kinds.items():
                    for mode, (terms, options) in modes(width, dtype, variants=variants).items():
                        now = f"{mode}, {TYPES[dtype]}, {width} channels, {said}"
                        out = softmax.attend_softmax(q, k, v, terms, width**-0.5, visibility, **options)
                        learned = [q, k, v, *(t for t in terms.learned if t.requires_grad)]
                        torch.autograd.grad(out.float().sum(), learned)
                    for mode, (terms, options) in few(width).items():
                        now = f"{mode}, {TYPES[dtype]}, {width} channels, {said}"
                        plain = q[:, :, :1].detach(), k.detach(), v.detach(), terms, width**-0.5, True
                        options["seen"] = torch.ones(1, 256, dtype=torch.bool)
                        decode.attend_few(*plain, visibility.window, **options)
                        now += ", slots"
                        decode.attend_few(*plain, visibility.window, slots=of_slots(visibility.window), **options)
                    if width > launch.WIDEST:
                        continue
                    now = f"{TYPES[dtype]}, {width} channels, {said}"
                    out = sticks.attend_sticks(q, k, v, Sticks(True, "drop"), width**-0.5, visibility)
                    torch.autograd.grad(out.float().sum(), [q, k, v])
                    out = counts.attend_counts(q, k, v, Counts(table, width**-0.5), width**-0.5, visibility)
                    torch.autograd.grad(out.float().sum(), [q, k, v, table])
                for layout in ("half", "interleaved"):
                    now = f"{TYPES[dtype]}, {width} channels, {layout}"
                    cos = torch.zeros(256, width // 2)
                    rotation.rotate_queries_and_keys(q.detach(), k.detach(), cos, cos, layout)
                    tensors, state = [t.detach()[:, :, :1] for t in (q, k, v)], torch.zeros(1, 4, 1)
                    token = slots.Newest(
                        *tensors[1:], torch.zeros(1, 1).long(), None, state, (cos[:1], cos[:1]), layout
                    )
                    kept = k.detach().clone(), v.detach().clone(), torch.zeros(1, 4, 256)
                    slots.append(tensors[0], token, of_slots(0), *kept)
            now = TYPES[dtype]
            log_gates(torch.zeros(1, 1, 2048, dtype=dtype), torch.zeros(4, 2048, dtype=dtype), None)
        for kind in ("log", "power", "bam"):
            now = kind
            p, a = (torch.ones(4, requires_grad=True) for _ in "pa")
            kerple_row(p, a, None, torch.arange(256), kind, 0.01, 1e-5).sum().backward()
    return list({each.key: each for each in found}.values())


def of_slots(window: int) -> Slots:
    """Of a cache for 256 tokens."""
    counts, real = torch.zeros(2, dtype=torch.int64), torch.ones(1, 256, dtype=torch.bool)
    return Slots(counts, real, torch.zeros(1, 256, dtype=torch.int64), counts[0].clone(), window)


def modes(width: int, dtype: torch.dtype, *, variants: bool) -> dict[str, tuple[Terms, dict[str, Any]]]:
    """What the softmax kernels add to the logits, by name, for 4 heads, 256 queries and keys."""
    row = torch.zeros(4, 511, requires_grad=True)
    gates = torch.zeros(1, 4, 256, requires_grad=True)
    network = [torch.zeros(shape, requires_grad=True) for shape in ((1,), (1,), (32,), (32,), (4, 32), (4,))]
    slopes = torch.zeros(4)
    found: dict[str, tuple[Terms, dict[str, Any]]] = {
        "row": (Terms(row=row), {}),
        "slopes": (Terms(slopes=slopes), {}),
        "gates": (Terms(gates=gates), {}),
        "network": (Terms(network=DistanceNetwork(*network, 512.0, 1e-6, 0.0)), {}),
    }
    if variants:
        seed = torch.zeros(2, dtype=torch.int32)
        sink = torch.zeros(4, requires_grad=True)
        found["nothing"] = Terms(), {}
        found["sink, softcap and dropout"] = Terms(sink=sink), {"softcap": 50.0, "dropout": Dropout(0.1, seed)}
    return found


def few(width: int) -> dict[str, tuple[Terms, dict[str, Any]]]:
    """The same of one query, sticks and counts among them."""
    index = torch.zeros(256, dtype=torch.int32)
    network = [torch.zeros(shape) for shape in ((1,), (1,), (32,), (32,), (4, 32), (4,))]
    found = {
        "one query, row": Terms(row=torch.zeros(4, 256)),
        "one query, table": Terms(row=torch.zeros(4, 32), entries=index),
        "one query, slopes": Terms(slopes=torch.zeros(4)),
        "one query, gates": Terms(gates=torch.zeros(1, 4, 256)),
        "one query, network": Terms(network=DistanceNetwork(*network, 512.0, 1e-6, 0.0)),
    }
    return {name: (terms, {}) for name, terms in found.items()} | {
        "one query, sticks": (Terms(), {"sticks": Sticks(True, "drop")}),
        "one query, counts": (Terms(), {"counts": Counts(torch.zeros(width, 64), width**-0.5)}),
    }


def cost(launch: Launch, arch: int) -> Cost:
    """A kernel compiled for a target."""
    source = ASTSource(fn=launch.fn, signature=launch.signature, constexprs=launch.constants, attrs=launch.attributes)
    try:
        kernel = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=launch.options)
    except Exception as error:
        return Cost(0, 0, 0, "", "", f"{type(error).__name__}: {' '.join(str(error).split())[-400:]}")
    ptx = kernel.asm["ptx"]
    said = assembled(ptx, arch)
    registers = max((int(n) for n in re.findall(r"Used (\d+) registers", said)), default=-1)
    spilled = max((int(n) for n in re.findall(r"(\d+) bytes spill stores", said)), default=-1)
    units = {"wgmma": r"wgmma\.mma_async", "tcgen05": r"tcgen05\.mma", "mma": r"\bmma\.sync"}
    copies = {"cp.async": r"cp\.async\.(?:cg|ca)", "tma": r"cp\.async\.bulk\.tensor"}
    error = "" if registers >= 0 else " ".join(said.split())[:200]
    return Cost(kernel.metadata.shared, registers, spilled, counted(units, ptx), counted(copies, ptx), error)


def counted(patterns: dict[str, str], text: str) -> str:
    found = ((name, len(re.findall(pattern, text))) for name, pattern in patterns.items())
    return ", ".join(f"{n} {name}" for name, n in found if n) or "none"


def assembled(ptx: str, arch: int) -> str:
    """What NVIDIA's assembler says of a kernel's registers and spills."""
    folder = Path(triton.__file__).parent / "backends/nvidia/bin"
    target, said = f"sm_{arch}a" if arch >= 90 else f"sm_{arch}", "no assembler in Triton's wheel"
    # A wheel may have two, of different versions of PTX: the first that takes the kernel.
    for program in sorted(folder.glob("ptxas*"), reverse=arch >= 100):
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "kernel.ptx"
            path.write_text(ptx)
            command = [program, "-v", "--gpu-name", target, path, "-o", f"{scratch}/out"]
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        said = done.stderr + done.stdout
        if "registers" in said:
            break
    return said


def faults(launch: Launch, got: Cost, arch: int) -> list[str]:
    """Rules that a kernel breaks."""
    found = [got.error] if got.error else []
    wide = launch.name == "softmax_kernels.keys_backward" and "128 channels" in launch.label
    if got.spilled > (SPILLED_OF_KEYS if wide else SPILLED):
        found.append(f"spills {got.spilled} bytes")
    if got.shared > SHARED[arch]:
        found.append(f"{got.shared} bytes of shared memory, the device has {SHARED[arch]}")
    narrow = any(said in ("*bf16", "*fp16") for said in launch.signature.values())
    tiles = [
        value
        for (at,), value in launch.constants.items()
        if launch.fn.params[at].name in ("ROWS", "COLUMNS", "BM", "BN") and isinstance(value, int)
    ]
    if launch.name.rsplit(".", 1)[-1] in WALKS and got.copies == "none" and not got.error:
        found.append("no asynchronous copies")
    # wgmma takes 64 rows: a kernel of smaller tiles (one that decodes) cannot use it
    if arch == 90 and narrow and min(tiles, default=64) >= 64 and "mma" in got.units and "wgmma" not in got.units:
        found.append("mma.sync instead of wgmma: half the rate at best")
    return found


def rendered(path: Path) -> str:
    """Records as a page: for each kernel the worst of its calls on each target, and what breaks a rule, with why."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    reasons = announced()
    out = ["# Triton kernels, compiled without a GPU", ""]
    ways = sorted({record["versions"] for record in records})
    widths = sorted({int(n) for record in records for n in re.findall(r"(\d+) channels", record["call"])})
    said_widths = " ".join(map(str, widths))
    command = f"python benchmarks/gpu/offline.py --arch … --widths {said_widths} --json FILE"
    out.append(f"- command: `{command}`, then `--render FILE`")
    for way in ways:
        of_way = [record for record in records if record["versions"] == way]
        broken = sum(bool(record["breaks"]) for record in of_way)
        targets = ", ".join(sorted({record["arch"] for record in of_way}, key=lambda arch: int(arch[3:])))
        out.append(f"- {way}: {len(of_way)} kernels for {targets}; {broken} break a rule")
    out += [
        f"- no card ran. Rules: within the device's shared memory; at most {SPILLED} bytes spilled a thread "
        f"({SPILLED_OF_KEYS} in the keys' gradient at 128 channels); wgmma on sm_90 for tiles of 64 rows; "
        "asynchronous copies in loops over keys",
        f"- bfloat16, heads of {said_widths} channels; of each kernel the largest numbers of its calls", "",
    ]  # fmt: skip
    for way in ways:
        targets = sorted({r["arch"] for r in records if r["versions"] == way}, key=lambda arch: int(arch[3:]))
        out += [f"## {way}", "", f"| kernel: KiB shared, registers, bytes spilled | {' | '.join(targets)} |"]
        out.append("|---|" + "---|" * len(targets))
        for name in dict.fromkeys(r["kernel"] for r in records if r["versions"] == way):
            cells = [name]
            for arch in targets:
                those = [r for r in records if (r["versions"], r["kernel"], r["arch"]) == (way, name, arch)]
                most = [max(r[of] for r in those) for of in ("shared", "registers", "spilled")] if those else []
                cells.append(f"{most[0] / 1024:.0f}, {most[1]}, {most[2]}" if most else "-")
            out.append(f"| {' | '.join(cells)} |")
        out.append("")
    out += ["## What breaks a rule", "", "| kernel | target | calls | breaks | why |", "|---|---|---|---|---|"]
    broken_rules: dict[tuple[str, str], list[Any]] = {}
    for record in records:
        for rule in record["breaks"]:
            key = record["kernel"], re.sub(r"\d+ bytes$", "", re.sub(r"spills \d+ bytes", "spills", rule))
            broken_rules.setdefault(key, []).append((record, rule))
    for (name, rule), those in broken_rules.items():
        numbers = [int(found[0]) for _, said in those if (found := re.findall(r"spills (\d+)", said))]
        said = f"{rule} {min(numbers)} to {max(numbers)} bytes" if numbers else rule
        targets = ", ".join(sorted({record["arch"] for record, _ in those}, key=lambda arch: int(arch[3:])))
        out.append(f"| {name} | {targets} | {len(those)} | {said} | {reasons.get(name, '')} |")
    return "\n".join(out) + "\n"


def announced() -> dict[str, str]:
    """Kernels that break a rule, and why, as goals.toml lists them."""
    found: dict[str, str] = tomllib.loads((HERE / "goals.toml").read_text()).get("kernels_that_break_a_rule", {})
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", nargs="+", type=int, default=[80, 90], choices=sorted(SHARED))
    parser.add_argument("--dtypes", nargs="+", default=["bf16"], choices=sorted(DTYPES))
    parser.add_argument("--widths", nargs="+", type=int, default=[64, 128])
    parser.add_argument("--variants", action="store_true", help="also windows and documents")
    parser.add_argument("--kernels", nargs="+", default=[], help="kernels with one of these words in their name")
    parser.add_argument("--check", action="store_true", help="exit 1 where a kernel breaks a rule unannounced")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append each kernel as a line")
    parser.add_argument("--render", type=Path, metavar="FILE", help="write results/offline.md from such lines")
    args = parser.parse_args()
    if args.render:
        (HERE.parent / "results/offline.md").write_text(rendered(args.render))
        return 0
    dtypes = [DTYPES[name] for name in args.dtypes]
    found = [(arch, each) for arch in args.arch for each in launches(args.widths, dtypes, arch, variants=args.variants)]
    found = [
        (arch, each) for arch, each in found if not args.kernels or any(word in each.name for word in args.kernels)
    ]
    versions = f"torch {torch.__version__}, triton {triton.__version__}"
    print(f"{versions}, {len(found)} kernels\n")
    columns = ("kernel", "call", "warps", "stages", "arch", "shared, bytes", "registers", "spilled, bytes")
    columns += ("matrix units", "copies", "breaks")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)
    broken, new, known = 0, [], announced()
    for arch, each in found:
        got = cost(each, arch)
        wrong = faults(each, got, arch)
        broken += bool(wrong)
        if wrong and each.name not in known:
            new.append(f"{each.name} on sm_{arch}, {each.label}: {'; '.join(wrong)}")
        options = [each.options.get("num_warps", 4), each.options.get("num_stages", 3)]
        cells = [each.name, each.label, *options, f"sm_{arch}", *got[:5], "; ".join(wrong) or "-"]
        print(f"| {' | '.join(map(str, cells))} |", flush=True)
        if args.json:
            record = {"versions": versions, "kernel": each.name, "call": each.label, "arch": f"sm_{arch}"}
            with args.json.open("a") as file:
                file.write(json.dumps(record | got._asdict() | {"breaks": wrong}) + "\n")
    print(f"\n{broken} of {len(found)} break a rule", *new, sep="\n")
    return int(args.check and bool(new))


if __name__ == "__main__":
    sys.exit(main())
