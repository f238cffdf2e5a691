"""``posenc check-batch``: whether a saved batch is correct for a model, or for a small twin of a large one."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from posenc.input_files import naming
from posenc_cli.exit_codes import FAULT, OK, SUSPICION
from posenc_cli.parsing import Parser

if TYPE_CHECKING:
    import torch
    from torch import nn


def run_parser() -> Parser:
    """The options of the command."""
    parser = Parser(
        "check-batch",
        "Packed documents, padding, positions and labels, by what the model computes.",
        epilog="Exit code: 0 if the batch is correct, 1 if it is not, 3 if that could not be decided.",
    )
    parser.add_argument(
        "batch", metavar="BATCH", help="what the training loop calls the model with: a .pt of torch.save, a "
        ".safetensors, or a .json of lists",
    )  # fmt: skip
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument("--model", metavar="FOLDER", help="the model, with its weights")
    model.add_argument(
        "--config", metavar="PATH",
        help="its config.json or folder alone: a small twin with a layer of each kind is asked",
    )  # fmt: skip
    parser.add_argument(
        "--documents", metavar="KEY",
        help="the entry of BATCH that numbers the documents, -1 for padding, and is not passed to the model "
        "(default: by position ids, masks and cumulative lengths)",
    )  # fmt: skip
    parser.add_argument("--attention", metavar="NAME", help="eager, sdpa, flex_attention, ... (default: as configured)")
    parser.add_argument("--no-cache", action="store_true", help="call it with use_cache=False")
    parser.add_argument("--dtype", default="float32", help="of the weights (default: %(default)s)")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, ... (default: %(default)s)")
    parser.add_shared("--json")
    return parser


def run(options: Namespace) -> int:
    """Check a batch, and print the report.

    Raises:
        ValueError: for a batch or a model that cannot be read, and as `posenc.testing.check_batch`.
        OSError: for a file that cannot be read.
    """
    import torch
    from torch import Tensor

    from posenc.hf.batches import kernels_not_run, read_batch
    from posenc.testing.check_batch import check_batch

    dtype = getattr(torch, options.dtype, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise ValueError(f"--dtype: float32, bfloat16 or float16 expected, got {options.dtype}")
    with naming(options.batch):
        batch = read_batch(options.batch)
    documents = None
    if options.documents is not None:
        documents = batch.pop(options.documents, None)
        if not isinstance(documents, Tensor):
            raise ValueError(f"--documents: {options.batch} has no tensor {options.documents}, but {', '.join(batch)}")
    if options.no_cache:
        batch["use_cache"] = False
    model = model_of(options, dtype)
    on_device = {key: value.to(options.device) if isinstance(value, Tensor) else value for key, value in batch.items()}
    report = check_batch(model, on_device, documents=documents)
    missing = kernels_not_run(model)
    if options.as_json:
        findings = [vars(finding) for finding in report.findings]
        record = {
            "verdicts": report.verdicts, "condition": report.condition, "twin": options.config is not None,
            "documents_by": report.source, "checked": report.checked, "kernels_not_run": missing, "findings": findings,
        }  # fmt: skip
        sys.stdout.write(json.dumps(record, indent=1) + "\n")
    else:
        lines = [str(report)]
        if options.config is not None:
            lines.append("tested: a twin with random weights and a layer of each kind")
        if missing:
            lines.append(f"not run, as they are not installed here: kernels of {', '.join(missing)}")
        sys.stdout.write("\n".join(lines) + "\n")
    if not report.ok:
        return FAULT
    return SUSPICION if report.findings else OK


def model_of(options: Namespace, dtype: torch.dtype) -> nn.Module:
    """The model of a folder, or a twin of a configuration, in train mode."""
    from posenc.hf.batches import configuration, loaded, narrow_head, twin_of

    path = options.model or options.config
    with naming(path):
        if options.model is not None:
            model = loaded(path, dtype, options.attention)
        else:
            model = twin_of(configuration(path, options.attention)).to(dtype)
            narrow_head(model)
    moved: nn.Module = model.to(options.device)
    return moved.train()
