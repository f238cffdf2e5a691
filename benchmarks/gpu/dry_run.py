"""What a call of posenc asks of an NVIDIA GPU, on a machine without one: launches, waits, host time, memory.

    python benchmarks/gpu/dry_run.py                        all rows (dry_rows.py), each against its goal (goals.toml)
    python benchmarks/gpu/dry_run.py --rows ALiBi step      rows whose name has one of these words
    python benchmarks/gpu/dry_run.py --sm 89 --flash        as on an L4, and SDPA without cuDNN
    python benchmarks/gpu/dry_run.py --verbose --rows "one query, ALiBi"      every launch by name
    python benchmarks/gpu/dry_run.py --check                exit 1 where a row misses a goal that it is to meet
    python benchmarks/gpu/dry_run.py --json rows.jsonl      append each row as a line, but those that are there
    python benchmarks/gpu/dry_run.py --render rows.jsonl    those lines as results/launches.md, against their goals

It needs Linux, g++ and PyTorch's CUDA build (`pip install torch==2.14.1`: 5.5 GB; no GPU, no driver). The null device
(null_device/) is preloaded in front of CUDA's libraries and does nothing but count: dispatch, SDPA's choice, autograd,
the allocator, torch.compile, Triton's compiler and launcher and the capture of graphs are PyTorch's own; kernels are
not run, so that results and the device's time are not to be had. README.md says what can be told from it.

Columns
    launches   kernels given to the device by one call in its steady state; a call of cuBLAS or cuDNN is one
    copies     copies on the device
    waits      times that the host waits for the device: .item(), bool(tensor), torch.tensor(list, device="cuda")
    plans      cuDNN graphs planned anew: 20 to 40 ms of host time each on a H200
    mallocs    cudaMalloc in the steady state
    host, us   median time of the call: the least it can take on a GPU, whose own driver adds 2 to 4 us a launch
    x SDPA     the same for plain scaled_dot_product_attention in the same process
    of SDPA    its launches, which are what this card's kernel takes: cuDNN's backward is one, FlashAttention's five
    peak, MiB  by PyTorch's allocator, beyond the inputs
    graph      whether torch.cuda.graph captures the call
Records, and launches.md, also have the bytes and FLOPs of each launch of a Triton kernel (work.py).
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import gc
import importlib
import json
import multiprocessing
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
import warnings
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MODELS = (80, 86, 89, 90, 100, 120)
Record = dict[str, Any]
Run = Callable[[], object]


# The null device ------------------------------------------------------------------------------------------------------


def preload(sm: int, flash: bool) -> None:
    """Start this script again with the null device before everything; returns where it is there already."""
    if "libnullcuda" in os.environ.get("LD_PRELOAD", ""):
        return
    if missing := [program for program in ("g++", "gcc", "nm", "c++filt") if shutil.which(program) is None]:
        raise SystemExit(f"not found: {', '.join(missing)} (Debian and Ubuntu: apt install g++)")
    sys.path.insert(0, str(HERE / "null_device"))
    from build import build

    folder = build(Path(os.environ.get("NULL_DEVICE", Path(tempfile.gettempdir()) / f"null-device-{os.getuid()}")))
    libraries = [folder / "libnullcuda.so", *folder.glob("libnvrtc.so.*")]
    environment = os.environ | {
        "LD_PRELOAD": " ".join(map(str, libraries)), "TRITON_LIBCUDA_PATH": str(folder), "OMP_NUM_THREADS": "1",
        "LD_LIBRARY_PATH": f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}", "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "POSENC_KERNELS": "1",  # a check of kernels that compute nothing fails, as it should
        "NULL_DEVICE_SM": str(sm), "TORCH_CUDNN_SDPA_DEPRIORITIZED": str(int(flash)),
    }  # fmt: skip
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)


class Device:
    """What the null device counted."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(None)
        for name in ("null_device_event_name", "null_device_kind_name"):
            getattr(self.library, name).restype = ctypes.c_char_p
        self.kinds = [self.library.null_device_kind_name(i).decode() for i in range(12)]

    def record(self, run: Run) -> tuple[list[tuple[str, str]], int]:
        """The events of one call, as kind and name, and its peak memory in bytes."""
        import torch

        gc.collect()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        self.library.null_device_record(1)
        out = run()
        events = [
            (self.kinds[self.library.null_device_event_kind(i)], self.library.null_device_event_name(i).decode())
            for i in range(self.library.null_device_events())
        ]
        self.library.null_device_record(0)
        peak = torch.cuda.max_memory_allocated() - before
        del out
        return events, peak


