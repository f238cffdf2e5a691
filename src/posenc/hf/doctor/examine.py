"""Examines a checkpoint, a model or a configuration: chooses the checks, and lists what was not checked."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from posenc.arguments import check_flag, check_whole, shown
from posenc.hf.doctor.file_checks import PARAMS, on_folder, read_or_finding
from posenc.hf.doctor.report import Report, report_of
from posenc.hf.doctor.side_files import SIDE_FILES
from posenc.hf.doctor.tensors import TensorReport, on_weights
from posenc.hf.doctor.weight_files import ADAPTER, Weights, on_adapter, on_weight_files
from posenc.hf.findings import CONFIG, Finding
from posenc.hf.limits import TOKENS, is_count
from posenc.hf.rules.case import has_remote_code
from posenc.hf.sources.load import Config, Source, Translated, load, translate

if TYPE_CHECKING:
    from torch import Tensor, nn

MOST = 4096  # default number of tokens that the loss is measured on


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
    if _is_model(source):
        return _of_model(source, weights, text, tokenizer, most)
    source = cast("Source", source)
    path = Path(source) if isinstance(source, str | Path) else None
    name = "configuration" if isinstance(source, Mapping) else str(path or type(source).__name__)
    folder = path if path is not None and path.is_dir() else None
    if folder is not None and (folder / ADAPTER).is_file() and not (folder / CONFIG).exists():
        return _of_adapter(folder)
    config = load(source)
    read, findings = read_or_finding(config)
    tensors = None if folder is None else on_weights(folder, config, read)
    if folder is None and path is not None and path.suffix == ".gguf":
        findings = [_for_gguf(finding, _form_of(path), path) for finding in findings]
    checked, not_checked = coverage(path, config, read is not None, tensors, weights=weights)
    if folder is not None and read is not None:
        findings += on_folder(folder, read)
    findings += [] if tensors is None else tensors.findings
    if weights and (path is None or (folder is None and path.suffix != ".gguf")):
        raise ValueError(f"weights: a folder or a GGUF file with a model is needed, got {shown(name)}")
    if weights and read is not None and path is not None:
        findings += (
            _of_gguf(path, text, tokenizer, most) if folder is None
            else _of_weights(folder, text, tokenizer, most, trust_remote_code)
        )  # fmt: skip
    count = None if read is None else read.text_config.get("num_hidden_layers")
    layers = f"{count} layer{'' if count == 1 else 's'}" if is_count(count) else ""
    subject = ", ".join(filter(None, ("" if read is None else read.model_type, layers)))
    return report_of(name, findings, checked, not_checked, subject)


def _is_model(source: Source | nn.Module) -> TypeGuard[nn.Module]:
    """Whether a source is a module of torch, which then is loaded already: a configuration needs no torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(source, torch.nn.Module)


def coverage(
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
    if path is not None and path.is_dir():
        files = [name for name in (*SIDE_FILES, PARAMS) if (path / name).is_file()]
        checked += [name if name == PARAMS else f"lengths in {name}" for name in files if name != file]
    if tensors is None:
        is_gguf = path is not None and path.suffix == ".gguf"
        why = "which llama.cpp compares with the keys itself" if is_gguf else "since a configuration alone was given"
        not_checked.append(f"tensors, {why}")
    else:
        checked += tensors.checked
        not_checked += tensors.not_checked
    if weights:
        checked.append("the loss by length and under other rotations")
    elif path is not None and (path.is_dir() or path.suffix == ".gguf"):
        not_checked.append("weight values (--weights)")
    if has_remote_code(config):
        not_checked.append("code of the folder's own (auto_map)")
    return checked, not_checked


def _of_adapter(folder: Path) -> Report:
    """A report on the files of an adapter, whose positions the base decides."""
    adapter = Weights(folder)
    findings = [*on_weight_files(folder, adapter), *on_adapter(folder)]
    not_checked = ["positions, which the base's config decides: examine the base, or the merged model"]
    return report_of(str(folder), findings, [ADAPTER, "weight files are whole"], not_checked)


def _of_model(model: nn.Module, weights: bool, text: str | Tensor | None, tokenizer: Any, most: int) -> Report:
    from posenc.hf.doctor.model_checks import config_of, on_model

    read, findings = read_or_finding(config_of(model))
    findings += on_model(model)
    if weights:
        from posenc.evaluation.likelihood import tokens_of_text
        from posenc.hf.doctor.model_checks import on_loss

        if read is None:
            raise ValueError(
                "weights: the configuration of this model cannot be read; examine it without weights first"
            )
        findings += on_loss(model, read, tokens_of_text(text, tokenizer), most)
    checked = [f"configuration ({len(config_of(model))} keys)", "rotary modules, scales, windows, attention function"]
    checked += ["the loss by length and under other rotations"] if weights else []
    not_checked = ["names and shapes of tensors", *([] if weights else ["weight values (weights=True)"])]
    return report_of(type(model).__name__, findings, checked, not_checked)


def _of_weights(
    folder: Path, text: str | Tensor | None, tokenizer: Any, most: int, trust_remote_code: bool
) -> list[Finding]:
    """Findings on the live model of a folder."""
    import torch

    from posenc.hf.attach.loading import load_model
    from posenc.hf.doctor.model_checks import load_tokenizer

    if tokenizer is None and not isinstance(text, torch.Tensor):  # before weights, which take longer
        tokenizer = load_tokenizer(folder, trust_remote_code=trust_remote_code)
    model = load_model(folder, torch.float32, trust_remote_code=trust_remote_code, complete=False)
    return _model_findings(model, folder, text, tokenizer, most)


def _of_gguf(file: Path, text: str | Tensor | None, tokenizer: Any, most: int) -> list[Finding]:
    """Findings on the model of a GGUF file, dequantized and in transformers' order of channels."""
    from posenc.hf.attach.loading import load_causal_lm
    from posenc.hf.doctor.model_checks import config_of

    model, own_tokenizer = load_causal_lm(file, dtype="float32")
    findings = _model_findings(model, config_of(model), text, own_tokenizer if tokenizer is None else tokenizer, most)
    return [_for_gguf(finding, _form_of(file), file) for finding in findings]


def _form_of(file: Path) -> Translated:
    """The translation of a GGUF file; without names where its keys are not understood."""
    try:
        return translate(load(file))
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


def _model_findings(
    model: nn.Module, source: Source, text: str | Tensor | None, tokenizer: Any, most: int
) -> list[Finding]:
    """Findings on modules, on the loss by length, and on the loss under other rotations."""
    import torch

    from posenc.evaluation.likelihood import tokens_of_text
    from posenc.hf.doctor.model_checks import on_loss, on_model

    read, _ = read_or_finding(source)
    assert read is not None

    with torch.no_grad():
        return [*on_model(model), *on_loss(model, read, tokens_of_text(text, tokenizer), most)]
