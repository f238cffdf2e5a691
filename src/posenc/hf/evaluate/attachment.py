"""The loss that other encodings cost a trained model, before it is fine-tuned: `posenc attach --measure`.

The same windows of a text are read by the model as it is and with the encodings attached, so that the difference has a
paired interval. A model that was trained with one encoding and reads with another loses much: this is where
fine-tuning begins, and no comparison of encodings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from torch import nn

from posenc.evaluation.likelihood import Text, check_vocabulary, tokens_of, windows_of
from posenc.evaluation.log import MeasurementLog
from posenc.evaluation.report import AS_IS, PERPLEXITY, Evaluation, Reading
from posenc.hf.attach.loading import attach_to_folder, tokenizer_in
from posenc.hf.attach.supported import config_dict
from posenc.hf.config.facts import read_facts
from posenc.hf.evaluate.evaluate import DEPTHS, Evaluator, item_of, trained_by
from posenc.hf.evaluate.methods import Method

_LONGEST = 1024  # tokens of a window, unless the model was trained on fewer


def attach_and_measure(
    folder: Path, encodings: str, out: Path, layers: Iterable[int] | None = None, *, text: Text = None,
    windows: int = 8, trust_remote_code: bool = False, progress: Callable[[str], None] = lambda text: None,
) -> Evaluation:  # fmt: skip
    """Write a folder with a model under other encodings, and measure the loss before and after.

    Args:
        folder, encodings, out, layers, trust_remote_code: as `posenc.hf.attach.loading.attach_to_folder`.
        text: a file, or None for the built-in English.
        windows: of the text, each of the training length but at most 1,024 tokens.
        progress: is called with a line of text for each window.

    Returns:
        The losses of the methods "as_is" and ``encodings``.

    Raises:
        ValueError: as `attach_to_folder`, and for a text that is too short; nothing is written then.
    """
    tokenizer = tokenizer_in(folder, trust_remote_code=trust_remote_code)
    tokens = tokens_of(text, tokenizer)
    log, readings, evaluations = MeasurementLog(), list[Reading](), list[Evaluation]()

    def measure(model: nn.Module) -> None:
        trained = trained_by(read_facts(config_dict(model.config))) or _LONGEST
        length = min(_LONGEST, trained)
        last = max(1, length // 4)
        ends = windows_of(tokens, length, windows, last).ends
        check_vocabulary(tokens, model)
        items = [item_of(number, tokens[end - length : end]) for number, end in enumerate(ends)]
        evaluator = Evaluator(
            model, tokenizer, trained=trained, lengths=(length,), scored=last, answer_tokens=None, depths=DEPTHS,
            log=log, known=(), progress=progress,
        )  # fmt: skip
        method = Method(encodings if readings else AS_IS)
        readings.extend(evaluator.read(method, length, PERPLEXITY, length, item) for item in items)
        evaluations.append(evaluator.evaluation(folder.name, readings, items))

    attach_to_folder(folder, encodings, out, layers, trust_remote_code=trust_remote_code, measure=measure)
    return evaluations[-1]
