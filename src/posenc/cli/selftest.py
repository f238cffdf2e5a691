"""``posenc selftest``: whether posenc's kernels and backends are right on this machine, and how long calls take."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections import Counter
from typing import Any

import torch

from posenc.testing.selftest import records
from posenc_cli.exit_codes import FAULT, OK


def run(options: Namespace) -> int:
    """Check and time, and print each result when it is there.

    Raises:
        ValueError: for a GPU that PyTorch does not find.
    """
    name = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda: PyTorch finds no NVIDIA GPU; see torch.cuda.is_available()")
    counts: Counter[str] = Counter()
    for record in records(torch.device(name), seconds=options.seconds, timings=not options.no_timings):
        if record["kind"] == "check":
            counts[record["status"]] += 1
        sys.stdout.write((json.dumps(record) if options.as_json else line_of(record)) + "\n")
        sys.stdout.flush()
    if not options.as_json:
        summary = ", ".join(f"{number} {status}" for status, number in sorted(counts.items()))
        sys.stdout.write(f"checks: {summary}\n")
    return FAULT if counts["wrong"] else OK


def line_of(record: dict[str, Any]) -> str:
    """A record in a line."""
    if record["kind"] == "versions":
        return ", ".join(f"{name} {value}" for name, value in record.items() if name != "kind" and value is not None)
    if record["kind"] == "check":
        return f"{record['status']:<12}{record['what']}" + (f": {record['fault']}" if record["fault"] else "")
    if record["status"] != "timed":
        return f"{record['what']:<40}{record['status']}"
    flops, moved = record.get("flops_per_second"), record.get("bytes_per_second")
    cells = [f"device {record['device_seconds'] * 1e3:9.3f} ms", f"host {record['host_seconds'] * 1e3:8.3f} ms"]
    cells.append(" " * 15 if flops is None else f"{flops / 1e12:7.1f} TFLOP/s")  # as wide, so that columns stay
    cells.append(" " * 13 if moved is None else f"{moved / 1e9:8.1f} GB/s")
    cells.append(record.get("backend", ""))
    return f"{record['what']:<40}{'  '.join(cells)}".rstrip()
