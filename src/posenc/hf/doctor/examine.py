"""Examines a checkpoint, a model or a configuration: reads it, chooses the checks, and lists what was not checked."""

from __future__ import annotations

import copy
import difflib
import json
import shlex
import sys
from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from posenc.arguments import check_flag, check_whole, shown
from posenc.hf.config.rope_config import RopeConfig, read_rope
from posenc.hf.config.rope_keys import RULES
from posenc.hf.doctor.corrections import correction_of, text_path
from posenc.hf.doctor.report import NOT_READ, Report, report_of
from posenc.hf.doctor.side_files import PARAMS, SIDE_FILES, on_side_files
from posenc.hf.doctor.tensors import TensorReport, on_weights
from posenc.hf.doctor.weights import ADAPTER, Weights, on_adapter, on_weight_files
from posenc.hf.findings import CONFIG, Finding, Level, MalformedError, NotReadError
from posenc.hf.limits import TOKENS, is_count
from posenc.hf.rules.case import has_remote_code
from posenc.hf.sources.load import Config, Source, Translated, load, translate
from posenc.input_files import UnreadableFileError

if TYPE_CHECKING:
    from torch import Tensor, nn

MOST = 4096  # default number of tokens that the loss is measured on
# Findings that the numbers of a file decide by themselves or by published models, whichever code reads them.
_DECIDED_BY_NUMBERS = {
    "original-length-not-below", "factor-lists-swapped", "original-length-declared", "mscale-missing", "mscale-alone",
    "short-factors-differ", "share-lost",
}  # fmt: skip
_LIKENESS = 0.8  # of two names of one key, by difflib's ratio


def examine(
    source: Source | nn.Module,
    *,
    weights: bool = False,
    text: str | Tensor | None = None,
    tokenizer: Any = None,
    most: int = MOST,
    trust_remote_code: bool = False,
) -> Report:
    """Check a checkpoint for mistakes in its positions.

    Args:
        source: a folder, a config.json, a GGUF file, a mapping, a configuration or a model of transformers. A model is
            measured too: its rotary module, scales, windows and attention function.
        weights: load the model of the folder or GGUF file as well, and measure its loss within the training length and
            beyond it, and under other bases and the other layout: does the loss agree with the configuration?
        text: to measure the loss on: a text, or its tokens ``(tokens,)``; None: the English of Python's own help.
        tokenizer: of a live model.
        most: tokens of the longest context that is measured; a longer declared length is reported as not measured.
        trust_remote_code: with ``weights``, whether code of the folder may run.

    Returns:
        A `Report` of findings, the worst first.

    Raises:
        ValueError: for what is none of these, and with ``weights`` for a source without any.
        OSError: for files that cannot be read.
    """
    check_flag("weights", weights)
    check_flag("trust_remote_code", trust_remote_code)
    check_whole("most", most, least=128, most=TOKENS)
    torch = sys.modules.get("torch")  # a model is there only where torch is loaded: a configuration needs none
    if torch is not None and isinstance(source, torch.nn.Module):
        return _of_model(source, weights, text, tokenizer, most)
    source = cast("Source", source)
    path = Path(source) if isinstance(source, str | Path) else None
    name = "configuration" if isinstance(source, Mapping) else str(path or type(source).__name__)
    folder = path if path is not None and path.is_dir() else None
    gguf = path if folder is None and path is not None and path.suffix == ".gguf" else None
    if folder is not None and (folder / ADAPTER).is_file() and not (folder / CONFIG).exists():
        return _of_adapter(folder)
    config = load(source)
    read, findings = read_or_finding(config)
    tensors = None
    if folder is not None:
        tensors = on_weights(folder, config, read)
        findings += [] if read is None else on_side_files(folder, read)
        findings += tensors.findings
    measured = folder or gguf
    if weights and measured is None:
        raise ValueError(f"weights: a folder or a GGUF file with a model is needed, got {shown(name)}")
    if weights and read is not None and measured is not None:
        findings += _of_weights(measured, read, text, tokenizer, most, trust_remote_code)
    if gguf is not None:
        findings = [_for_gguf(finding, _form_of(config), gguf) for finding in findings]
    checked, not_checked = _coverage(path, config, read is not None, tensors, weights=weights)
    count = None if read is None else read.text_config.get("num_hidden_layers")
    layers = f"{count} layer{'' if count == 1 else 's'}" if is_count(count) else ""
    subject = ", ".join(filter(None, ("" if read is None else read.model_type, layers)))
    return report_of(name, findings, checked, not_checked, subject)


