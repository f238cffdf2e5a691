"""What holds for all tests."""

from __future__ import annotations

import os

import torch

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # several processes, each with a thread for every core, mostly wait for one another
