"""Images: a small vision transformer, trained on one grid of tokens and evaluated on shifted, finer and larger grids.

Views of the held-out pictures:

full              as in training
token_shift       moved by one token, to each of the eight neighbours; a picture's value is the mean of the eight
+1, +3, …         not moved, but this many tokens added to both coordinates of every position
finer_scaled      patches at half the stride, at coordinates of the training grid: 0, ½, 1, …
finer_counted     the same patches, at counted coordinates: 0, 1, 2, …
large_scaled      everything twice as large, at coordinates of the training grid
large_counted     the same patches, at counted coordinates

Where tokens are, as each encoding was made to read it:

tokens     row, column = i, j                 exact while they are whole
unit       i / (n − 1), from 0 to 1           LieRE
centres    (i + ½) / n, between 0 and 1       ComRoPE

n tokens each way in training. What is asked of an encoding is the same for all in tokens; n never changes with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posenc.encoding import Encoding
from posenc.lab.config import Config, Evaluation, Model, Options, Profile, Training, number
from posenc.lab.data.batching import batches_within
from posenc.lab.data.pictures import DIGITS_SIZE, Part, Pictures, batch_index, digits, folder_pictures, load_pictures
from posenc.lab.decoder import Block, LabModel, initialise, shared_rotary
from posenc.lab.metrics import FULL, MAJORITY, Metric, Values
from posenc.lab.specs import Shape, build_encodings, build_for_inspection, ends_at_table, is_schedule
from posenc.lab.tasks.task import Data, Task, profiles
from posenc.positions import aligned, centred, grid, spaced
from posenc.rotary.comrope import ComRoPEAP, ComRoPELD
from posenc.rotary.liere import LieRE

SHIFT, FINER, LARGE = "token_shift", ("finer_scaled", "finer_counted"), ("large_scaled", "large_counted")
NEIGHBOURS = [(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1) if down or right]


class View(NamedTuple):
    """One way to show the pictures."""

    tokens: Callable[[Tensor], Tensor]  # canvases (batch, height, width) to patches (batch, tokens, patch²)
    places: Tensor  # (tokens, 2), in tokens of the trained grid


def patches(pictures: Tensor, patch: int, stride: int | None = None) -> Tensor:
    """Square patches of pictures ``(batch, height, width)``, row by row: ``(batch, tokens, patch²)``."""
    return F.unfold(pictures.unsqueeze(1), patch, stride=patch if stride is None else stride).transpose(1, 2)


def views(n: int, patch: int, constants: Sequence[int]) -> dict[str, list[View]]:
    """How pictures are shown, by view: where there are several ways, their mean counts.

    Args:
        n: tokens each way in training.
        patch: pixels of a token, each way.
        constants: tokens by which positions are moved.
    """
    trained, double, dense = grid(n, n), grid(2 * n, 2 * n), grid(2 * n - 1, 2 * n - 1)

    def unchanged(pictures: Tensor) -> Tensor:
        return patches(pictures, patch)

    def finer(pictures: Tensor) -> Tensor:
        return patches(pictures, patch, patch // 2)

    def enlarged(pictures: Tensor) -> Tensor:
        larger = F.interpolate(pictures.unsqueeze(1), scale_factor=2, mode="bilinear", align_corners=False)
        return patches(larger.squeeze(1), patch)

    def moved(down: int, right: int) -> Callable[[Tensor], Tensor]:
        # The margin is empty, so what leaves on one side and comes back on the other is nothing.
        return lambda pictures: unchanged(pictures.roll((down * patch, right * patch), (1, 2)))

    return {
        FULL: [View(unchanged, trained)],
        SHIFT: [View(moved(down, right), trained) for down, right in NEIGHBOURS],
        **{f"+{k}": [View(unchanged, trained + k)] for k in constants},
        FINER[0]: [View(finer, dense / 2)],
        FINER[1]: [View(finer, dense)],
        LARGE[0]: [View(enlarged, aligned(double, 2 * n, onto=n))],
        LARGE[1]: [View(enlarged, double)],
    }


def inside(places: Tensor, side: int) -> bool:
    """Whether all places lie on the trained grid, or within half a token of it: there a table has numbers."""
    return bool((places >= -0.5).all()) and bool((places <= side - 0.5).all())


CONSTANTS = (1, 3, 20)
PROBED = 128  # held-out pictures
QUICK = ("nope", "sinusoidal_grid", "learned_grid", "axial", "mixed", "liere", "comrope_ap", "comrope_ld")
STANDARD = (*QUICK, "alibi_2d", "swin", "log_cpb", "learned_grid+axial")
# Blocks that a head of 16 channels and two axes has room for, where the sources' own heads have 64; and waves that fit
# the few tokens of a grid, as the waves of axial do by default.
OPTIONS: dict[str, dict[str, object]] = {
    "sinusoidal_grid": {"base": 100.0}, "liere": {"block": 8}, "comrope_ap": {"block": 8}, "comrope_ld": {"block": 8},
    "log_cpb": {"axes": 2},
}  # fmt: skip


@dataclass(frozen=True)
class ImageOptions(Options):
    """What the pictures decide; the steps and the trained length follow from it."""

    image_size: int = number(DIGITS_SIZE, "Pixels of a picture, each way.", least=2, most=2**12)
    patch: int = number(2, "Pixels of a token, each way.", least=2, most=2**12)
    classes: int = number(10, "Classes; the pictures decide it.", least=2, typed=False)
    epochs: int = number(30, "How often each picture is trained on.", least=1, most=10**6)
    constants: tuple[int, ...] = number(CONSTANTS, "Tokens by which all positions are moved, like 1,3,20.", least=1)

    @property
    def grid(self) -> int:
        """Tokens each way in training: the picture with a margin of one token, so that it can move."""
        return self.image_size // self.patch + 2


class Images(Task):
    """Accuracy on positions, tokens and pictures that differ from training."""

    name = "images"
    title = "Images, on grids of tokens that were not trained"
    question = (
        "Which class does a small grey picture belong to, when its tokens are moved, finer or more than in training?"
    )
    shows = (
        "A constant added to all positions costs nothing where only differences of positions count. Finer tokens "
        "change places alone; enlarging changes what a patch holds as well, so everything loses."
    )
    metrics = (Metric("accuracy", "of pictures", "higher", percent=True),)
    options = ImageOptions
    views = (FULL, SHIFT, *(f"+{k}" for k in CONSTANTS), *FINER, *LARGE)
    source, axes, per_second = "digits", 2, "images"
    fresh = False  # every picture is seen once an epoch

    def profile(self, name: str) -> Profile:
        """Minutes on a few cores (quick), more encodings and epochs (standard), a folder of larger pictures (full)."""
        training = Training(batch_size=64, weight_decay=0.05, clip=10.0)
        quick = Config(
            "images",
            Model(dim=48, layers=3, heads=3),
            training,
            Evaluation(lengths=(1,), windows=2**14),
            ImageOptions(),
        )
        large = {"dim": 192, "layers": 6, "heads": 6, "batch_size": 128, "lr": 1e-3, "warmup": 500}
        full = quick.replaced({"image_size": 32, "patch": 4, "epochs": 100, "checkpoint_every": 250, **large})
        profiles_by_name = {
            "quick": Profile("quick", QUICK, 3, quick),
            "standard": Profile("standard", STANDARD, 5, quick.replaced({"epochs": 60})),
            "full": Profile("full", STANDARD, 3, full),
        }
        return profiles(profiles_by_name, name)

    def check(self, config: Config) -> None:
        """Patches fill a picture and can be halved; there is one length."""
        o = _options(config)
        if o.patch % 2:
            raise ValueError(f"--patch {o.patch}: an even number is needed, since finer tokens are half a patch apart")
        if o.image_size % o.patch:
            raise ValueError(f"--image-size {o.image_size}: it must be a multiple of --patch {o.patch}")
        if list(o.constants) != sorted(set(o.constants)):
            raise ValueError(f"--constants {','.join(map(str, o.constants))}: each once, from small to large")
        if config.evaluation.lengths != (1,):
            raise ValueError("--lengths: --task images has tests of its own, on other grids; leave it out")

    def settled(self, config: Config, data: Data) -> Config:
        """Steps follow from the epochs, the trained length from the grid, the tested pictures from those held out."""
        o, pictures, t = _options(config), _pictures(data), config.training
        steps = max(1, o.epochs * len(pictures.train.labels) // t.batch_size)
        for name, value, source in (("steps", steps, "--epochs"), ("train_length", o.grid**2, "--image-size, --patch")):
            if getattr(t, name) not in (getattr(Training(), name), value):
                raise ValueError(
                    f"--{name.replace('_', '-')}: --task images has {value:,}, which follows from {source}"
                )
        windows = min(config.evaluation.windows, len(pictures.test.labels))
        return config.replaced(
            {"steps": steps, "train_length": o.grid**2, "windows": windows, "classes": len(pictures.classes)}
        )

    def metrics_of(self, config: Config) -> tuple[Metric, ...]:
        """The metric, with what a guess reaches."""
        return (replace(self.decides, chance=1 / _options(config).classes),)

    def shape(self, config: Config) -> Shape:
        """Of a model of the trained grid."""
        m = config.model
        return Shape(m.dim, m.heads, m.layers, _options(config).grid ** 2, OPTIONS)

    def plan(self, typed: Sequence[str], config: Config) -> list[str]:
        """As every task's; encodings of one model must read the same coordinates."""
        specs = super().plan(typed, config)
        for spec in specs:
            if is_schedule(spec):
                raise ValueError(f"{spec}: layers of a picture's model are all alike here; --task text trains it")
            conventions = {convention_of(e) for e in build_for_inspection(spec, self.shape(config)).attention[0]}
            if len(conventions) > 1:
                names = ", ".join(sorted(conventions))
                raise ValueError(f"{spec}: its encodings read different coordinates ({names}), so they do not mix")
        return specs

    def data(self, source: str, config: Config) -> Pictures:
        """The digits, or a folder with a folder of pictures for each class."""
        size, path = _options(config).image_size, Path(source).expanduser()
        if source == "digits":
            if size != DIGITS_SIZE:
                raise ValueError(f"--image-size {size}: the digits have {DIGITS_SIZE} pixels each way")
            return digits()
        if not path.is_dir():
            raise ValueError(f"--data: no folder {source!r}; it needs a folder of pictures for each class")
        return folder_pictures(path, size)

    def load(self, folder: Path, config: Config) -> Pictures:
        """See `load_pictures`."""
        return load_pictures(folder)

    def model(self, spec: str, config: Config, data: Data, seed: int) -> Classifier:
        """A classifier."""
        o, m, classes = _options(config), config.model, len(_pictures(data).classes)
        return Classifier(
            spec, self.shape(config), side=o.grid, patch=o.patch, classes=classes, hidden=m.hidden, seed=seed
        )

    def batch(self, data: Data, config: Config, seed: int, step: int) -> tuple[Tensor, ...]:
        """Patches ``(batch_size, tokens, patch²)`` and labels."""
        pictures, patch = _pictures(data), _options(config).patch
        chosen = batch_index(len(pictures.train.labels), seed=seed, step=step, size=config.training.batch_size)
        part = Part(pictures.train.pixels[chosen], pictures.train.labels[chosen])
        return patches(pictures.canvas(part, patch), patch), part.labels

    def amount(self, config: Config) -> int:
        """Images."""
        return config.training.batch_size

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        """Of the class."""
        tokens, labels = batch
        return F.cross_entropy(model(tokens).float(), labels)

    def evaluate(
        self, model: LabModel, data: Data, spec: str, config: Config, device: torch.device
    ) -> Iterator[Values]:
        """Whether each held-out picture is recognised, under each view; none outside the grid of a learned table."""
        options, pictures = _options(config), _pictures(data)
        items = _spread(len(pictures.test.labels), config.evaluation.windows)
        for name, shown in views(options.grid, options.patch, options.constants).items():
            if ends_at_table(spec) and not all(inside(view.places, options.grid) for view in shown):
                continue
            right = [_recognised(model, pictures, view, items, config, device) for view in shown]
            length, values = len(shown[0].places), torch.stack(right).mean(0)
            yield Values("accuracy", values.tolist(), length, name, items.tolist())

    def baselines(self, data: Data, config: Config) -> Iterator[Values]:
        """What always naming the most frequent class of the held-out pictures reaches."""
        items = _spread(len(_pictures(data).test.labels), config.evaluation.windows)
        labels = _pictures(data).test.labels[items]
        right = (labels == labels.mode().values).double()
        yield Values(MAJORITY, right.tolist(), config.training.train_length, items=items.tolist())

    def probe(self, model: LabModel, data: Data, config: Config, device: torch.device) -> float:
        """Accuracy on some held-out pictures, as trained."""
        pictures, o = _pictures(data), _options(config)
        items = _spread(len(pictures.test.labels), min(PROBED, config.evaluation.windows))
        (view,) = views(o.grid, o.patch, ())[FULL]
        return _recognised(model, pictures, view, items, config, device).mean().item()