def read_or_finding(source: Source) -> tuple[RopeConfig | None, list[Finding]]:
    """A configuration, parsed, and the findings on it; None where it cannot be parsed.

    Raises:
        UnreadableFileError: for a file that is no configuration at all.
        OSError: for a file that cannot be read.
    """
    config = load(source)
    level: Level = "suspicion" if has_remote_code(config) else "fault"
    try:
        read = read_rope(config)
    except NotReadError as error:
        return None, [Finding("rotation", f"is not read: {error}", NOT_READ, "note")]
    except MalformedError as error:
        return None, [
            Finding(path.rpartition(".")[2], text, "malformed", level, _renamed(config, path, error), False,
                    inside=error.inside)
            for path, text in error.problems.items()
        ]  # fmt: skip
    except UnreadableFileError:
        raise
    except ValueError as error:
        key, _, text = str(error).partition(" ")
        return None, [Finding(key, text, "unreadable", level)]
    return read, list(_on_config(read))


def _renamed(config: Config, path: str, error: MalformedError) -> Config | None:
    """The block with an unknown key under the name that it resembles most; None where there is none or it helps not."""

    def inner(part: Any, name: str) -> Any:
        return part.get(name) if isinstance(part, dict) else None

    *where, wrong = path.split(".")
    result = copy.deepcopy(config)
    block = reduce(inner, where, result)
    if not where or not isinstance(block, dict) or wrong in RULES or wrong not in block:
        return None
    near = difflib.get_close_matches(wrong, RULES.keys() - block.keys(), n=1, cutoff=_LIKENESS)
    renamed = {near[0] if near and key == wrong else key: value for key, value in block.items()}
    block.clear()
    block.update(renamed)
    try:
        read_rope(result)
    except MalformedError as again:
        if len(again.problems) >= len(error.problems):
            return None
    except ValueError:
        return None
    outer = len(error.inside.split(".")) if error.inside else 0
    return {where[outer]: reduce(inner, where[: outer + 1], result)}


def _on_config(read: RopeConfig) -> Iterator[Finding]:
    """The findings on a configuration, each with its correction."""
    remote = has_remote_code(read.config)
    for finding in read.findings:
        level: Level = finding.level
        if remote and finding.name not in _DECIDED_BY_NUMBERS:  # the folder's code may read what transformers' does not
            level = "note"
        keys, certain = (None, False) if level == "note" else correction_of(read, finding)
        yield finding._replace(level=level, corrected=keys, certain=certain, inside=text_path(read))
    if remote:
        text = "names code in the folder, which was not read: it may use the keys in another way than transformers' "
        text += "code of this model type, for which all findings hold"
        yield Finding("auto_map", text, "remote-code", "note")
    if "encodings" in (read.config.get("posenc") or {}):
        text = "says that layers have other encodings: load the folder with posenc.hf.attach.load"
        yield Finding("posenc", text, "encodings-attached", "note")


