"""Text: a language model of bytes or byte pairs, trained on short pieces and evaluated on longer ones.

Every length is judged on the same tokens, and so on the same bytes, and only the context grows. The end of each window
is chosen once. At k times the training length T, the model reads the last k·T tokens before that end, and only the last
T/2 predictions are scored; at 1× each of them has T/2 to T − 1 tokens of context, all of them trained. (Adjacent
windows would instead reward length by diluting the expensive first tokens.) Under the view "window" each token attends
to the last T only.

Bits per byte are all bits of the scored tokens over all their bytes, so that tokenizers can be compared; with byte
pairs the records also hold the perplexity per token, 2 to the mean bits per token.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posenc.lab.config import Config, Evaluation, Model, Options, Profile, Training, number
from posenc.lab.data.batching import batches_within, counter_seed
from posenc.lab.data.corpus import Corpus, load_corpus, make_corpus
from posenc.lab.data.documents import read_source
from posenc.lab.data.ngram import NGrams, unigram_entropy
from posenc.lab.data.tokens import BYTES, vocabulary_of
from posenc.lab.decoder import Decoder, LabModel
from posenc.lab.metrics import (
    BITS,
    FULL,
    NGRAM,
    NGRAM_ORDERS,
    NGRAM_PROBE,
    REACH,
    UNIGRAM,
    WINDOW,
    Curve,
    Metric,
    Values,
)
from posenc.lab.specs import ends_at_table, standard_encodings
from posenc.lab.tasks.task import READ, Data, Task, profiles

Logits = Callable[[Tensor], Tensor]  # (batch, length) tokens to the logits of the last, (batch, n, vocabulary)
ROUNDING = 1e-4  # of logits, which are about 1 in size: far above float32's and far below what a figure shows


def score_windows(
    logits: Logits,
    corpus: Corpus,
    lengths: Sequence[int],
    config: Config,
    device: torch.device,
    view: str = FULL,
) -> Iterator[Values]:
    """Bits in each window at each length, and of the whole text the bits by position at the longest one.

    Args:
        logits: the model, in evaluation mode.
        corpus: where the windows lie.
        lengths: bytes that are fed, growing.
        config: the numbers of the run.
        device: of the model.
        view: whose values they are.
    """
    ends, documents = corpus.windows
    length, scored = config.training.train_length, config.training.train_length // 2
    for fed in lengths:
        losses = _losses_before(ends, fed, logits, corpus, config, device)
        bits = losses[:, -scored:].mean(1)
        yield Values("bits", bits.tolist(), fed, view, documents=documents)
        if corpus.tokenizer:
            perplexity = 2.0 ** (float(bits.mean()) / corpus.tokens_per_byte(scored))
            yield Values(PERPLEXITY.name, [perplexity], fed, view)
        if view == FULL and fed == lengths[-1]:
            width = math.gcd(length, max(1, length // 4))
            means = losses.mean(0).view(-1, width).mean(1).tolist()
            yield Values("bits_by_position", means, fed, view, items=range(width, fed + 1, width))


def score_truncated(logits: Logits, corpus: Corpus, config: Config, device: torch.device) -> Iterator[Values]:
    """Bits of the targets of `score_windows` when the model is fed only the last c tokens of context, for c below T.

    The protocol of the training length T at a smaller scale: the scored bytes of a window are cut into pieces
    of c/2, the model reads the c bytes that end with each piece, so that every byte has c/2 to c − 1 bytes of context,
    as it has T/2 to T − 1 at c = T. Each c costs one forward over T bytes a window.
    """
    ends, documents = corpus.windows
    trained = config.training.train_length
    for context in truncated_contexts(trained)[:-1]:
        piece = context // 2
        piece_ends = [end - back for end in ends for back in range(trained // 2 - piece, -1, -piece)]
        losses = _losses_before(piece_ends, context, logits, corpus, config, device)[:, -piece:]
        bits = losses.reshape(len(ends), -1).mean(1).tolist()
        yield Values(REACH, bits, context, documents=documents)


def truncated_contexts(trained: int) -> list[int]:
    """The contexts T/16, T/8, T/4, T/2, T that are even numbers of tokens."""
    return [trained // k for k in (16, 8, 4, 2, 1) if trained % (2 * k) == 0]


def _losses_before(
    ends: Sequence[int], fed: int, logits: Logits, corpus: Corpus, config: Config, device: torch.device
) -> Tensor:
    """Bits per byte of the ``fed`` tokens before each end, (ends, fed), or of as many as the model has logits of."""
    batches = batches_within(ends, fed, config.model.heads, corpus.vocabulary)
    losses = torch.cat([window_losses(logits, corpus.validation, batch, fed, device) for batch in batches])
    return losses * corpus.tokens_per_byte(config.training.train_length // 2)


class SlidingWindowModel:
    """Logits of the last bytes under a sliding window, fed nothing that they cannot see.

    Through L layers under a window of w, the last n predictions see n + L (w - 1) bytes; those are fed, each at its
    position. An encoding of a user's own may reckon with bytes out of sight, so the first text tells whether the rest
    may go.

    Args:
        model: takes ``tokens``, ``window`` and ``start``, in evaluation mode.
        window: bytes that a byte sees in each layer, itself included.
        scored: bytes whose logits are wanted.
        layers: how many there are.
    """

    def __init__(self, model: Callable[..., Tensor], *, window: int, scored: int, layers: int) -> None:
        self.model, self.window, self.scored = model, window, scored
        self.seen = scored + layers * (window - 1)
        self.local: bool | None = None  # not tried yet

    def __call__(self, tokens: Tensor) -> Tensor:
        """``tokens`` (batch, length) to the logits of the last ``scored``."""
        if tokens.shape[1] <= self.seen:
            return self._last(tokens)
        if self.local is None:
            first = tokens[:1]
            self.local = bool((self._last(first) - self._of_seen(first)).abs().max() <= ROUNDING)
        return self._of_seen(tokens) if self.local else self._last(tokens)

    def _last(self, tokens: Tensor, start: int = 0) -> Tensor:
        return self.model(tokens, window=self.window, start=start)[:, -self.scored :]

    def _of_seen(self, tokens: Tensor) -> Tensor:
        return self._last(tokens[:, -self.seen :], start=tokens.shape[1] - self.seen)


@torch.no_grad()
def window_losses(logits: Logits, stream: Tensor, ends: Sequence[int], length: int, device: torch.device) -> Tensor:
    """Bits of each of the last bytes of the ``length`` before each end, ``(windows, n)`` float64 on the host.

    n is as many as there are logits of.
    """
    index = torch.tensor(ends)[:, None] + torch.arange(-length - 1, 0)
    tokens = stream[index].long().to(device)  # (windows, length + 1)
    out = logits(tokens[:, :-1]).float()
    targets = tokens[:, -out.shape[1] :]
    nats = F.cross_entropy(out.flatten(0, 1), targets.flatten(), reduction="none")
    return nats.view(targets.shape).cpu().double() / math.log(2)


def draw_batch(stream: Tensor, seed: int, step: int, *, batch_size: int, length: int) -> Tensor:
    """The training batch of a step, ``(batch_size, length + 1)`` int64: a pure function of its arguments."""
    generator = torch.Generator().manual_seed(counter_seed("batch", seed, step))
    starts = torch.randint(len(stream) - length, (batch_size, 1), generator=generator)
    return stream[starts + torch.arange(length + 1)].long()


PROBED = 64  # windows
LLAMA_125M = "llama-125m"
NGRAM_TOKENS = 2**26  # that n-grams are counted in at most: of the first batches; they need 3 GB
# One value a length, of all scored tokens together: a mean of perplexities of windows would be another number. It is
# shown and never judged, so that the margin decides nothing.
PERPLEXITY = Metric("perplexity", "perplexity per token", "lower", margin=0.1)

QUICK = ("nope", "sinusoidal", "rope", "alibi", "t5", "fire", "fox", "stick-breaking")
# Of the encodings that kernels of PyTorch's serve on a GPU: one or two of each kind, and a mix.
FULL_SIZE = ("nope", "sinusoidal", "rope", "alibi", "t5", "fox", "rope+alibi")


@dataclass(frozen=True)
class TextOptions(Options):
    """The numbers of texts alone."""

    tokens: str = number(
        BYTES, "What a token is: bytes, or bpe:N, byte pairs of a vocabulary of N trained on the training text."
    )
    max_epochs: int = number(
        0, "How often a training may read its text; 0: any number of times.", least=0, most=10**9, decides=False
    )


class Text(Task):
    """Bits per byte at growing lengths."""

    name = "text"
    title = "Bits per byte of a language model, by context length"
    question = (
        "What is the next byte? Models are trained on short pieces of text and read longer ones; at every length the "
        "same bytes are scored, and only the text before them grows."
    )
    shows = (
        "Constant bits per byte at longer lengths mean that an encoding extrapolates; falling ones, that the model "
        "uses the additional context; rising ones, that it degrades."
    )
    metrics = (Metric("bits", BITS, "lower"),)
    curves = (Curve("bits_by_position", "position in the text, bytes", of="bits"),)
    options: ClassVar[type[Options]] = TextOptions
    source = "python"
    per_second = "bytes"
    loss_unit = math.log(2)

    def profile(self, name: str) -> Profile:
        """Minutes on two cores (quick), hours with more seeds and longer (standard), for a GPU (full), for eight."""
        known = {"quick": _quick(), "standard": _standard(), "full": _full(), LLAMA_125M: _llama_125m()}
        return profiles(known, name)

    def check(self, config: Config) -> None:
        """Half of the trained length is scored, in tokens that there are."""
        vocabulary_of(tokens_of(config))
        length = config.training.train_length
        if length % 2 or length < 4:
            raise ValueError(
                f"--train-length {length}: an even number of at least 4 is needed, since half of it is scored"
            )

    def data(self, source: str, config: Config) -> Data:
        """The corpus of a run, large enough for its windows."""
        scored, windows = config.training.train_length // 2, config.evaluation.windows
        corpus = make_corpus(
            read_source(source), window=config.longest + 1, windows=windows, scored=scored, tokens=tokens_of(config)
        )
        facts = {**corpus.details, "reading": describe_epochs(config, corpus)}
        return dataclasses.replace(corpus, details=facts)

    def load(self, folder: Path, config: Config) -> Data:
        """Checked against its hashes."""
        return load_corpus(folder)

    def model(self, spec: str, config: Config, data: Data, seed: int) -> LabModel:
        """A decoder."""
        vocabulary = vocabulary_of(tokens_of(config))
        return Decoder(spec, self.shape(config), hidden=config.model.hidden, seed=seed, vocabulary=vocabulary)

    def metrics_of(self, config: Config) -> tuple[Metric, ...]:
        """Of byte pairs also the perplexity, which of bytes says nothing new."""
        return self.metrics if tokens_of(config) == BYTES else (*self.metrics, PERPLEXITY)

    def curves_of(self, config: Config) -> tuple[Curve, ...]:
        """By position, which is counted in tokens."""
        if tokens_of(config) == BYTES:
            return self.curves
        return tuple(dataclasses.replace(curve, axis=curve.axis.replace("bytes", "tokens")) for curve in self.curves)

    def speed_unit(self, config: Config) -> str:
        """Tokens, where byte pairs are read."""
        return self.per_second if tokens_of(config) == BYTES else "tokens"

    def loss_unit_of(self, data: Data) -> float:
        """A bit for each byte of the training text."""
        return self.loss_unit * corpus_of(data).training_bytes_per_token

    def batch(self, data: Data, config: Config, seed: int, step: int) -> tuple[Tensor, ...]:
        """Pieces of text, ``(batch_size, train_length + 1)``."""
        t = config.training
        return (draw_batch(corpus_of(data).train, seed, step, batch_size=t.batch_size, length=t.train_length),)

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        """Of the next byte, at every byte."""
        (tokens,) = batch
        logits = model(tokens[:, :-1])  # (batch, length, vocabulary)
        return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())

    def evaluate(
        self, model: LabModel, data: Data, spec: str, config: Config, device: torch.device
    ) -> Iterator[Values]:
        """Bits in the windows at each length, of the whole text and under a sliding window; none past a table."""
        corpus, lengths = corpus_of(data), config.tested[:1] if ends_at_table(spec) else config.tested
        length, layers = config.training.train_length, config.model.layers
        yield from score_windows(model, corpus, lengths, config, device)
        yield from score_truncated(model, corpus, config, device)
        sliding = SlidingWindowModel(model, window=length, scored=length // 2, layers=layers)
        yield from score_windows(sliding, corpus, lengths[1:], config, device, WINDOW)

    def probe(self, model: LabModel, data: Data, config: Config, device: torch.device) -> float:
        """Bits at the trained length, in windows of different documents as far as there are as many."""
        corpus, length = corpus_of(data), config.training.train_length
        ends = corpus.windows.ends[_probed(corpus)]
        parts = [
            window_losses(model, corpus.validation, batch, length, device)[:, -(length // 2) :]
            for batch in batches_within(ends, length, config.model.heads, corpus.vocabulary)
        ]
        return float(torch.cat(parts).mean()) * corpus.tokens_per_byte(length // 2)

    def baselines(self, data: Data, config: Config) -> Iterator[Values]:
        """The best n-gram of the tokens that the trainings with seed 0 read, and the entropy of single ones."""
        corpus, length = corpus_of(data), config.training.train_length
        scored, kind = length // 2, corpus.train.dtype
        per_byte = corpus.tokens_per_byte(scored)
        steps = min(config.training.steps, math.ceil(NGRAM_TOKENS / self.amount(config)))
        pieces = [self.batch(data, config, 0, step)[0].to(kind) for step in range(steps)]
        windows = corpus.validation[torch.tensor(corpus.windows.ends)[:, None] + torch.arange(-length - 1, 0)].numpy()
        grams = NGrams(torch.cat(pieces).numpy(), corpus.vocabulary)
        by_order = [bits.mean(1) * per_byte for bits in grams.bits(windows, scored)]
        means = [float(bits.mean()) for bits in by_order]
        best = by_order[means.index(min(means))]
        yield Values(NGRAM, best.tolist(), length, documents=corpus.windows.documents)
        yield Values(NGRAM_ORDERS, means, items=range(1, len(means) + 1))
        yield Values(NGRAM_PROBE, [float(best[_probed(corpus)].mean())])
        yield Values(UNIGRAM, [unigram_entropy(windows[:, -scored:]) * per_byte])

    def read_for_attention(self, data: Data, config: Config) -> tuple[Tensor, Tensor | None] | None:
        """A few windows at the training length."""
        corpus, length = corpus_of(data), config.training.train_length
        ends = torch.tensor(corpus.windows.ends[_probed(corpus)][:READ])
        return corpus.validation[ends[:, None] + torch.arange(-length, 0)].long(), None


def _probed(corpus: Corpus) -> slice:
    """Which windows a probe scores."""
    every = max(1, len(corpus.windows.ends) // PROBED)
    return slice(0, every * PROBED, every)


def tokens_of(config: Config) -> str:
    """What a token is; bytes in tasks on text that have no such option."""
    return str(getattr(config.options, "tokens", BYTES))


def corpus_of(data: Data) -> Corpus:
    """The data as a corpus."""
    assert isinstance(data, Corpus)
    return data


def describe_epochs(config: Config, corpus: Corpus) -> str:
    """How often each training reads the text of a corpus; a ValueError if that is more often than it may.

    Up to four times are about as good as new text (arXiv:2305.16264); a large model that reads it much more often
    learns it by heart, and then lengths are compared on what is no language model.
    """
    t, most = config.training, getattr(config.options, "max_epochs", 0)
    per_token = corpus.training_bytes_per_token
    read_bytes, train_bytes = t.steps * t.batch_size * t.train_length * per_token, len(corpus.train) * per_token
    if most and read_bytes > most * train_bytes:
        raise ValueError(
            f"data: each training would read its {train_bytes / 1e6:.1f} MB {read_bytes / train_bytes:.1f} times, more "
            f"than the {most} of --max-epochs: give at least {read_bytes / most / 1e6:.0f} MB of text to train "
            "on (--data hf:NAME, a folder or a file), fewer --steps, or more --max-epochs (0: no limit)"
        )
    return f"each training reads {read_bytes / 1e6:.1f} MB, {read_bytes / train_bytes:.2g} times the text"


def _quick() -> Profile:
    """Under 10 minutes on two cores: about 95 s of training and 30 of evaluation for each encoding on one."""
    config = Config("text", training=Training(steps=250), evaluation=Evaluation(windows=96), options=TextOptions())
    return Profile("quick", QUICK, 1, config)


def _standard() -> Profile:
    training = Training(train_length=128, steps=800, warmup=100)
    config = Config("text", training=training, evaluation=Evaluation(windows=1000), options=TextOptions())
    return Profile("standard", (*standard_encodings(), "rope+alibi", "rope+fox"), 3, config)


def _full() -> Profile:
    """One GPU of the H100's class; not yet measured on any GPU. 102 million parameters."""
    training = Training(
        train_length=2048, steps=1000, lr=6e-4, warmup=100, checkpoint_every=250, precision="bfloat16", compile=True
    )
    model, evaluation = Model(dim=1024, layers=8, heads=16), Evaluation(windows=32)
    return Profile("full", FULL_SIZE, 1, Config("text", model, training, evaluation, TextOptions(max_epochs=4)))


def _llama_125m() -> Profile:
    """The shape of small LLaMA models, 124 million parameters, for a node of 8 GPUs; not yet measured on any GPU."""
    training = Training(
        train_length=1024, steps=5000, batch_size=512, lr=6e-4, warmup=500, checkpoint_every=250, precision="bfloat16",
        compile=True,
    )  # fmt: skip
    model, evaluation = Model(dim=768, layers=12, heads=12), Evaluation(lengths=(1, 2, 4, 8), windows=256)
    options = TextOptions(tokens="bpe:25600", max_epochs=4)
    return Profile(LLAMA_125M, FULL_SIZE, 1, Config("text", model, training, evaluation, options))
