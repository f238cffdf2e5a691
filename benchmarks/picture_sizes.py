"""Pictures larger than those of training by scalings of axial RoPE: a small diffusion transformer, trained here.

    python benchmarks/picture_sizes.py --write picture_sizes --pictures digits.png    # scikit-learn's digits, on a CPU
    python benchmarks/picture_sizes.py --data pictures.npz --device cuda --width 384 --heads 6 --layers 12 \\
        --steps 100000 --batch 256 --judge-steps 5000 --sampling-steps 64

A transformer learns to draw the ten classes from noise (rectified flow, velocities) on grids of 8 × 8 pixels, one token
a pixel, with axial RoPE alone for positions. It then draws pictures of 8, 12 and 16 pixels a side, with the frequencies
as trained, position interpolation, NTK, YaRN and DyPE, from the same noise. A classifier trained on real pictures of
the same size judges them: its accuracy for the class that was asked for, and the Fréchet distance between its features
of drawn and of held-out real pictures, which is 0 where they have the same mean and covariance. Real pictures of other
sizes are resized ones; so is the row "drawn small, resized", which needs no scaling. Each held-out label is drawn
``--draws`` times. Intervals are 95 % over the drawn pictures of one trained model, by the bootstrap; another training
is another ``--seed``.

``--data`` takes an .npz with ``images`` (n, side, side), from 0 to 1, and ``labels`` (n,).
"""

from __future__ import annotations

import argparse
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
RESIZED = "drawn small, resized"
Estimate = tuple[float, float]  # value, half of the 95 % interval


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


def trained(
    model: nn.Module, loss: Callable[[Tensor], Tensor], count: int, steps: int, batch: int, rate: float = 2e-3
) -> nn.Module:
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(torch.randint(count, (batch,))).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval()


def resized(pictures: Tensor, side: int) -> Tensor:
    return F.interpolate(pictures[:, None], (side, side), mode="bicubic").squeeze(1).clamp(0, 1)


@torch.no_grad()
def draw_pictures(
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


def frechet(first: Tensor, second: Tensor) -> float:
    """Between normal distributions with the means and covariances of features ``(n, d)``."""
    means, covariances = zip(*((x.mean(0), torch.cov(x.T)) for x in (first.double(), second.double())), strict=True)
    roots = torch.linalg.eigvals(covariances[0] @ covariances[1]).sqrt().real.sum()
    spread = covariances[0].trace() + covariances[1].trace() - 2 * roots
    return float((means[0] - means[1]).square().sum() + spread)


def estimated(judge: Judge, pictures: Tensor, requested: Tensor, real: Tensor, resamples: int = 200) -> list[Estimate]:
    """Accuracy in per cent and Fréchet distance to the features ``real``, with intervals over the pictures."""
    features = judge.features(pictures[:, None])
    right = (judge.classes(features).argmax(-1) == requested).double()
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randint(len(right), (len(right),), generator=generator) for _ in range(resamples)]
    return [
        (float(measure(slice(None))), 1.96 * float(np.std([measure(of.to(right.device)) for of in rows])))
        for measure in (lambda of: 100 * float(right[of].mean()), lambda of: frechet(features[of], real))
    ]


def scalings(trained_side: int) -> dict[str, Scaling]:
    """None at the trained side: all of them are the identity there."""

    def beyond(make: Callable[[int, float], nn.Module]) -> Scaling:
        return lambda side, level: None if side == trained_side else make(side, level)

    return {
        "none": lambda side, level: None,
        "PI": beyond(lambda side, level: PositionInterpolation(side / trained_side)),
        "NTK": beyond(lambda side, level: NTKAware(side / trained_side)),
        "YaRN": beyond(lambda side, level: YaRN(side / trained_side, original_length=trained_side)),
        "DyPE": beyond(lambda side, level: DyPE(side, original_length=trained_side, timestep=level)),
    }