def captured(run: Run) -> str:
    """Yes, or why no CUDA graph takes the call."""
    import torch

    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.stream(torch.cuda.Stream()):
            run()
        with torch.cuda.graph(graph):
            run()
    except Exception as error:
        return f"no: {one_line(error)[:90]}"
    return "yes"


def host_time(run: Run, seconds: float = 0.25) -> float:
    """Median seconds of a call."""
    started = time.perf_counter()
    run()
    repeats = max(1, int(0.01 / max(time.perf_counter() - started, 1e-7)))
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or (time.perf_counter() < end and len(times) < 30):
        started = time.perf_counter()
        for _ in range(repeats):
            run()
        times.append((time.perf_counter() - started) / repeats)
    return statistics.median(times)


@functools.cache
def readable(name: str) -> str:
    """A kernel's name without its templates."""
    if not name.startswith("_Z"):
        return name
    said = subprocess.run(["c++filt", name], capture_output=True, text=True, env={"PATH": os.environ["PATH"]}).stdout
    text = re.sub(r"^void |at::native::|\(anonymous namespace\)::", "", said.strip() or name)
    inner = re.findall(r"(\w+_kernel_cuda|\w+_kernel_impl|\w*Functor\w*)", text)
    return re.split(r"[<(]", text)[0] + (f" [{inner[-1]}]" if inner else "")


# Measuring ------------------------------------------------------------------------------------------------------------


def measure(name: str, verbose: bool) -> Record:
    """One row, in this process."""
    from dry_rows import rows
    from work import Work, written_down

    warnings.simplefilter("ignore")
    row, device, work = rows()[name], Device(), list[Work]()
    run = row.make()
    for _ in range(3):
        run()
    with written_down(work):
        events, peak = device.record(run)
    counts = Counter(kind for kind, _ in events)
    launched = [readable(kernel) for kind, kernel in events if kind == "launch"]
    host = host_time(run)
    record: Record = {
        "row": name, "launches": counts["launch"], "copies": counts["d2d"], "waits": counts["sync"],
        "plans": counts["cudnn plan"], "mallocs": counts["malloc"], "host": host, "peak": peak, "sdpa": None,
        "of_sdpa": None,
        "graph": captured(run) if row.graph else "",
        "most": [f"{n} x {kernel}" for kernel, n in Counter(launched).most_common(3)],
        "launched": launched if verbose else [], "work": work, "least": row.least,
    }  # fmt: skip
    if row.peer is not None:
        peer = row.peer()
        for _ in range(3):
            peer()
        record["sdpa"] = host / host_time(peer)
        record["of_sdpa"] = sum(kind == "launch" for kind, _ in device.record(peer)[0])
    if name == "kinds in one process":  # unfused FlexAttention is dozens of kernels, softmax among them
        record["fused"] = not any("softmax" in kernel for kernel in launched)
    record["faults"] = faults(record)
    return record


@functools.cache
def goals() -> dict[str, Any]:
    return tomllib.loads((HERE / "goals.toml").read_text())


def most_launches(record: Record) -> int | None:
    """How many launches the goal of a row allows: its own number, or some more than plain SDPA's on the same card."""
    goal = next((goal for goal in goals()["goal"] if goal["words"] in record["row"]), {})
    allowed, beyond, of_sdpa = goal.get("launches"), goal.get("beyond_sdpa"), record.get("of_sdpa")
    if beyond is not None and of_sdpa is not None:
        return max(allowed or 0, of_sdpa + beyond)
    return allowed


def faults(record: Record) -> list[str]:
    """What a row asks for beyond its goal. Times are no fault."""
    found, most = [], most_launches(record)
    if most is not None and record["launches"] > most:
        found.append(f"{record['launches']} launches, goal {most}")
    found += [f"{record[name]} {name}" for name in ("waits", "plans", "mallocs") if record[name]]
    if record["graph"].startswith("no"):
        found.append("no CUDA graph")
    if record.get("fused") is False:
        found.append("not fused: every score is built")
    return found


