"""What a comparison of texts does, as numbers: the profiles, and the checks every set of numbers must pass."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar

from posenc.lab.specs import WINDOW, Shape, standard_encodings
from posenc.lab.tasks.numbers import check_heads, check_training, unknown_profile
from posenc.lab.tasks.task import Profile
from posenc.lab.training import Training


@dataclass(frozen=True)
class Settings(Training):
    """The numbers that decide a result. Two results are comparable if and only if these are equal."""

    task: ClassVar[str] = "text"

    train_length: int = 64  # bytes
    lengths: tuple[int, ...] = (1, 2, 4, 8, 16)  # test lengths, in training lengths
    steps: int = 500
    windows: int = 64  # evaluation windows
    checkpoint_every: int = 50
    max_epochs: int = 0  # how often a training may read its text, 0: any number of times; decides nothing

    @property
    def scored(self) -> int:
        """Bytes at the end of a window on which every length is judged."""
        return self.train_length // 2

    @property
    def training_bytes(self) -> int:
        """Bytes that each training reads."""
        return self.steps * self.batch_size * self.train_length

    @property
    def longest(self) -> int:
        """The longest test length, in bytes."""
        return self.train_length * self.lengths[-1]

    @property
    def shape(self) -> Shape:
        """What encodings may need to know of the model."""
        return Shape(self.dim, self.heads, self.layers, self.train_length)

    def shown(self) -> dict[str, str]:
        """Every number that decides a result, in words."""
        shown = super().shown()
        del shown["max epochs"]
        shown["lengths"] = ", ".join(f"{k}×" for k in self.lengths)
        shown["training bytes per encoding"] = f"{self.training_bytes:,}"
        return shown


# Of the encodings that kernels of PyTorch's serve on a GPU: one or two of each kind, and a mix.
FULL = ("nope", "sinusoidal", "rope", WINDOW, "alibi", "t5", "fox", "rope+alibi")
QUICK = ("nope", "sinusoidal", "learned", "rope", WINDOW, "alibi", "t5", "fox", "stick-breaking")


def profile(name: str) -> Profile[Settings]:
    """A profile by name: minutes on a few cores (quick), longer and with more seeds (standard), for a GPU (full)."""
    if name == "quick":
        return Profile(name, QUICK, 1, Settings())
    if name == "standard":
        settings = Settings(train_length=128, steps=800, warmup=100, checkpoint_every=100)
        return Profile(name, (*standard_encodings(), WINDOW, "rope+alibi", "rope+fox"), 3, settings)
    if name == "full":
        return Profile(name, FULL, 1, _full())
    raise unknown_profile(name)


def _full() -> Settings:
    """One GPU of the H100's class for about an hour: an estimate, not yet measured on any GPU.

    model        102 million parameters
    training     6 · 102e6 for matrices, 117e6 for attention over 2048 bytes: 0.73 GFLOP a byte; 65.5 MB for each of
                 7 encodings at 250 to 350 kB/s (180 to 250 TFLOP/s, a quarter of what the chip can do in bfloat16):
                 22 to 31 minutes
    evaluation   36 TFLOP a window over all lengths, 32 windows, 8 rows, in float32 without TF32 at 7 to 15 TFLOP/s:
                 10 to 22 minutes
    compilation  1/2 to 1 minute an encoding
    memory       1.6 GB of weights, gradients and averages, and about 25 GB of activations
    disk         1.2 GB for each encoding's checkpoint
    """
    return Settings(
        train_length=2048, steps=1000, batch_size=32, windows=32, dim=1024, layers=8, heads=16,
        lr=6e-4, warmup=100, checkpoint_every=250, precision="bfloat16", compile=True, max_epochs=4,
    )  # fmt: skip


def epochs_in_words(settings: Settings, train_bytes: int) -> str:
    """How often each training reads a text of ``train_bytes``; a ValueError if that is more often than it may.

    Up to four times are about as good as new text (arXiv:2305.16264); a large model that reads it much more often
    learns it by heart, and then lengths are compared on what is no language model.
    """
    drawn, epochs = settings.training_bytes, settings.training_bytes / train_bytes
    if settings.max_epochs and epochs > settings.max_epochs:
        raise ValueError(
            f"data: each training would read its {train_bytes / 1e6:.1f} MB {epochs:.1f} times, more than the "
            f"{settings.max_epochs} of --max-epochs: give at least {drawn / settings.max_epochs / 1e6:.0f} MB of text "
            "to train on (--data hf:NAME, a folder or a file), fewer --steps, or more --max-epochs (0: no limit)"
        )
    return f"Each training reads it {epochs:.2g} times."


def parse_lengths(text: str) -> tuple[int, ...]:
    """``"1,2,4"`` as multiples of the training length."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--lengths {text!r}: whole numbers separated by commas are needed, like 1,2,4,8,16") from None


def check(settings: Settings) -> None:
    """Raise a ValueError that names the option and what it needs."""
    s, lengths = settings, settings.lengths
    at_least = {
        "train_length": 4, "steps": 1, "batch_size": 1, "windows": 2, "dim": 1, "layers": 1, "heads": 1,
        "threads": 1, "checkpoint_every": 1, "max_epochs": 0,
    }  # fmt: skip
    check_training(s, at_least)
    if s.train_length % 2:
        raise ValueError(f"--train-length {s.train_length}: an even number is needed, since half of it is scored")
    if not lengths or lengths[0] != 1 or any(b <= a for a, b in itertools.pairwise(lengths)):
        shown = ",".join(map(str, lengths))
        raise ValueError(f"--lengths {shown}: multiples of the training length that start at 1 and grow are needed")
    check_heads(s.dim, s.heads)