@torch.no_grad()
def _recognised(
    model: nn.Module, pictures: Pictures, view: View, items: Tensor, config: Config, device: torch.device
) -> Tensor:
    """1 for each picture that is recognised, 0 for others; float64 ``(items,)``."""
    part = Part(pictures.test.pixels[items], pictures.test.labels[items])
    canvases, places, right = pictures.canvas(part, _options(config).patch), view.places.to(device), []
    for some in batches_within(range(len(items)), len(places), config.model.heads):
        logits = model(view.tokens(canvases[some]).to(device), places)
        right.append((logits.argmax(-1).cpu() == part.labels[some]).double())
    return torch.cat(right)


def _spread(count: int, most: int) -> Tensor:
    """Which of ``count`` held-out pictures are judged: as many as are wanted, from all classes alike."""
    few = min(count, most)
    return torch.arange(few) * count // few


def _options(config: Config) -> ImageOptions:
    assert isinstance(config.options, ImageOptions)
    return config.options


def _pictures(data: Data) -> Pictures:
    assert isinstance(data, Pictures)
    return data


def convention_of(encoding: nn.Module) -> str:
    """Which coordinates an encoding reads."""
    if isinstance(encoding, LieRE):
        return "unit"
    return "centres" if isinstance(encoding, ComRoPEAP | ComRoPELD) else "tokens"


