"""What posenc costs on one NVIDIA GPU, against copies, PyTorch's own kernels and the authors' kernels.

    python benchmarks/gpu/card.py --seconds 300 --out gpu.jsonl      measures, the most important rows first
    python benchmarks/gpu/card.py --render gpu.jsonl --write gpu     writes results/gpu.md from the records
    python benchmarks/gpu/card.py --dry --out dry.jsonl              walks all rows on CPU, with small tensors

A row (card_rows.py) is compared with its peers by interleaved rounds of CUDA events; a ratio is the median over rounds
of the row's time over the peer's. Before, its result is compared with the definition in float64; a row whose error is
above its tolerance meets no goal. Peak memory is what one call allocates beyond its inputs. Each row is written as
soon as it is measured, and a row that fails, hangs or ends its process is written as such: the rows are measured in a
process of their own, which is started anew. Compilers write to a cache on disk, so that processes which run each row
once, in parallel and before anything is timed, take the compile times out of the sequence; `--warm 0` leaves them out.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).resolve().parents[1]))

from card_rows import DRY, Comparison, Setup, rows
from measuring import header, store
from timing import Run, memory_of, seconds_of, wait_for

Record = dict[str, Any]

LEAST = 5e-3  # seconds that a timing lasts: shorter calls are repeated
ROUNDS, FEWEST, REPEATS = 21, 3, 64
SHARE = 1.5  # seconds of timing that a row may take
WARMING = 90.0  # seconds after which processes that only compile are ended
STARTED = "started"


def event_seconds(run: Run, device: torch.device, repeats: int) -> float:
    """Seconds of a call by the device's clock, mean over ``repeats``; off a GPU by the processor's."""
    if device.type != "cuda":
        return seconds_of(run, device, repeats)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    for _ in range(repeats):
        run()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3 / repeats


def in_rounds(runs: Mapping[str, Run], device: torch.device, calls: int) -> dict[str, list[float]]:
    """Seconds of each in each round, in an order that alternates; all were called before."""
    estimate = {name: event_seconds(run, device, 1) for name, run in runs.items()}
    repeats = {n: calls or min(REPEATS, max(1, math.ceil(LEAST / max(s, 1e-7)))) for n, s in estimate.items()}
    total = sum(estimate[name] * repeats[name] for name in runs)
    rounds = min(11 if calls else ROUNDS, max(FEWEST, int(SHARE / max(total, 1e-7))))
    taken: dict[str, list[float]] = {name: [] for name in runs}
    gc.disable()
    try:
        for turn in range(rounds):
            for name in reversed(tuple(runs)) if turn % 2 else runs:
                taken[name].append(event_seconds(runs[name], device, repeats[name]))
    finally:
        gc.enable()
    return taken


def measured(comparison: Comparison, device: torch.device) -> Record:
    """One row's numbers. A peer that fails is named as such; a failure of posenc's way raises."""
    errors = comparison.check()
    worst = max(errors, key=lambda name: errors[name] if errors[name] == errors[name] else math.inf)
    record: Record = {
        "backend": comparison.backend, "error": errors[worst], "error_of": worst, "tolerance": comparison.tolerance,
        "correct": errors[worst] <= comparison.tolerance,
    }  # fmt: skip
    runs: dict[str, Run] = {"posenc": comparison.run}
    peers: dict[str, Record] = {}
    for name, run in comparison.peers.items():
        if isinstance(run, str):
            peers[name] = {"status": run}
            continue
        try:
            for _ in range(3):
                run()
            wait_for(device)
        except Exception as error:
            peers[name] = {"status": failure(error)}
            wait_for(device)  # raises where the device itself is lost: the process is started anew
        else:
            runs[name], peers[name] = run, {}
    for _ in range(2):
        comparison.run()
    wait_for(device)
    peaks = {name: memory_of(run, device).bytes for name, run in runs.items()}
    seconds = in_rounds(runs, device, comparison.calls)
    times = seconds.pop("posenc")
    record |= {"seconds": statistics.median(times), "rounds": len(times), "peak_bytes": peaks.pop("posenc")}
    if comparison.moved:
        record["bytes_per_second"] = comparison.moved / record["seconds"]
    for name, peer_times in seconds.items():
        ratios = [time / peer_time for time, peer_time in zip(times, peer_times, strict=True)]
        peers[name] = {
            "seconds": statistics.median(peer_times), "ratio": statistics.median(ratios), "peak_bytes": peaks[name]
        }  # fmt: skip
    record["peers"] = peers
    record["goals"] = [
        {"peer": peer, "most": most, "met": record["correct"] and peers[peer].get("ratio", math.inf) <= most}
        for peer, most in comparison.goals.items()
    ]
    return record


def failure(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"failed: {type(error).__name__}: {text[:400]}"


def setup_of(args: argparse.Namespace) -> Setup:
    if args.dry:
        return DRY
    if not torch.cuda.is_available():
        raise SystemExit("this needs an NVIDIA GPU; --dry walks all rows on CPU")
    return Setup(torch.device("cuda"), batch=args.batch, heads=args.heads, width=args.width)


def chosen(args: argparse.Namespace, names: Iterable[str]) -> list[str]:
    words = [word.lower() for word in args.rows]
    return [name for name in names if not words or any(word in name.lower() for word in words)]


def prepare_compilers() -> None:
    """As many compiled forms of FlexAttention as there are terms: PyTorch's limits are for one model."""
    for name in ("recompile_limit", "cache_size_limit", "accumulated_recompile_limit", "accumulated_cache_size_limit"):
        if hasattr(torch._dynamo.config, name):
            setattr(torch._dynamo.config, name, 512)


