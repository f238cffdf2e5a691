"""Tries an installed posenc, outside its checkout: python -P tests/smoke.py, with whatever Python has it.

No pytest and nothing but posenc and what it brings: this is what a user's first minute needs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

import posenc

ROOT = Path(__file__).resolve().parents[1]
FEWEST = 60  # entries of the catalogue; a wheel that lacks a folder has fewer, or none


def installed() -> None:
    """It is the installed one, and whole: its version, its types, its encodings."""
    package = Path(posenc.__file__).resolve().parent
    assert ROOT not in package.parents, f"posenc comes from the checkout, {package}: run this in a clean environment"
    assert posenc.__version__ == version("posenc")
    assert (package / "py.typed").is_file()
    assert len(posenc.list_encodings()) >= FEWEST


def attends() -> None:
    """Attention of grouped queries under RoPE and ALiBi, with its gradient, equals the formula written out."""
    torch.manual_seed(0)
    heads, tokens, width = 4, 9, 8
    q = torch.randn(1, heads, tokens, width, requires_grad=True)
    k, v = torch.randn(2, 1, heads // 2, tokens, width, requires_grad=True)
    encodings = [posenc.RoPE(width), posenc.ALiBi(heads)]
    out = posenc.attention(q, k, v, encodings)

    where = torch.arange(tokens)
    angles = where[:, None] * 10_000.0 ** (-torch.arange(0, width, 2) / width)

    def rotated_pairs(x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, -1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

    distance = where[:, None] - where
    slopes = 2.0 ** (-8 * torch.arange(1, heads + 1) / heads)
    keys, values = (t.repeat_interleave(2, 1) for t in (k, v))
    scores = rotated_pairs(q) @ rotated_pairs(keys).mT * width**-0.5 - slopes[:, None, None] * distance
    expected = scores.masked_fill(distance < 0, -torch.inf).softmax(-1) @ values
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)
    from_attention, written_out = (torch.autograd.grad(each.sin().sum(), (q, k, v)) for each in (out, expected))
    torch.testing.assert_close(from_attention, written_out, atol=1e-5, rtol=1e-5)


def command(*arguments: str) -> str:
    """What the command ``posenc`` of this environment prints."""
    program = Path(sys.executable).with_name("posenc")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=300, encoding="utf-8")
    assert done.returncode == 0, f"posenc {' '.join(arguments)}: {done.stderr}"
    return done.stdout


def commands() -> None:
    """The version, and the three commands that need torch alone."""
    assert command("--version").startswith(f"posenc {posenc.__version__}\n")
    assert [line.split("\t")[0] for line in command("list").splitlines()] == posenc.list_encodings()
    assert "ALiBi" in command("info", "alibi")
    with TemporaryDirectory() as folder:
        config = {"model_type": "llama", "head_dim": 128, "rope_theta": 500_000.0, "max_position_embeddings": 8192}
        (Path(folder) / "config.json").write_text(json.dumps(config))
        assert "500,000" in command("explain", folder)


if __name__ == "__main__":
    for step in (installed, attends, commands):
        step()
    print(f"posenc {posenc.__version__} works: Python {sys.version.split()[0]}, torch {torch.__version__}")
