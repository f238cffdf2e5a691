"""What somebody needs of a positional encoding, and what is known of the checkpoint that they start from."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path

from posenc.arguments import LONGEST, check_choice, check_number, check_whole
from posenc.hf.config.rope_config import RopeConfig
from posenc.hf.limits import TOKENS

KINDS = {  # of models, in words
    "decoder": "decoder language model",
    "code": "decoder language model for code",
    "research": "small research model on one GPU",
    "encoder": "text encoder",
    "encoder-decoder": "text encoder-decoder",
    "vision": "image encoder",
    "video": "video model",
    "vision-language": "vision-language model",
    "image-generation": "image generator",
    "speech": "speech model",
    "music": "music model",
    "protein": "model of protein sequences",
    "algorithmic": "model of arithmetic and algorithms",
    "other": "model of another kind",
}
TEXT = ("decoder", "code", "research", "encoder", "encoder-decoder")
DECODERS = ("decoder", "code", "research")
TASKS = {  # what must work at the longest length, in words
    "general": "no single task",
    "perplexity": "low perplexity",
    "retrieval": "retrieval from anywhere in the context",
    "streaming": "endless streams",
    "arithmetic": "arithmetic",
    "sorting": "sorting",
    "copying": "copying",
    "counting": "counting",
    "state": "tracking a state",
}
ALGORITHMIC = ("arithmetic", "sorting", "copying", "counting", "state")
MODELS = ("new", "checkpoint")
ENGINES = ("any", "transformers", "vllm", "sglang", "llama.cpp", "mlx")
SERVERS = ("vllm", "sglang", "llama.cpp", "mlx")
GIB = 2**30
# Bytes of a bfloat16 key/value cache a token, in the shape of Llama 3 8B: 32 layers of 8 key/value heads, 128 channels.
CACHE_A_TOKEN = 32 * 2 * 8 * 128 * 2


@dataclass(frozen=True)
class Checkpoint:
    """What a configuration says of a trained model.

    Attributes:
        path: as it was given.
        name: of the file or folder.
        config: what was read.
        declared: longest context that it declares; None where it does not.
        windowed: "All" layers that attend have a window below the declared length, "Some" or "No".
        window: tokens of the widest such window; None without one.
        cache: bytes of the key/value cache for one token in one layer, bfloat16; None: not known.
        cached_tokens: of each layer that attends, the most tokens that it keeps; None: all.
        slowest: wavelength of the slowest pair that rotates, in tokens; None: none rotates.
    """

    path: str
    name: str
    config: RopeConfig = field(repr=False)
    declared: int | None = None
    windowed: str = "No"
    window: int | None = None
    cache: int | None = None
    cached_tokens: tuple[int | None, ...] = ()
    slowest: float | None = None

    @property
    def weights(self) -> str:
        """What a command that measures takes: a folder or a GGUF file; "MODEL": neither was given."""
        path = Path(self.path)
        folder = path.parent if path.suffix == ".json" else path
        lone = folder == Path() and not any((*folder.glob("*.safetensors"), *folder.glob("*.bin")))
        return str(folder) if folder.exists() and not lone else "MODEL"


@dataclass(frozen=True)
class Needs:
    """What is to be built.

    Args:
        model: "new", or "checkpoint": a trained model whose context is to be extended.
        kind: one of `KINDS`.
        task: one of `TASKS`, what must work at the longest length.
        train_length: tokens (of images: patches) that the model is, or was, trained at.
        length: tokens that it must handle.
        engine: what will serve it.
        tune: whether a checkpoint may be fine-tuned.
        tune_tokens: for how many tokens in all; None: no limit is known.
        memory: GiB for the key/value cache of one sequence; None: no limit.
        checkpoint: what is known of it, where a configuration was given.

    Raises:
        ValueError: for a word that is not known, a length below 1, a memory that is not positive, and needs that
            contradict each other.
    """

    model: str = "new"
    kind: str = "decoder"
    task: str = "general"
    train_length: int = 4096
    length: int = 4096
    engine: str = "any"
    tune: bool = False
    memory: float | None = None
    checkpoint: Checkpoint | None = None
    tune_tokens: int | None = None

    def __post_init__(self) -> None:
        for name, known in (("model", MODELS), ("kind", KINDS), ("task", TASKS), ("engine", ENGINES)):
            check_choice(name, getattr(self, name), tuple(known))
        for name in ("train_length", "length"):
            check_whole(name, getattr(self, name), most=TOKENS)
        if self.memory is not None:
            check_number("memory", self.memory, above=0)
        if self.tune_tokens is not None:
            check_whole("tune_tokens", self.tune_tokens, least=self.length, most=LONGEST)
        if self.tune and self.model == "new":
            raise ValueError("tune is for a checkpoint; a new model is trained anyway: leave it out, or say checkpoint")
        if self.tune_tokens is not None and not self.tune:
            raise ValueError("tune_tokens is a budget of fine-tuning: say tune as well")
        if self.checkpoint is not None and self.model == "new":
            raise ValueError("a configuration was given, so model must be checkpoint, got 'new'")
        if self.task in ALGORITHMIC and self.kind not in (*DECODERS, "algorithmic"):
            raise ValueError(
                f"task {self.task} is answered for {', '.join(DECODERS)} and algorithmic models, got kind {self.kind!r}"
            )

    @property
    def ratio(self) -> float:
        """The longest length in training lengths."""
        return self.length / self.train_length

    @property
    def cache_gib(self) -> float | None:
        """GiB of the key/value cache at the longest length; None where the checkpoint's shape is not known."""
        held = self._cache_bytes(self.length)
        return None if held is None else held / GIB

    @property
    def fitting(self) -> int | None:
        """Tokens whose key/value cache fits into the memory; None without a memory, or where the shape is not known."""
        if self.memory is None or self._cache_bytes(1) is None:
            return None
        held = range(self.length + 1)
        return bisect_right(held, self.memory * GIB, key=lambda tokens: self._cache_bytes(tokens) or 0) - 1

    def _cache_bytes(self, tokens: int) -> int | None:
        if self.checkpoint is None:
            return CACHE_A_TOKEN * tokens
        if self.checkpoint.cache is None:
            return None
        each = (tokens if most is None else min(most, tokens) for most in self.checkpoint.cached_tokens)
        return self.checkpoint.cache * sum(each)