def work(args: argparse.Namespace) -> None:
    """Measure the rows that have no record yet, until the time is over."""
    prepare_compilers()
    setup, out = setup_of(args), Path(args.out)
    build = rows(setup)
    done = {record["row"] for record in read(out) if "row" in record}
    if not done:
        append(out, {"device": device_name(setup), "header": header("posenc on one GPU", ("triton",))})
    for name in chosen(args, build):
        if name in done:
            continue
        left = args.until - time.time()
        if left < 5:
            append(out, {"row": name, "status": "skipped: the time was over"})
            continue
        append(out, {"row": name, "status": STARTED})
        torch._dynamo.reset()  # the next row's lengths are its first: compiled for them alone
        started = time.time()
        try:
            record = measured(build[name](), setup.device)
        except Exception as error:
            append(out, {"row": name, "status": failure(error), "wall_seconds": round(time.time() - started, 1)})
            wait_for(setup.device)  # raises where the device itself is lost
        else:
            append(out, {"row": name, "status": "measured", "wall_seconds": round(time.time() - started, 1), **record})
        gc.collect()
        if setup.device.type == "cuda":
            torch.cuda.empty_cache()


def warm(args: argparse.Namespace) -> None:
    """Run every n-th row once, so that compilers fill their cache on disk."""
    prepare_compilers()
    setup = setup_of(args)
    build = rows(setup)
    number, of = args.warming
    for name in chosen(args, build)[number::of]:
        torch._dynamo.reset()
        try:
            comparison = build[name]()
            for run in (comparison.run, *comparison.peers.values()):
                if not isinstance(run, str):
                    run()
            wait_for(setup.device)
        except Exception as error:  # it will fail again where it is measured, and be recorded there
            print(f"warming {name}: {failure(error)}", flush=True)
        if setup.device.type == "cuda":
            torch.cuda.empty_cache()


def device_name(setup: Setup) -> str:
    return torch.cuda.get_device_name(setup.device) if setup.device.type == "cuda" else "cpu, dry"


def read(out: Path) -> list[Record]:
    """What was written; a line that was cut off is not read."""
    records = []
    for line in out.read_text().splitlines() if out.exists() else ():
        try:
            records.append(json.loads(line))
        except ValueError:
            continue
    return records


def append(out: Path, record: Record) -> None:
    with out.open("a") as file:
        file.write(json.dumps(record) + "\n")
    if record.get("status") not in (None, STARTED):
        print(line_of(record), flush=True)


def line_of(record: Record) -> str:
    """A row in words, as it is printed while others are measured."""
    if record["status"] != "measured":
        return f"{record['row']}: {record['status']}"
    parts = [f"{record['row']}: {record['seconds'] * 1e3:.4g} ms"]
    parts += [f"{p['ratio']:.2f} x {name}" for name, p in record["peers"].items() if "ratio" in p]
    parts += [f"goal {'met' if goal['met'] else 'MISSED'}" for goal in record["goals"]]
    parts.append(f"error {record['error']:.1e}{'' if record['correct'] else ' ABOVE ITS TOLERANCE'}")
    return ", ".join([*parts, f"backend {record['backend'] or '-'}", f"wall {record['wall_seconds']} s"])


def supervise(command: Sequence[str], out: Path, until: float, row_seconds: float) -> None:
    """Start the process that measures until it comes to its end; a row in which it ends or hangs has failed.

    Args:
        command: of a process that goes on where the records in ``out`` end.
        out: JSON lines, one before and one after each row.
        until: time after which everything is ended, seconds since 1970.
        row_seconds: after which a row counts as hanging.
    """
    idle = 0
    while idle < 2 and time.time() < until:  # twice without a row: it cannot start
        before, reason = len(read(out)), ""
        process = subprocess.Popen(command)
        while process.poll() is None:
            time.sleep(0.2)
            touched = out.stat().st_mtime if out.exists() else time.time()
            in_row = open_row(read(out)) is not None
            if time.time() > until or (in_row and time.time() - touched > row_seconds):
                reason = "the time was over" if time.time() > until else f"it took longer than {row_seconds:g} s"
                process.kill()
                process.wait()
        row = open_row(read(out))
        if row is not None:
            append(out, {"row": row, "status": f"failed: {reason or f'its process ended with {process.returncode}'}"})
        elif process.returncode == 0:
            return
        idle = idle + 1 if len(read(out)) == before else 0


