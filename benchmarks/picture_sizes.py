"""Pictures larger than those of training by scalings of axial RoPE: a small diffusion transformer, trained here.

    python benchmarks/picture_sizes.py --write picture_sizes    # scikit-learn's digits, on a CPU
    python benchmarks/picture_sizes.py --data pictures.npz --device cuda --width 384 --layers 12 --steps 100000

A transformer learns to draw the ten classes from noise (rectified flow, velocities) on grids of 8 × 8 pixels, one token
a pixel, with axial RoPE alone for positions. It then draws pictures of 8, 12 and 16 pixels a side, with the frequencies
as trained, position interpolation, NTK, YaRN and DyPE. A classifier trained on real pictures of the same size judges
them: its accuracy for the class that was asked for, and the Fréchet distance between its features of drawn and of real
pictures, which is 0 where they have the same mean and covariance. Intervals are 95 %, over seeds; real pictures of
other sizes are resized ones.

``--data`` takes an .npz with ``images`` (n, side, side), from 0 to 1, and ``labels`` (n,).
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from measuring import header, store
from torch import Tensor, nn
from torch.nn import functional as F

from posenc import AxialRoPE, NTKAware, PositionInterpolation, YaRN
from posenc.frequencies import DyPE
from posenc.positions import grid

BASE = 100.0
Scaling = Callable[[int, float], nn.Module | None]  # of the pixels of a side and the noise level
STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # of the interval, by the number of seeds


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.modulation = nn.Linear(width, 6 * width)
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)

    def forward(self, x: Tensor, condition: Tensor, rope: AxialRoPE, table: Any) -> Tensor:
        shift, scale, gate, shift_2, scale_2, gate_2 = self.modulation(condition)[:, None].chunk(6, -1)
        width = x.shape[-1:]
        qkv = self.qkv(F.layer_norm(x, width) * (1 + scale) + shift)
        q, k, v = qkv.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(rope.rotate(q, table), rope.rotate(k, table), v)
        x = x + gate * self.out(mixed.transpose(1, 2).flatten(2))
        return x + gate_2 * self.mlp(F.layer_norm(x, width) * (1 + scale_2) + shift_2)


class Drawer(nn.Module):
    """Velocities of pictures ``(batch, side, side)`` between noise and data, given the noise level and the class."""

    def __init__(self, width: int, heads: int, layers: int, classes: int) -> None:
        super().__init__()
        self.width, self.head_dim = width, width // heads
        self.into, self.outof = nn.Linear(1, width), nn.Linear(width, 1)
        self.classes = nn.Embedding(classes, width)
        self.level = nn.Sequential(nn.Linear(64, width), nn.SiLU(), nn.Linear(width, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))

    def forward(self, pictures: Tensor, level: Tensor, labels: Tensor, scaling: nn.Module | None = None) -> Tensor:
        rows, columns = pictures.shape[1:]
        each = None if scaling is None else (scaling, scaling)
        rope = AxialRoPE(self.head_dim, convention="eva-02", base=BASE, axes=2, scaling=each)
        table = rope.table(grid(rows, columns).to(pictures.device))
        waves = 1000 * level[:, None] * torch.logspace(0, -4, 32, device=level.device)
        condition = F.silu(self.level(torch.cat([waves.cos(), waves.sin()], -1)) + self.classes(labels))
        x = self.into(pictures.flatten(1).unsqueeze(-1))
        for block in self.blocks:
            x = block(x, condition, rope, table)
        return self.outof(F.layer_norm(x, x.shape[-1:])).squeeze(-1).unflatten(1, (rows, columns))


class Judge(nn.Module):
    """A classifier of pictures of any side; the numbers before its last layer are the features."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(1024, 64), nn.ReLU(),
        )  # fmt: skip
        self.classes = nn.Linear(64, classes)

    def forward(self, pictures: Tensor) -> Tensor:
        return self.classes(self.features(pictures[:, None]))


def digits() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits

    loaded = load_digits()
    return torch.tensor(loaded.images / 16, dtype=torch.float32), torch.tensor(loaded.target)


def trained(model: nn.Module, loss: Callable[[Tensor], Tensor], count: int, steps: int, rate: float) -> nn.Module:
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(torch.randint(count, (128,))).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval()


def resized(pictures: Tensor, side: int) -> Tensor:
    return F.interpolate(pictures[:, None], (side, side), mode="bicubic").squeeze(1).clamp(0, 1)


@torch.no_grad()
def drawn(
    drawer: Drawer, labels: Tensor, side: int, scaling: Scaling, steps: int, generator: torch.Generator
) -> Tensor:
    pictures = torch.randn(len(labels), side, side, generator=generator).to(labels.device)
    for step in range(steps):
        level = 1 - step / steps
        velocity = drawer(
            pictures, torch.full((len(labels),), level, device=labels.device), labels, scaling(side, level)
        )
        pictures = pictures - velocity / steps
    return (pictures / 2 + 0.5).clamp(0, 1)


