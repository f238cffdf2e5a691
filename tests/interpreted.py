"""Tests of kernels in Triton's interpreter, which is asked for before Triton is loaded: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if torch.cuda.is_available() and not INTERPRETED else "cpu"
HERE = DEVICE == "cuda" or INTERPRETED  # whether kernels run in this process


def in_the_interpreter(file: str, *chosen: str, **variables: str) -> None:
    """Run a file of tests anew, all that is slow included unless pytest is told otherwise."""
    environment = os.environ | variables | {
        "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"
    }  # fmt: skip
    environment.pop("PYTEST_XDIST_WORKER", None)
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore", "-m", "")
    command = [sys.executable, "-m", "pytest", *options, file, *chosen]
    ran = subprocess.run(command, env=environment, cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-4000:]
    assert " passed" in ran.stdout