def one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def in_a_process(work: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
    """What ``work`` gives in a process of its own, or a record of why it gave nothing.

    Processes are forked: PyTorch is imported once, and what one has compiled, cached or broken is no other's.
    """
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)

    def run() -> None:
        try:
            there.send(work(*arguments))
        except Exception as error:
            there.send({"error": one_line(error)[:200]})
        os._exit(0)  # without the destructors of a device that is not there

    process = context.Process(target=run)
    process.start()
    there.close()  # so that the other end's is the last, and its death is seen
    try:
        result = here.recv() if here.poll(seconds) else {"error": f"longer than {seconds:g} s"}
    except EOFError:
        process.join()
        result = {"error": f"ended with {process.exitcode}"}
    process.kill()
    process.join()
    return result


# The table ------------------------------------------------------------------------------------------------------------

COLUMNS = (
    "row", "launches", "copies", "waits", "plans", "mallocs", "host, us", "x SDPA", "of SDPA", "peak, MiB", "graph",
    "misses", "most launched",
)  # fmt: skip


def line(record: Record) -> str:
    if "error" in record:
        return f"| {record['row']} |" + " |" * (len(COLUMNS) - 3) + f" {record['error']} | |"
    counts = [record[name] for name in ("launches", "copies", "waits", "plans", "mallocs")]
    ratio = "" if record["sdpa"] is None else f"{record['sdpa']:.1f}"
    of_sdpa = "" if record["of_sdpa"] is None else record["of_sdpa"]
    cells = [record["row"], *counts, f"{record['host'] * 1e6:.0f}", ratio, of_sdpa, f"{record['peak'] / 2**20:.1f}"]
    cells += [record["graph"], "; ".join(record["faults"]) or "-", ", ".join(record["most"])]
    return f"| {' | '.join(map(str, cells))} |"


def device_name() -> str:
    import torch

    card = torch.cuda.get_device_properties(0)
    size = f"{card.multi_processor_count} multiprocessors, {card.total_memory >> 30} GiB"
    return f"{card.name}, sm_{card.major}{card.minor}, {size}; torch {torch.__version__}"


def versions() -> str:
    import torch

    of_triton = version("triton")
    return f"torch {torch.__version__}, triton {of_triton}, Python {platform.python_version()}"


def way(args: argparse.Namespace) -> str:
    """What rows are told apart by in records and in goals.toml."""
    return f"sm_{args.sm}" + (", without cuDNN" if args.flash else "")


def announced(name: str) -> set[str]:
    """The rows that goals.toml lists as missing their goal in a way."""
    return {row for row, ways in goals().get("missed", {}).items() if ways == "all" or name in ways}


def unannounced(records: list[Record], name: str) -> list[str]:
    """What goals.toml says otherwise than records of a way, a line a row."""
    missed = {record["row"] for record in records if record.get("faults") or "error" in record}
    met = {record["row"] for record in records} - missed
    found = [f"{row}: misses its goal, and goals.toml does not say so" for row in sorted(missed - announced(name))]
    return found + [f"{row}: meets its goal now" for row in sorted(met & announced(name))]


def judged(record: Record) -> Record:
    """An older record by the goals of now."""
    return record if "error" in record else record | {"faults": faults(record)}


def rendered(path: Path) -> str:
    """Records as a page: the launches of each way, and what misses its goal in any."""
    by_way: dict[str, dict[str, Record]] = {}
    said: dict[str, Record] = {}
    for text in path.read_text().splitlines():
        record = judged(json.loads(text))
        by_way.setdefault(record["way"], {})[record["row"]] = said[record["row"]] = record
    out = ["# Launches of one call on a null device", ""]
    options = {name: name.replace("sm_", "--sm ").replace(", without cuDNN", " --flash") for name in by_way}
    out += [f"- command: `python benchmarks/gpu/dry_run.py {said_so} --json FILE`" for said_so in options.values()]
    out += [f"- {text}" for text in sorted({record["versions"] for record in said.values() if "versions" in record})]
    out += [
        "- no card ran: a device that computes nothing, with the capability, shared memory and multiprocessors of each "
        "card (sm_90: H200, sm_80: A100); kernels serve without their check (POSENC_KERNELS=1); no time is measured",
        "- bfloat16, 16 heads of 128 channels, 4,096 keys, steady state; layers of 32 query and 8 key heads",
        "- goals of training without a term of the logits are what plain SDPA takes on the card, and the rotations: "
        "FlashAttention's backward, of sm_80 and of sm_90 without cuDNN, is five launches or more, cuDNN's is one",
        "- waits for the device, cuDNN's plans and cudaMalloc are 0 where the last column says nothing of them",
        "",
    ]
    met = {name: sum(not (r.get("faults") or "error" in r) for r in rows.values()) for name, rows in by_way.items()}
    out += ["; ".join(f"{name}: {met[name]} of {len(rows)} rows meet their goals" for name, rows in by_way.items()), ""]
    out += [f"| row | {' | '.join(by_way)} | goal | captured | misses |", "|---|" + "---|" * (len(by_way) + 3)]
    for row in said:
        each = [rows.get(row, {}) for rows in by_way.values()]
        counts = [str(record.get("launches", "-")) for record in each]
        goal = " / ".join(dict.fromkeys(str(most_launches(r) or "") for r in each if "launches" in r))
        misses = dict.fromkeys(fault for r in each for fault in ([r["error"]] if "error" in r else r.get("faults", [])))
        captured_as = {record["graph"] for record in each if record.get("graph")}
        cells = [row, *counts, goal, "; ".join(sorted(captured_as)), "; ".join(misses)]
        out.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join([*out, "", *rendered_work(list(next(iter(by_way.values()), {}).values()))]) + "\n"