def frechet(one: Tensor, other: Tensor) -> float:
    """Between normal distributions with the means and covariances of features ``(n, d)``."""
    means, covariances = zip(*((x.mean(0), torch.cov(x.T)) for x in (one.double(), other.double())), strict=True)
    roots = torch.linalg.eigvals(covariances[0] @ covariances[1]).sqrt().real.sum()
    spread = covariances[0].trace() + covariances[1].trace() - 2 * roots
    return float((means[0] - means[1]).square().sum() + spread)


def scalings(trained_side: int) -> dict[str, Scaling]:
    def times(make: Callable[[float], nn.Module]) -> Scaling:
        return lambda side, level: None if side == trained_side else make(side / trained_side)

    return {
        "none": lambda side, level: None,
        "PI": times(PositionInterpolation),
        "NTK": times(NTKAware),
        "YaRN": times(lambda factor: YaRN(factor, original_length=trained_side)),
        "DyPE": lambda side, level: DyPE(side, original_length=trained_side, timestep=level),  # type: ignore[return-value]
    }


def judged(options: argparse.Namespace, seed: int) -> dict[tuple[str, int], tuple[float, float]]:
    """Accuracy in per cent and Fréchet distance, by scaling and side; "real" is the held-out pictures' own."""
    torch.manual_seed(seed)
    images, labels = digits() if options.data is None else _from_file(options.data)
    side, classes = images.shape[-1], int(labels.max()) + 1
    order = torch.randperm(len(images))
    held, kept = order[: len(order) // 4], order[len(order) // 4 :]
    images, labels = images.to(options.device), labels.to(options.device)
    drawer = Drawer(options.width, options.heads, options.layers, classes).to(options.device)

    def velocity_loss(rows: Tensor) -> Tensor:
        chosen = kept[rows].to(options.device)
        data, noise = 2 * images[chosen] - 1, torch.randn(len(rows), side, side, device=options.device)
        level = torch.rand(len(rows), device=options.device)
        mixed = (1 - level)[:, None, None] * data + level[:, None, None] * noise
        return F.mse_loss(drawer(mixed, level, labels[chosen]), noise - data)

    trained(drawer, velocity_loss, len(kept), options.steps, 2e-3)
    results = {}
    for factor in (1.0, 1.5, 2.0):
        larger = round(side * factor)
        real = resized(images, larger)
        judge = Judge(classes).to(options.device)
        trained(
            judge, lambda rows: F.cross_entropy(judge(real[kept[rows]]), labels[kept[rows]]), len(kept),  # noqa: B023
            options.judge_steps, 2e-3,
        )  # fmt: skip
        with torch.no_grad():
            ours = judge.features(real[held][:, None])
            right = (judge(real[held]).argmax(-1) == labels[held]).float().mean()
            results["real", larger] = (100 * float(right), frechet(judge.features(real[kept][:, None]), ours))
            for name, scaling in scalings(side).items():
                asked = labels[held]
                generator = torch.Generator().manual_seed(seed)
                pictures = drawn(drawer, asked, larger, scaling, options.sampling_steps, generator)
                right = (judge(pictures).argmax(-1) == asked).float().mean()
                results[name, larger] = (100 * float(right), frechet(judge.features(pictures[:, None]), ours))
                if options.pictures and seed == 0:
                    np.save(f"{options.pictures}_{name}_{larger}.npy", pictures[:32].cpu().numpy())
    return results


def _from_file(path: str) -> tuple[Tensor, Tensor]:
    with np.load(path) as file:
        return torch.tensor(file["images"], dtype=torch.float32), torch.tensor(file["labels"], dtype=torch.long)


def with_interval(values: list[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.1f}"
    half = STUDENT.get(len(values), 1.96) * statistics.stdev(values) / math.sqrt(len(values))
    return f"{statistics.mean(values):.1f} ± {half:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pictures", help="prefix of .npy files with 32 pictures each, of the first seed")
    parser.add_argument("--write", help="keep the table as results/NAME.md")
    for name, default in {
        "width": 64, "heads": 4, "layers": 4, "steps": 3000, "judge-steps": 600, "sampling-steps": 32, "seeds": 3,
    }.items():  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    runs = [judged(options, seed) for seed in range(options.seeds)]
    sides = list(dict.fromkeys(side for _, side in runs[0]))
    text = header("Larger pictures by scalings of axial RoPE, drawn by a small diffusion transformer")
    text += (
        f"\nPer cent of the asked class, and Fréchet distance of features, by pixels a side; trained at {sides[0]}.\n"
    )
    text += "\n| | " + " | ".join(f"{side}: accuracy | {side}: distance" for side in sides) + " |\n"
    text += "|---" * (1 + 2 * len(sides)) + "|\n"
    for name in dict.fromkeys(name for name, _ in runs[0]):
        cells = [with_interval([run[name, side][which] for run in runs]) for side in sides for which in (0, 1)]
        text += f"| {name} | " + " | ".join(cells) + " |\n"
    print(text)
    if options.write:
        store(text, options.write)


if __name__ == "__main__":
    main()
