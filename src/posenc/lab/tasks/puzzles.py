"""Generated tasks: recall, passkey, flipflop, counting, copy. Each class says what a model must answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from posenc.lab.config import Config, Options, number
from posenc.lab.tasks.sequences import BY_DISTANCE, NO_ANSWER, DrawnSequences, Sequences

NOISE = 8  # of recall: tokens without meaning
WRITE, READ, IGNORE = 2, 3, 4  # of flipflop, after the bits
PASS, TICK, RESET, ZERO = 0, 1, 2, 3  # of counting; ZERO is the first answer
RESETS, TICKS = 0.1, 0.4  # of counting: how often


@dataclass(frozen=True)
class RecallNumbers(Options):
    """Numbers of the recall task."""

    pairs: int = number(8, "Pairs of a key and its value in a sequence.", least=1)
    symbols: int = number(16, "Different keys, and as many values.", least=2)


class Recall(Sequences[RecallNumbers]):
    """Recall: a key and its value are shown once, and once the key is asked for its value.

        .. .. k3 v1 .. .. k7 v4 .. .. k7 .. .. .. k3 .. ..
                                      └ v4        └ v1

    The value is due but not shown again: otherwise the last keys would follow by elimination. All keys are asked in the
    last part, each as far from where it was shown as a draw decides, all octaves alike as far as there is room: 8 to 16
    tokens back as often as 16 to 32. Past the trained length half of the keys lie within it, the others beyond it.
    Multi-query associative recall after Arora et al., Zoology, arXiv 2312.04927, section 4.1.
    """

    name = "recall"
    title = "Which value belongs to a key"
    question = (
        "Pairs of a key and a value are strewn among tokens without meaning; at the end each key comes back once, and "
        "after it its value is due."
    )
    shows = (
        "A model that solves it attends to the earlier place with the same content and reads the token after it, at "
        "any distance. The pairs stay as many at all lengths; those that count past the trained length lie beyond it."
    )
    options, curves, beyond = RecallNumbers, (BY_DISTANCE,), True
    sizes: ClassVar = {"standard": {"steps": 800}, "full": {"pairs": 32, "symbols": 64}}

    def vocabulary(self, config: Config) -> int:
        """Keys, values, noise."""
        return 2 * self.numbers(config).symbols + NOISE

    def shortest(self, config: Config) -> int:
        """Half of it holds the pairs, the other half asks for them."""
        return 4 * self.numbers(config).pairs

    def chance(self, config: Config) -> float:
        """One value of all."""
        return 1 / self.numbers(config).symbols

    def check(self, config: Config) -> None:
        """See `Task`."""
        o = self.numbers(config)
        if o.pairs > o.symbols:
            raise ValueError(f"--pairs {o.pairs}: at most --symbols {o.symbols} are needed")
        super().check(config)

    def draw(self, config: Config, length: int, count: int, generator: torch.Generator) -> DrawnSequences:
        """See the class. A slot is two tokens."""
        pairs, symbols, slots = self.numbers(config).pairs, self.numbers(config).symbols, length // 2
        trained = config.training.train_length
        keys = torch.rand((count, symbols), generator=generator, dtype=torch.float64).argsort(1)[:, :pairs]
        values = symbols + torch.randint(symbols, (count, pairs), generator=generator)
        late = min(length, trained) // 4
        queried = (
            torch.rand((count, late), generator=generator, dtype=torch.float64).argsort(1)[:, :pairs] + slots - late
        )
        shown = _places(queried, slots, trained // 2, generator)
        tokens = 2 * symbols + torch.randint(NOISE, (count, slots, 2), generator=generator)
        answers, distances = torch.full_like(tokens, NO_ANSWER), torch.zeros_like(tokens)
        row = torch.arange(count)[:, None]
        tokens[row, shown] = torch.stack([keys, values], -1)
        tokens[row, queried, 0] = keys
        answers[row, queried, 0], distances[row, queried, 0] = values, 2 * (queried - shown) - 1
        return DrawnSequences(tokens.flatten(1), answers.flatten(1), distances.flatten(1))


def _places(queried: Tensor, slots: int, trained: int, generator: torch.Generator) -> Tensor:
    """Where pairs are shown that are asked in the slots ``asked`` (count, pairs), none of them anywhere twice.

    Where there are more slots than ``trained``, the second half of the pairs lies farther back than that.
    """
    count, pairs = queried.shape
    free = torch.ones(count, slots, dtype=torch.bool).scatter(1, queried, False)
    shown = []
    for pair in range(pairs):
        back = queried[:, pair : pair + 1] - torch.arange(slots)
        reach = back > trained if slots > trained and pair >= pairs // 2 else (back > 0) & (back <= trained)
        weights = (free & reach) / back.clamp(min=1).double()
        shown.append(torch.multinomial(weights, 1, generator=generator))
        free.scatter_(1, shown[-1], False)
    return torch.cat(shown, 1)


@dataclass(frozen=True)
class PasskeyNumbers(Options):
    """Numbers of the passkey task."""

    needle: int = number(4, "Words that are hidden.", least=1)
    words: int = number(12, "Different words of the text.", least=4)


class Passkey(Sequences[PasskeyNumbers]):
    """Passkey: a few words are hidden in a long monotonous text and asked for at the end.

        1 2 3 4 5 5 8 2 6 1 2 3 … 7 0 1 1 8 2 6
                  └ the needle ┘          └── 8 2 6 1

    The text goes on to the next word, from the last to the first. The needle has no word of its own: it begins where a
    word is said twice, and its words are those of the text, each neither the one before it nor the next. Another word
    said twice asks for it. It lies anywhere, all places alike.
    After Mohtashami and Jaggi, Landmark Attention, arXiv 2305.16300, section 4.2, with tokens in place of sentences.
    """

    name = "passkey"
    title = "A few words hidden in a long text"
    question = (
        "A text goes through its words in order, again and again; at a place drawn at random a few of them stand out "
        "of order, and at the end they are asked for, one after the other."
    )
    shows = (
        "What is asked for lies the further back the longer the text: this is retrieval over distance. An encoding "
        "that prefers what is near may lose it, which perplexity would not show."
    )
    options, curves, beyond = PasskeyNumbers, (BY_DISTANCE,), True
    sizes: ClassVar = {"quick": {"steps": 800}, "full": {"needle": 6}}

    def vocabulary(self, config: Config) -> int:
        """The words."""
        return self.numbers(config).words

    def shortest(self, config: Config) -> int:
        """The needle twice, each after a word said twice."""
        return 2 * self.numbers(config).needle + 2

    def chance(self, config: Config) -> float:
        """Any word but the one before and the next."""
        return 1 / (self.numbers(config).words - 2)

    def draw(self, config: Config, length: int, count: int, generator: torch.Generator) -> DrawnSequences:
        """See the class."""
        words, needle = self.numbers(config).words, self.numbers(config).needle
        ask = length - needle
        depth = torch.rand(count, generator=generator).argsort() + torch.rand(count, generator=generator)
        start = 1 + (depth / count * (ask - needle - 1)).long().clamp(max=ask - needle - 2)[:, None]  # a word again
        steps = torch.ones(count, length, dtype=torch.int64)
        steps[:, :1] = torch.randint(words, (count, 1), generator=generator)
        hidden = start + 1 + torch.arange(needle)
        steps.scatter_(1, start, 0).scatter_(1, hidden, torch.randint(2, words, (count, needle), generator=generator))
        tokens = steps.cumsum(1) % words
        key = tokens.gather(1, hidden)
        tokens[:, ask:] = torch.cat([tokens[:, ask - 1 : ask], key[:, :-1]], 1)
        before = torch.zeros(count, ask, dtype=torch.int64)
        distances = (ask - hidden[:, :1]).expand(count, needle)  # the same for all words
        return DrawnSequences(tokens, torch.cat([before + NO_ANSWER, key], 1), torch.cat([before, distances], 1))


@dataclass(frozen=True)
class FlipFlopNumbers(Options):
    """Numbers of the flip-flop task."""

    ignored: float = number(
        0.8, "Share of instructions that write and read nothing; half of the rest write.", least=0, most=0.99
    )


class FlipFlop(Sequences[FlipFlopNumbers]):
    """Flip-flop: write a bit, ignore others, read the last one written.

        WRITE 1 IGNORE 0 IGNORE 0 READ 1 IGNORE 1 WRITE 0 … READ 0
                                  └ 1                       └ 0

    Liu et al., Exposing Attention Glitches with Flip-Flop Language Modeling, arXiv 2306.00946, section 3, FFL(0.8).
    """

    name = "flipflop"
    title = "The last bit that was written"
    question = (
        "Instructions write a bit, read it, or carry a bit to be ignored; at each reading the last bit written is due."
    )
    shows = (
        "Writing is as frequent in long sequences as in short ones, so hardly any answer lies further back than in "
        "training: what is lost, is lost to the length alone."
    )
    options, curves = FlipFlopNumbers, (BY_DISTANCE,)
    sizes: ClassVar = {"standard": {"steps": 800}}

    def vocabulary(self, config: Config) -> int:
        """Two bits, three instructions."""
        return 5

    def shortest(self, config: Config) -> int:
        """One writing, one reading."""
        return 4

    def chance(self, config: Config) -> float:
        """A coin."""
        return 0.5

    def draw(self, config: Config, length: int, count: int, generator: torch.Generator) -> DrawnSequences:
        """See the class. A slot is an instruction and its bit; the last one reads."""
        slots, ignored = length // 2, self.numbers(config).ignored
        chance = torch.rand((count, slots), generator=generator, dtype=torch.float64)
        order = torch.where(chance < ignored, IGNORE, torch.where(chance < (1 + ignored) / 2, WRITE, READ))
        order[:, 0], order[:, -1] = WRITE, READ
        bits = torch.randint(2, (count, slots), generator=generator)
        slot = torch.arange(slots).expand(count, slots)
        written = torch.where(order == WRITE, slot, 0).cummax(1).values  # slot 0 writes
        reads = order == READ
        bits = torch.where(reads, bits.gather(1, written), bits)
        nothing = torch.full_like(bits, NO_ANSWER)
        answers = torch.stack([torch.where(reads, bits, NO_ANSWER), nothing], -1)
        distances = torch.stack([torch.where(reads, 2 * (slot - written) - 1, 0), 0 * nothing], -1)
        return DrawnSequences(torch.stack([order, bits], -1).flatten(1), answers.flatten(1), distances.flatten(1))


@dataclass(frozen=True)
class CountingNumbers(Options):
    """Numbers of the counting task."""

    limit: int = number(9, "The largest count; no tick follows it before a reset.", least=1)


class Counting(Sequences[CountingNumbers]):
    """Counting: after each token, how many ticks there were since the last reset.

        PASS TICK PASS TICK RESET TICK PASS …
           0    1    1    2     0    1    1

    After the counting task of Golovneva et al., Contextual Position Encoding, arXiv 2405.18719, section 5.2; asked at
    every token rather than at the end.
    """

    name = "counting"
    title = "How many since the last reset"
    question = "Ticks, resets and tokens without meaning; after each, the number of ticks since the last reset is due."
    shows = (
        "Resets are as frequent in long sequences as in short ones, so hardly any answer needs tokens further back "
        "than in training: what is lost, is lost to the length alone."
    )
    options, curves = CountingNumbers, (BY_DISTANCE,)
    sizes: ClassVar = {"quick": {"steps": 800}}

    def vocabulary(self, config: Config) -> int:
        """Three tokens, and the counts."""
        return ZERO + self.numbers(config).limit + 1

    def shortest(self, config: Config) -> int:
        """Any."""
        return 2

    def chance(self, config: Config) -> float:
        """The most frequent count far from the start: none, or the limit."""
        on = TICKS / (TICKS + RESETS)
        return float(max(1 - on, on ** self.numbers(config).limit))

    def draw(self, config: Config, length: int, count: int, generator: torch.Generator) -> DrawnSequences:
        """See the class. Before the first reset, what is needed reaches back to the start."""
        limit = self.numbers(config).limit
        chance = torch.rand((count, length), generator=generator, dtype=torch.float64)
        reset, tick = chance < RESETS, (chance >= RESETS) & (chance < RESETS + TICKS)
        ticks, place = tick.long().cumsum(1), torch.arange(length)
        before = ticks - torch.where(reset, ticks, 0).cummax(1).values  # since the last reset, however many
        since = place - torch.where(reset, place, -1).cummax(1).values
        tokens = torch.where(reset, RESET, torch.where(tick & (before <= limit), TICK, PASS))
        return DrawnSequences(tokens, ZERO + before.clamp(max=limit), since)


@dataclass(frozen=True)
class CopyNumbers(Options):
    """Numbers of the copy task."""

    lag: int = number(7, "Tokens back that the token to be copied stands.", least=1)
    symbols: int = number(16, "Different tokens.", least=2)


class Copy(Sequences[CopyNumbers]):
    """Copy: say the token that stood a fixed number of tokens back.

        d a c f b a e …      lag 3
              d a c f …

    The mirror image of retrieval by content: an exact distance, and nothing else. Tokens are random.
    """

    name = "copy"
    title = "The token a fixed distance back"
    question = "Tokens are random; after each, the token a fixed number of tokens before it is due."
    shows = (
        "The distance is the same at all lengths: this asks whether an encoding can point at an exact distance, and "
        "whether it still can far from the start. Preferring what is near is not enough."
    )
    options = CopyNumbers
    sizes: ClassVar = {"full": {"lag": 15}}

    def vocabulary(self, config: Config) -> int:
        """The tokens."""
        return self.numbers(config).symbols

    def shortest(self, config: Config) -> int:
        """One answer."""
        return self.numbers(config).lag + 1

    def chance(self, config: Config) -> float:
        """One token of all."""
        return 1 / self.numbers(config).symbols

    def draw(self, config: Config, length: int, count: int, generator: torch.Generator) -> DrawnSequences:
        """See the class."""
        lag = self.numbers(config).lag
        tokens = torch.randint(self.numbers(config).symbols, (count, length), generator=generator)
        return DrawnSequences(tokens, torch.cat([torch.full((count, lag), NO_ANSWER), tokens[:, : length - lag]], 1))