def rendered_work(records: list[Record]) -> list[str]:
    """Bytes and FLOPs of each launch of our kernels, against the least that the call can take."""
    found = [record for record in records if record.get("least") and any(flops for _, _, flops in record["work"])]
    if not found:
        return []
    out = [
        f"## Bytes and FLOPs ({found[0]['way']})", "",
        "Of all tensors that a launch is given, each once, and of matrix products over whole tiles (work.py). x: over "
        "the least, which reads q, k and v and writes the result once (in training gradients too) and multiplies "
        "visible pairs alone, twice forward and five times backward. Kernels of PyTorch beside them are not counted.",
        "", "| row | MiB | x | GFLOP | x | MiB and GFLOP of each launch |", "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for record in found:
        (bytes_least, flops_least), work = record["least"], record["work"]
        moved, flops = sum(n for _, n, _ in work), sum(n for *_, n in work)
        each = ", ".join(f"{name.rsplit('.', 1)[-1]} {m / 2**20:.1f} {f / 1e9:.1f}" for name, m, f in work)
        cells = [record["row"], f"{moved / 2**20:.1f}", f"{moved / bytes_least:.2f}", f"{flops / 1e9:.2f}"]
        out.append(f"| {' | '.join([*cells, f'{flops / flops_least:.2f}', each])} |")
    return out


def chosen(args: argparse.Namespace) -> list[str]:
    from dry_rows import rows

    return [name for name in rows() if not args.rows or any(word.lower() in name.lower() for word in args.rows)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", default=[], help="rows whose name has one of these words")
    parser.add_argument("--sm", type=int, choices=MODELS, default=90, help="compute capability (default: 90)")
    parser.add_argument("--flash", action="store_true", help="SDPA without cuDNN, as it chooses on other cards")
    parser.add_argument("--verbose", action="store_true", help="every launch by name")
    parser.add_argument("--check", action="store_true", help="exit 1 where a row misses its goal unannounced")
    parser.add_argument("--seconds", type=float, default=400.0, help="for one row, its compilers' work included")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append each row as a line")
    parser.add_argument("--render", type=Path, metavar="FILE", help="write results/launches.md from such lines")
    args = parser.parse_args()
    if args.render:
        (HERE.parent / "results/launches.md").write_text(rendered(args.render))
        return 0
    preload(args.sm, args.flash)
    names, known = chosen(args), list[Record]()
    if args.json and args.json.exists():
        known = [judged(r) for r in map(json.loads, args.json.read_text().splitlines()) if r["way"] == way(args)]
    importlib.import_module("torch._inductor.compile_fx")  # once, before processes are forked

    print(in_a_process(device_name, seconds=args.seconds), "", sep="\n")
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}", flush=True)
    records = [record for record in known if record["row"] in names]
    for name in names:
        if any(record["row"] == name for record in records):
            continue
        result = in_a_process(measure, name, args.verbose, seconds=args.seconds)
        record = {"row": name, "way": way(args), "versions": versions()} | result
        records.append(record)
        print(line(record), *(f"|   {kernel} |" for kernel in record.get("launched", ())), sep="\n", flush=True)
        if args.json:
            with args.json.open("a") as file:
                file.write(json.dumps(record) + "\n")
    met = sum(not (record.get("faults") or "error" in record) for record in records)
    print(f"\n{met} of {len(records)} rows meet their goals")
    found = unannounced(records, way(args))
    print(*found, sep="\n")
    return int(args.check and bool(found))


if __name__ == "__main__":
    raise SystemExit(main())
