"""Text: a byte-level language model, trained on short pieces and judged on longer ones.

Every length is judged on the same bytes (`posenc.lab.tasks.bits`). Under the view "window" each byte sees the last T
bytes alone, T the trained length, in texts of any length.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posenc.lab.config import Config, Evaluation, Model, Options, Profile, Training, number
from posenc.lab.corpora import read_source
from posenc.lab.corpora.corpus import Corpus, load_corpus, make_corpus
from posenc.lab.metrics import WINDOW, Curve, Metric, Values
from posenc.lab.model import Decoder, LabModel
from posenc.lab.specs import ends_at_table, standard_encodings
from posenc.lab.tasks.batching import batches_within
from posenc.lab.tasks.bits import Sliding, draw_batch, judged, measured, window_losses
from posenc.lab.tasks.task import Data, Task, profiles

PROBED = 64  # windows

QUICK = ("nope", "sinusoidal", "learned", "rope", "alibi", "t5", "fox", "stick-breaking")
# Of the encodings that kernels of PyTorch's serve on a GPU: one or two of each kind, and a mix.
FULL_SIZE = ("nope", "sinusoidal", "rope", "alibi", "t5", "fox", "rope+alibi")


@dataclass(frozen=True)
class TextOptions(Options):
    """The numbers of texts alone."""

    max_epochs: int = number(
        0, "How often a training may read its text; 0: any number of times.", least=0, most=10**9, decides=False
    )


class Text(Task):
    """Bits per byte at growing lengths."""

    name = "text"
    title = "Bits per byte of a language model, by the length of the text that it reads"
    asked = (
        "What is the next byte? Models are trained on short pieces of text and read longer ones; at every length the "
        "same bytes are scored, and only the text before them grows."
    )
    shows = (
        "Bits that stay as they are at longer lengths mean that an encoding bears longer texts; bits that fall, that "
        "the model uses what lies farther back; bits that rise, that it is lost."
    )
    metrics = (Metric("bits", "bits per byte", "lower", margin=0.02, within=0.5, fails=0.3),)
    curves = (Curve("bits_by_position", "position in the text, bytes", of="bits"),)
    options: ClassVar[type[Options]] = TextOptions
    source = "python"
    per_second = "bytes"
    loss_unit = math.log(2)

    def profile(self, name: str) -> Profile:
        """Minutes on two cores (quick), hours with more seeds and longer texts (standard), for a GPU (full)."""
        return profiles({"quick": _quick(), "standard": _standard(), "full": _full()}, name)

    def check(self, config: Config) -> None:
        """Half of the trained length is scored."""
        length = config.training.train_length
        if length % 2 or length < 4:
            raise ValueError(
                f"--train-length {length}: an even number of at least 4 is needed, since half of it is scored"
            )

    def data(self, source: str, config: Config) -> Data:
        """The corpus of a run, large enough for its windows."""
        scored, windows = config.training.train_length // 2, config.evaluation.windows
        corpus = make_corpus(read_source(source), window=config.longest + 1, windows=windows, scored=scored)
        stated = {**corpus.stated, "reading": reading(config, len(corpus.train))}
        return dataclasses.replace(corpus, stated=stated)

    def load(self, folder: Path, config: Config) -> Data:
        """Checked against its hashes."""
        return load_corpus(folder)

    def model(self, spec: str, config: Config, data: Data, seed: int) -> LabModel:
        """A decoder."""
        return Decoder(spec, self.shape(config), hidden=config.model.hidden, seed=seed)

    def batch(self, data: Data, config: Config, seed: int, step: int) -> tuple[Tensor, ...]:
        """Pieces of text, ``(batch_size, train_length + 1)``."""
        t = config.training
        drawn = draw_batch(corpus_of(data).train, seed, step, batch_size=t.batch_size, length=t.train_length)
        return (drawn,)

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        """Of the next byte, at every byte."""
        (tokens,) = batch
        logits = model(tokens[:, :-1])  # (batch, length, 256)
        return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())

    def evaluate(
        self, model: LabModel, data: Data, rows: Sequence[str], config: Config, device: torch.device
    ) -> Iterator[Values]:
        """Bits in the windows at each length, of the whole text and under a sliding window; none past a table."""
        with judged(model):
            for row in rows:
                lengths = config.tested[:1] if ends_at_table(row) else config.tested
                yield from measured(model, corpus_of(data), lengths, config, device, row)
                sliding = under_window(model, config)
                yield from measured(sliding, corpus_of(data), lengths[1:], config, device, row, view=WINDOW)

    def probe(self, model: LabModel, data: Data, config: Config, device: torch.device) -> float:
        """Bits at the trained length, in windows of different documents as far as there are as many."""
        corpus, length = corpus_of(data), config.training.train_length
        ends = corpus.windows.ends[:: max(1, len(corpus.windows.ends) // PROBED)][:PROBED]
        with judged(model):
            parts = [
                window_losses(model, corpus.validation, batch, length, device)[:, -(length // 2) :]
                for batch in batches_within(ends, length, config.model.heads)
            ]
        return float(torch.cat(parts).mean())


def under_window(model: LabModel, config: Config) -> Sliding:
    """The model under a sliding window of the trained length."""
    length = config.training.train_length
    return Sliding(model, window=length, scored=length // 2, layers=config.model.layers)


def corpus_of(data: Data) -> Corpus:
    """Data that are those of texts."""
    if not isinstance(data, Corpus):
        raise TypeError(f"a corpus is needed, not {type(data).__name__}")
    return data


def reading(config: Config, train_bytes: int) -> str:
    """How often each training reads a text of ``train_bytes``; a ValueError if that is more often than it may.

    Up to four times are about as good as new text (arXiv:2305.16264); a large model that reads it much more often
    learns it by heart, and then lengths are compared on what is no language model.
    """
    t, most = config.training, getattr(config.options, "max_epochs", 0)
    drawn = t.steps * t.batch_size * t.train_length
    if most and drawn > most * train_bytes:
        raise ValueError(
            f"data: each training would read its {train_bytes / 1e6:.1f} MB {drawn / train_bytes:.1f} times, more than "
            f"the {most} of --max-epochs: give at least {drawn / most / 1e6:.0f} MB of text to train on (--data "
            "hf:NAME, a folder or a file), fewer --steps, or more --max-epochs (0: no limit)"
        )
    return f"each training reads {drawn / 1e6:.1f} MB, {drawn / train_bytes:.2g} times the text"


def _quick() -> Profile:
    """Under 10 minutes on two cores: about 95 s of training and 30 of evaluation for each encoding on one."""
    config = Config("text", training=Training(steps=250), evaluation=Evaluation(windows=96), options=TextOptions())
    return Profile("quick", QUICK, 1, config)


def _standard() -> Profile:
    training = Training(train_length=128, steps=800, warmup=100)
    config = Config("text", training=training, evaluation=Evaluation(windows=1000), options=TextOptions())
    return Profile("standard", (*standard_encodings(), "rope+alibi", "rope+fox"), 3, config)


def _full() -> Profile:
    """One GPU of the H100's class for about an hour: an estimate, not yet measured on any GPU.

    model        102 million parameters
    training     6 · 102e6 for matrices, 117e6 for attention over 2048 bytes: 0.73 GFLOP a byte; 65.5 MB for each of
                 7 encodings at 250 to 350 kB/s (180 to 250 TFLOP/s, a quarter of what the chip can do in bfloat16):
                 22 to 31 minutes
    evaluation   36 TFLOP a window over all lengths, 32 windows, 7 rows, two views, in float32 without TF32 at 7 to 15
                 TFLOP/s: 18 to 38 minutes
    compilation  1/2 to 1 minute an encoding
    memory       1.6 GB of weights, gradients and averages, and about 25 GB of activations
    disk         1.2 GB for each encoding's checkpoint
    """
    training = Training(
        train_length=2048, steps=1000, lr=6e-4, warmup=100, checkpoint_every=250, precision="bfloat16", compile=True
    )
    model, evaluation = Model(dim=1024, layers=8, heads=16), Evaluation(windows=32)
    return Profile("full", FULL_SIZE, 1, Config("text", model, training, evaluation, TextOptions(max_epochs=4)))
