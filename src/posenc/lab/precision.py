"""float32 or bfloat16: measured on the machine at hand, because processors differ in sign."""

from __future__ import annotations

import time

import torch

WORTHWHILE = 1.2  # bfloat16 must be this much faster before its rounding is accepted


def choose_precision(device: str) -> tuple[str, str]:
    """The faster precision for training, and a sentence with the two measured speeds."""
    where = torch.device(device)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the workers
    try:
        speeds = {dtype: _matmul_speed(dtype, where) for dtype in (torch.float32, torch.bfloat16)}
    finally:
        torch.set_num_threads(threads)
    single, half = speeds[torch.float32], speeds[torch.bfloat16]
    chosen = "bfloat16" if half > WORTHWHILE * single else "float32"
    return chosen, f"{chosen} (probe: float32 {single:.0f}, bfloat16 {half:.0f} GFLOP/s)"


def _matmul_speed(dtype: torch.dtype, device: torch.device, seconds: float = 0.04) -> float:
    """GFLOP/s of a product with the shape of the model's projections."""
    a = torch.ones(2048, 128, dtype=dtype, device=device)
    b = torch.ones(128, 384, dtype=dtype, device=device)
    for _ in range(3):
        a @ b
    count, start = 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds:
        for _ in range(8):
            product = a @ b
        product[0, 0].item()  # waits for the device
        count += 8
    return 2 * 2048 * 128 * 384 * count / spent / 1e9