def measured(options: argparse.Namespace) -> tuple[dict[str, dict[int, list[Estimate]]], dict[str, dict[int, Tensor]]]:
    """Estimates by row and side, "real" being other real pictures; and one drawn picture of each class."""
    torch.manual_seed(options.seed)
    images, labels = digits() if options.data is None else _from_file(options.data)
    side, classes = images.shape[-1], int(labels.max()) + 1
    order = torch.randperm(len(images))
    held_out, training = order[: len(order) // 4], order[len(order) // 4 :]
    images, labels = images.to(options.device), labels.to(options.device)
    drawer = Drawer(options.width, options.heads, options.layers, classes).to(options.device)

    def velocity_loss(rows: Tensor) -> Tensor:
        chosen = training[rows].to(options.device)
        data, noise = 2 * images[chosen] - 1, torch.randn(len(rows), side, side, device=options.device)
        level = torch.rand(len(rows), device=options.device)
        mixed = (1 - level)[:, None, None] * data + level[:, None, None] * noise
        return F.mse_loss(drawer(mixed, level, labels[chosen]), noise - data)

    trained(drawer, velocity_loss, len(training), options.steps, options.batch)
    print("trained", flush=True)
    requested = labels[held_out].repeat(options.draws)
    of_class = torch.stack([(requested == label).nonzero()[0, 0] for label in range(classes)])
    results: dict[str, dict[int, list[Estimate]]] = {}
    shown: dict[str, dict[int, Tensor]] = {}
    small = torch.empty(0)
    for factor in (1.0, 1.5, 2.0):
        larger = round(side * factor)
        real = resized(images, larger)
        judge = Judge(classes).to(options.device)

        def label_loss(rows: Tensor, judge: Judge = judge, real: Tensor = real) -> Tensor:
            return F.cross_entropy(judge(real[training[rows]]), labels[training[rows]])

        trained(judge, label_loss, len(training), options.judge_steps, 128)
        with torch.no_grad():
            features = judge.features(real[held_out][:, None])
            others = training[: len(held_out)]
            pictures = {"real": real[others]}
            for name, scaling in scalings(side).items():
                if factor == 1 and small.numel():
                    pictures[name] = small
                    continue
                generator = torch.Generator().manual_seed(options.seed)
                pictures[name] = torch.cat(
                    [
                        draw_pictures(drawer, part, larger, scaling, options.sampling_steps, generator)
                        for part in requested.split(128)
                    ]
                )
                small = pictures[name] if factor == 1 else small
            pictures[RESIZED] = resized(small, larger)
            for name, these in pictures.items():
                of = labels[others] if name == "real" else requested
                results.setdefault(name, {})[larger] = estimated(judge, these, of, features)
                shown.setdefault(name, {})[larger] = these[of_class] if name != "real" else these[:classes]
                print(larger, name, results[name][larger], flush=True)
    return results, shown


def _from_file(path: str) -> tuple[Tensor, Tensor]:
    with np.load(path) as file:
        return torch.tensor(file["images"], dtype=torch.float32), torch.tensor(file["labels"], dtype=torch.long)


def picture(shown: dict[str, dict[int, Tensor]], side: int, path: str) -> None:
    """Rows are scalings; columns the classes at each larger size, all of them shown equally large."""
    from PIL import Image

    cell = 6 * side
    lines = []
    for name, sizes in shown.items():
        if name != "real":
            tiles = torch.cat([F.interpolate(of[:, None], (cell, cell))[:, 0] for s, of in sizes.items() if s > side])
            lines.append(F.pad(tiles, (1, 1, 1, 1), value=0.5).permute(1, 0, 2).flatten(1))
    picture = 255 - (255 * torch.cat(lines)).round().byte().cpu().numpy()  # ink is dark
    Image.fromarray(picture).quantize(17).save(path, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pictures", help="a .png with one drawn picture of each class")
    parser.add_argument("--write", help="keep the table as results/NAME.md")
    for name, default in {
        "width": 48, "heads": 3, "layers": 3, "steps": 1500, "batch": 64, "judge-steps": 200, "sampling-steps": 16,
        "draws": 2, "seed": 0,
    }.items():  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    results, shown = measured(options)
    sides = list(results["none"])
    text = header("Larger pictures by scalings of axial RoPE, drawn by a small diffusion transformer", ["scikit-learn"])
    text += (
        f"\nAccuracy in per cent and Fréchet distance of features, by pixels a side; trained at {sides[0]}, "
        f"seed {options.seed}, {options.draws} pictures for each held-out label. 95 % over pictures of one model.\n"
    )
    text += "\n| | " + " | ".join(f"{side}: accuracy | {side}: distance" for side in sides) + " |\n"
    text += "|---" * (1 + 2 * len(sides)) + "|\n"
    for name, row in results.items():
        cells = [
            f"{value:.{digits}f} ± {half:.{digits}f}"
            for side in sides
            for digits, (value, half) in enumerate(row[side], start=1)
        ]
        text += f"| {name} | " + " | ".join(cells) + " |\n"
    print(text)
    if options.pictures:
        picture(shown, sides[0], options.pictures)
    if options.write:
        store(text, options.write)


if __name__ == "__main__":
    main()