def open_row(records: Sequence[Record]) -> str | None:
    """The row that was started and has no result."""
    for record in reversed(records):
        if "row" in record:
            return str(record["row"]) if record["status"] == STARTED else None
    return None


def warm_in_parallel(command: Sequence[str], processes: int, seconds: float) -> None:
    """Compile in processes of their own; what they did not finish is compiled where it is measured."""
    environment = os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
    running = [
        subprocess.Popen([*command, "--warming", str(number), str(processes)], env=environment)
        for number in range(processes)
    ]
    end = time.time() + seconds
    for process in running:
        try:
            process.wait(max(0.1, end - time.time()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def rendered(records: Sequence[Record]) -> str:
    """Tables in Markdown."""
    first = next(record for record in records if "header" in record)
    lines = [first["header"] + f"- GPU: {first['device']}\n"]
    lines += ["| row | ms | × peers | goal | max error, relative | backend | peak, MiB | peers' peak, MiB |"]
    lines += ["|---|---|---|---|---|---|---|---|"]
    for record in records:
        if record.get("status") in (None, STARTED):
            continue
        if record["status"] != "measured":
            lines.append(f"| {record['row']} | {record['status']} | | | | | | |".replace("\n", " "))
            continue
        peers = record["peers"]
        ratios = "; ".join(f"{name} {_ratio(peer)}" for name, peer in peers.items())
        peaks = "; ".join(f"{name} {_mebibytes(peer)}" for name, peer in peers.items() if "ratio" in peer)
        goals = "; ".join(f"≤ {g['most']:g} × {g['peer']}: {'met' if g['met'] else 'missed'}" for g in record["goals"])
        error = f"{record['error']:.1e} ({record['error_of']})" + ("" if record["correct"] else ", above its tolerance")
        cells = [record["row"], f"{record['seconds'] * 1e3:.4g}", ratios, goals, error, record["backend"]]
        lines.append("| " + " | ".join([*cells, _mebibytes(record), peaks]) + " |")
    return "\n".join(lines) + "\n"


def _ratio(peer: Record) -> str:
    return f"{peer['ratio']:.2f}" if "ratio" in peer else str(peer["status"])


def _mebibytes(record: Record) -> str:
    return "–" if record["peak_bytes"] is None else f"{record['peak_bytes'] / 2**20:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0, help="of everything, the compilers' work included")
    parser.add_argument("--out", metavar="FILE", help="JSON lines; rows that it has are not measured again")
    parser.add_argument("--rows", nargs="+", default=[], help="only rows whose name has one of these words in it")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--row-seconds", type=float, default=75.0, help="after which a row counts as hanging")
    parser.add_argument("--warm", type=int, default=6, help="processes that compile beforehand; 0: none")
    parser.add_argument("--dry", action="store_true", help="on CPU, small, Triton in its interpreter, no compilers")
    parser.add_argument("--render", metavar="FILE", help="print tables of records instead of measuring")
    parser.add_argument("--write", metavar="NAME", help="store what --render prints as results/NAME.md")
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)  # of the process that measures
    parser.add_argument("--warming", type=int, nargs=2, help=argparse.SUPPRESS)  # of a process that only compiles
    args = parser.parse_args()
    if args.render:
        text = rendered(read(Path(args.render)))
        print(text)
        if args.write:
            store(text, args.write)
        return
    if args.warming:
        warm(args)
        return
    if not args.out:
        parser.error("--out must name the file of the records")
    if args.until:
        words = [word for word in sys.argv[1:] if word not in (args.out, "--until", str(args.until))]
        sys.argv[1:] = [word for word in words if word != "--out"]  # in the header: no path, no time of this run
        work(args)
        return
    started, out = time.time(), Path(args.out)
    command = [sys.executable, __file__, *sys.argv[1:]]
    if args.dry:
        os.environ["TRITON_INTERPRET"] = "1"
    if args.warm:
        warm_in_parallel(command, args.warm, min(WARMING, args.seconds / 3))
        print(f"compilers: {time.time() - started:.0f} s", flush=True)
    until = started + args.seconds
    supervise([*command, "--until", str(until)], out, until + 15, args.row_seconds)
    records = [record for record in read(out) if record.get("status") not in (None, STARTED)]
    goals = [goal["met"] for record in records for goal in record.get("goals", ())]
    counts = {status: sum(r["status"].startswith(status) for r in records) for status in ("measured", "failed", "skip")}
    print(f"{counts}, goals met {sum(goals)} of {len(goals)}, {time.time() - started:.0f} s")


if __name__ == "__main__":
    main()