def _coverage(
    path: Path | None, config: Config, is_read: bool, tensors: TensorReport | None, *, weights: bool
) -> tuple[list[str], list[str]]:
    """What an examination of files checks and what it does not, in words for a report.

    Args:
        path: of a folder or a file.
        config: what it holds.
        is_read: whether its rotation could be parsed.
        tensors: the report on the weight files of a folder.
        weights: whether the loss is measured as well.
    """
    file = "configuration" if path is None else path.name
    if path is not None and (path / CONFIG).is_file():
        file = CONFIG
    checked = [f"{file} ({len(config)} keys)"]
    not_checked = [] if is_read else ["the rotation, which is not read"]
    is_gguf = path is not None and path.suffix == ".gguf"
    if tensors is None:
        why = "which llama.cpp compares with the keys itself" if is_gguf else "since a configuration alone was given"
        not_checked.append(f"tensors, {why}")
    elif path is not None:
        files = [name for name in (*SIDE_FILES, PARAMS) if (path / name).is_file() and name != file]
        checked += [name if name == PARAMS else f"lengths in {name}" for name in files]
        checked += tensors.checked
        not_checked += tensors.not_checked
    if weights:
        checked.append("the loss by length and under other rotations")
    elif tensors is not None or is_gguf:
        not_checked.append("weight values (--weights)")
    if has_remote_code(config):
        not_checked.append("code of the folder's own (auto_map)")
    return checked, not_checked


def _of_adapter(folder: Path) -> Report:
    """A report on the files of an adapter, whose positions the base decides."""
    findings = [*on_weight_files(folder, Weights(folder)), *on_adapter(folder)]
    not_checked = ["positions, which the base's config decides: examine the base, or the merged model"]
    return report_of(str(folder), findings, [ADAPTER, "weight files are whole"], not_checked)


def _of_model(model: nn.Module, weights: bool, text: str | Tensor | None, tokenizer: Any, most: int) -> Report:
    from posenc.hf.doctor.model_checks import config_of, on_loss, on_model

    config = config_of(model)
    read, findings = read_or_finding(config)
    findings += on_model(model)
    if weights and read is None:
        raise ValueError("weights: the configuration of this model cannot be read; examine it without weights first")
    if weights and read is not None:
        findings += on_loss(model, read, text, tokenizer, most)
    checked = [f"configuration ({len(config)} keys)", "rotary modules, scales, windows, attention function"]
    checked += ["the loss by length and under other rotations"] if weights else []
    not_checked = ["names and shapes of tensors", *([] if weights else ["weight values (weights=True)"])]
    return report_of(type(model).__name__, findings, checked, not_checked)


def _of_weights(
    path: Path, read: RopeConfig, text: str | Tensor | None, tokenizer: Any, most: int, trust_remote_code: bool
) -> list[Finding]:
    """Findings on the live model of a folder or a GGUF file: on modules, on the loss by length and other rotations."""
    import torch

    from posenc.hf.attach.loading import load_causal_lm, load_model, tokenizer_in
    from posenc.hf.doctor.model_checks import config_of, on_loss, on_model

    if path.is_file():  # of GGUF, dequantized and in transformers' order of channels
        model, own = load_causal_lm(path, dtype="float32")
        read, tokenizer = read_rope(config_of(model)), own if tokenizer is None else tokenizer
    else:
        if tokenizer is None and not isinstance(text, torch.Tensor):  # before weights, which take longer
            tokenizer = tokenizer_in(path, trust_remote_code=trust_remote_code)
        model = load_model(path, torch.float32, trust_remote_code=trust_remote_code, complete=False)
    return [*on_model(model), *on_loss(model, read, text, tokenizer, most)]


def _form_of(config: Config) -> Translated:
    """The translation of a GGUF file; without names where its keys are not understood."""
    try:
        return translate(config)
    except ValueError:
        return Translated({})


def _for_gguf(finding: Finding, form: Translated, file: Path) -> Finding:
    """The finding in the file's own keys; with the command that writes a corrected copy, as there is no config.json."""
    text, block = form.in_source_words(finding.text), (finding.corrected or {}).get("rope_parameters")
    if block is not None:
        command = f"posenc gguf {shlex.quote(str(file))} COPY --rope {shlex.quote(json.dumps(block))}"
        text = f"{text}; for a corrected copy: {command}"
    key = form.in_source_words(finding.key)
    return finding._replace(key=key, text=text, corrected=None, certain=False, file=file.name)
