"""Writes a trained model as a folder that transformers reads, and reads it back before it takes its name."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from transformers import GenerationConfig, LlamaForCausalLM
from transformers.utils import logging

from posenc.hf.byte_tokenizer import SEPARATOR, byte_tokenizer
from posenc.hf.llama import plain_llama as as_llama
from posenc.hf.modeling import PosencForCausalLM
from posenc.lab.export.card import model_card
from posenc.lab.export.convert import largest_difference, to_transformers
from posenc.lab.export.trained import find_job, load_job

NEW_BYTES = 256  # that `generate` adds if nobody says
ROUNDING = 1e-4  # of the largest logit; a wrong parameter or rotation is far above


@dataclass(frozen=True)
class Exported:
    """What was written."""

    to: Path
    spec: str
    seed: int
    difference: float  # largest one between its logits and those of the lab's model


def export(
    folder: Path, to: Path, *, spec: str | None = None, seed: int | None = None, plain: bool = False
) -> Exported:
    """Export one job.

    Args:
        folder: of the job, or of a run.
        to: a folder that does not exist yet, or is empty.
        spec, seed: which job of the run, where there are several.
        plain: write a `LlamaForCausalLM`, which needs no posenc.

    Raises:
        ValueError: where nothing can be exported; it says why. Then nothing is written.
    """
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise ValueError(f"--to {to}: there is something already; choose another folder")
    trained = load_job(find_job(folder, spec, seed))
    job, kind = trained.job, LlamaForCausalLM if plain else PosencForCausalLM
    model: LlamaForCausalLM | PosencForCausalLM = to_transformers(trained.decoder, job.spec, trained.settings)
    if isinstance(model, PosencForCausalLM) and plain:
        model = as_llama(model)
    model.generation_config = GenerationConfig(
        bos_token_id=SEPARATOR, eos_token_id=SEPARATOR, pad_token_id=SEPARATOR, max_new_tokens=NEW_BYTES
    )
    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=to.parent, prefix=f".{to.name}.") as temporary, _quiet():
        new = Path(temporary) / "model"
        model.save_pretrained(new)
        byte_tokenizer().save_pretrained(new)
        difference, largest = largest_difference(trained.decoder, kind.from_pretrained(new).eval(), trained.settings)
        if not difference <= ROUNDING * max(1.0, largest):
            raise ValueError(f"{job.spec}: read back, its logits differ by {difference:.1e}; nothing was written")
        card = model_card(trained, to.name, plain_llama=plain, difference=difference)
        (new / "README.md").write_text(card, encoding="utf-8")
        if to.exists():
            to.rmdir()
        new.rename(to)
    return Exported(to, job.spec, job.seed, difference)


@contextmanager
def _quiet() -> Iterator[None]:
    """No bars for files of a few megabytes."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
