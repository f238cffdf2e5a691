"""What somebody needs of an encoding."""

from __future__ import annotations

from dataclasses import dataclass

TASKS = {  # what is asked for, and the comparisons of the laboratory that ask it
    "text": ("text",),
    "retrieval": ("passkey", "recall"),
    "counting": ("counting",),
    "state": ("flipflop",),
    "copying": ("copy",),
    "arithmetic": ("addition",),
    "images": ("images",),
    "video": (),
}
MODELS = ("new", "checkpoint")
ENGINES = ("any", "transformers", "vllm", "sglang", "llama.cpp")


@dataclass(frozen=True)
class Needs:
    """What is to be built.

    Args:
        model: "new", or "checkpoint": a trained model with RoPE whose texts are to become longer.
        task: one of `TASKS`, what must work at the longest length.
        train_length: tokens that the model is, or was, trained at.
        length: tokens that it must read.
        engine: what will serve it.
        tune: whether a checkpoint may be trained a little.

    Raises:
        ValueError: for a word that is not known, lengths below 1, and a checkpoint of pictures.
    """

    model: str = "new"
    task: str = "text"
    train_length: int = 4096
    length: int = 4096
    engine: str = "any"
    tune: bool = False

    def __post_init__(self) -> None:
        for name, known in (("model", MODELS), ("task", TASKS), ("engine", ENGINES)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}")
        for name in ("train_length", "length"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number of tokens from 1, got {value!r}")
        if self.model == "checkpoint" and self.task in ("images", "video"):
            raise ValueError("a checkpoint of pictures is not extended by these rules: model must be new for them")
        if self.tune and self.model == "new":
            raise ValueError("tune concerns a checkpoint: a new model is trained anyway")

    @property
    def times(self) -> int:
        """The longest length in trained lengths, rounded up."""
        return -(-self.length // self.train_length)
