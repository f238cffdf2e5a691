"""What a comparison of images does, as numbers: the profiles, and the checks every set of numbers must pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from posenc.lab.images.specs import OPTIONS, GridShape
from posenc.lab.tasks.numbers import check_heads, check_training, unknown_profile
from posenc.lab.tasks.task import Profile
from posenc.lab.training import Training


@dataclass(frozen=True)
class ImageSettings(Training):
    """The numbers that decide a result. Two results are comparable if and only if these are equal."""

    task: ClassVar[str] = "images"

    image_size: int = 8  # pixels each way
    patch: int = 2  # pixels of a token, each way
    constants: tuple[int, ...] = (1, 3, 20)  # tokens by which all positions are moved
    epochs: int = 30
    train_images: int = 0  # follows from the data
    batch_size: int = 64
    dim: int = 48
    layers: int = 3
    heads: int = 3
    weight_decay: float = 0.05
    clip: float = 10.0
    precision: str = "float32"

    @property
    def canvas(self) -> int:
        """Pixels each way of what the model sees: the picture with a margin of one token, so that it can move."""
        return self.image_size + 2 * self.patch

    @property
    def grid(self) -> int:
        """Tokens each way in training."""
        return self.canvas // self.patch

    @property
    def steps(self) -> int:
        """Training steps; the last one may leave some images to an epoch that never comes."""
        return max(1, self.epochs * self.train_images // self.batch_size)

    @property
    def shape(self) -> GridShape:
        """What encodings may need to know of the model."""
        return GridShape(self.dim, self.heads, self.layers, self.grid)

    def shown(self) -> dict[str, str]:
        """Every number that decides a result, in words."""
        shown = super().shown()
        shown["constants"] = ", ".join(f"+{k}" for k in self.constants)
        given = [f"{name} {word} {value}" for name, options in OPTIONS.items() for word, value in options.items()]
        return {
            **shown,
            "options of encodings": "; ".join(given),
            "training steps": f"{self.steps:,}",
            "tokens in training": f"{self.grid} × {self.grid}",
        }


QUICK = ("nope", "sinusoidal_grid", "learned_grid", "axial", "mixed", "liere", "comrope_ap", "comrope_ld")
STANDARD = (*QUICK, "alibi_2d", "swin", "log_cpb", "learned_grid+axial")


def profile(name: str) -> Profile[ImageSettings]:
    """A profile by name: minutes on a few cores (quick), more encodings, seeds and epochs (standard), larger (full)."""
    if name == "quick":
        return Profile(name, QUICK, 3, ImageSettings())
    if name == "standard":
        return Profile(name, STANDARD, 5, ImageSettings(epochs=60))
    if name == "full":
        settings = ImageSettings(
            image_size=32, patch=4, epochs=100, batch_size=128, dim=192, layers=6, heads=6,
            lr=1e-3, warmup=500, checkpoint_every=250,
        )  # fmt: skip
        return Profile(name, STANDARD, 3, settings)
    raise unknown_profile(name)


def check(settings: ImageSettings) -> None:
    """Raise a ValueError that names the option and what it needs."""
    s = settings
    at_least = {
        "image_size": 2, "patch": 1, "epochs": 1, "batch_size": 1, "dim": 1, "layers": 1, "heads": 1,
        "threads": 1, "checkpoint_every": 1,
    }  # fmt: skip
    check_training(s, at_least)
    if s.patch % 2:
        raise ValueError(f"--patch {s.patch}: an even number is needed, since finer tokens are half a patch apart")
    if s.image_size % s.patch:
        raise ValueError(f"--image-size {s.image_size}: it must be a multiple of --patch {s.patch}")
    check_heads(s.dim, s.heads)
