"""What somebody needs of a positional encoding, and what the config of their checkpoint says; no weights are read."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from pathlib import Path

from posenc.arguments import LONGEST, check_choice, check_number, check_whole
from posenc.hf.config.facts import ModelFacts
from posenc.hf.config.layers import HEADS
from posenc.hf.config.rope_config import RopeConfig, read_rope
from posenc.hf.config.rotation import text_rope
from posenc.hf.config.text_config import TextConfig, count_at, max_length, width_of_heads
from posenc.hf.explanation.report import facts, schedule_facts
from posenc.hf.families.family import COMPRESSED, HEAVILY_COMPRESSED
from posenc.hf.limits import TOKENS, WIDTH

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
_BFLOAT16 = 2  # bytes
_KEY_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num")
_COMPRESSED = (COMPRESSED, HEAVILY_COMPRESSED)
_KINDS = {  # model types whose kind their layers do not tell
    "whisper": "speech", "moonshine": "speech", "moonshine_streaming": "speech", "speech_to_text": "speech",
    "wav2vec2": "speech", "wav2vec2_conformer": "speech", "wav2vec2_bert": "speech", "hubert": "speech",
    "esm": "protein", "esmc": "protein", "musicgen": "music", "musicgen_melody": "music",
}  # fmt: skip


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


def read_checkpoint(path: Path, name: str = "") -> tuple[Checkpoint, str]:
    """The facts of a configuration and the kind of model that it describes, a key of `KINDS`.

    Args:
        path: a config.json, the folder of a checkpoint, or a GGUF file.
        name: how commands call it, such as a model of the Hugging Face Hub; "": the path.

    Raises:
        ValueError: as `read_rope`.
    """
    config = read_rope(path)
    checkpoint = checkpoint_of(config, path)
    return replace(checkpoint, path=name or checkpoint.path, name=name or checkpoint.name), kind_of(config)


def checkpoint_of(config: RopeConfig, path: Path) -> Checkpoint:
    """The facts of a configuration that was read."""
    attending = [layer for layer in config.facts.distinct_layers if layer.attends]
    rows = next((scheme.positions or scheme.rows for scheme in config.position_schemes if scheme.rows), None)
    declared = max_length(config.text_config) if any(config.rotations.values()) else rows
    declared = declared or _declared_length(config.text_config)
    # A window as long as the declared context, as in Phi-3, keeps no distance out; nor does a window in a layer that
    # also attends to compressed keys of all earlier tokens, as in DeepSeek-V4.
    windows = [layer.window for layer in attending if layer.window is not None and layer.kind not in _COMPRESSED
               and (declared is None or layer.window < declared)]  # fmt: skip
    a_layer, cached_tokens = _cache(config)
    return Checkpoint(
        path=str(path), name=path.parent.name if path.name == "config.json" and path.parent.name else path.name,
        config=config, declared=declared,
        windowed="No" if not windows else "All" if len(windows) == len(attending) else "Some",
        window=max(windows, default=None), cache=a_layer, cached_tokens=cached_tokens, slowest=_slowest(config),
    )  # fmt: skip


def _slowest(config: RopeConfig) -> float | None:
    """Wavelength of the slowest pair of layers without a window, scaled as the configuration says."""
    layers = [layer for layer in facts(config)["layers"].values() if layer is not None and layer["window"] is None]
    return max(
        (layer["scaled_wavelengths"]["longest"] for layer in layers if layer["scaled_wavelengths"]), default=None
    )


def kind_of(config: RopeConfig) -> str:
    """The kind of model, as far as a configuration says it."""
    causal = {layer.causal for layer in config.facts.distinct_layers if layer.attends}
    names = {kind["kind"] for kind in schedule_facts(config.facts)["kinds"]}
    root = config.config.get("model_type")
    if (known := _KINDS.get(config.model_type) or _KINDS.get(root if isinstance(root, str) else "")) is not None:
        return known
    if any("Grid" in scheme.builds for scheme in config.position_schemes):
        return "vision"
    if {"encoder", "decoder"} <= names:
        return "encoder-decoder"
    if "vision_config" in config.config:
        return "vision-language"
    return "encoder" if causal == {False} else "decoder"


def _declared_length(text: TextConfig) -> int | None:
    """The context length that a model without rotation declares; MPT has a key of its own for it."""
    return max_length(text) or count_at(text, "max_seq_len", TOKENS)


def _cache(config: RopeConfig) -> tuple[int | None, tuple[int | None, ...]]:
    """Bytes of the cache for one token in one layer, and the most tokens that each layer keeps; None: not known.

    Not known where layers differ in their heads, share each other's keys, or compress them: one width would be wrong.
    """
    text, read = config.text_config, config.facts
    attending = [layer for layer in read.layers if layer.attends]
    widths = {text_rope(rope).head_dim for rope in config.rotations.values() if rope is not None}
    differs = len(widths) > 1 or bool(text.get("num_kv_shared_layers"))
    compressed = any(layer.kind in _COMPRESSED or layer.not_read for layer in attending)
    channels = _channels(read, next(iter(widths), None))
    if channels is None or not attending or differs or compressed or not all(layer.causal for layer in attending):
        return None, ()
    return channels * _BFLOAT16, tuple(layer.window for layer in attending)


def _channels(model: ModelFacts, width: int | None) -> int | None:
    """Numbers that a layer caches for one token; ``width``: of a head of a model that rotates."""
    if model.latent is not None and model.latent.keys is not None:  # all heads share one latent vector and one key
        return model.latent.keys + (model.latent.rotated or 0)
    heads, width = _key_heads(model.text), width or width_of_heads(model.text)
    return None if heads is None or width is None else 2 * heads * width


def _key_heads(text: TextConfig) -> int | None:
    """Heads of keys and values, fewer than those of queries where these share them."""
    if text.get("multi_query") is True and not text.get("new_decoder_architecture"):  # Falcon, GPT-BigCode
        return 1
    counts = (count_at(text, key, WIDTH) for key in (*_KEY_HEADS, *HEADS))
    return next((count for count in counts if count is not None), None)