def convert(places: Tensor, convention: str, side: int) -> Tensor:
    """Coordinates ``(tokens, 2)`` in tokens of the trained grid, ``side`` each way, as a convention has them."""
    if convention == "unit":
        return spaced(places, side, trained=side)
    return centred(places, side) if convention == "centres" else places


class Classifier(LabModel):
    """A classifier of small pictures with the encodings of ``spec``.

    Args:
        spec: encodings as the lab names them.
        shape: widths and counts.
        side: tokens each way in training.
        patch: pixels of a token, each way.
        classes: how many.
        hidden: width of the feed-forward layers.
        seed: decides the initial weights; the shared parts depend on nothing else.
    """

    def __init__(self, spec: str, shape: Shape, *, side: int, patch: int, classes: int, hidden: int, seed: int) -> None:
        super().__init__()
        self.side = side
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            encodings = build_encodings(spec, shape)
            self.embed = nn.Linear(patch**2, shape.dim)
            self.embedding_encodings = nn.ModuleList(encodings.embedding)
            self.blocks = nn.ModuleList(
                Block(shape.dim, shape.heads, hidden, layer, causal=False) for layer in encodings.attention
            )
            self.norm = nn.RMSNorm(shape.dim, eps=1e-6)
            self.head = nn.Linear(shape.dim, classes, bias=False)
        self.lr_multipliers = encodings.lr_multipliers
        self.rotary = shared_rotary(encodings.attention)
        acting: list[Encoding] = encodings.attention[0]
        self.convention = convention_of(acting[0]) if acting else None
        nn.init.zeros_(self.embed.bias)
        initialise(self, torch.Generator().manual_seed(seed), std={})

    def forward(self, tokens: Tensor, places: Tensor | None = None) -> Tensor:
        """Logits ``(batch, classes)``.

        Args:
            tokens: ``(batch, tokens, patch²)`` pixels.
            places: ``(tokens, 2)`` rows and columns, in tokens of the trained grid; default that grid.
        """
        if places is None:
            places = grid(self.side, self.side).to(tokens.device)
        x = self.embed(tokens)
        for encoding in self.embedding_encodings:
            x = encoding(x, convert(places, convention_of(encoding), self.side))
        positions = None if self.convention is None else convert(places, self.convention, self.side)
        tables = None
        if positions is not None and self.rotary:
            tables = [encoding.table(positions, like=x) for encoding in self.rotary]
        for block in self.blocks:
            x = block(x, positions, tables=tables)
        logits: Tensor = self.head(self.norm(x).mean(1))
        return logits
