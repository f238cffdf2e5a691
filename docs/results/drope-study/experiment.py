"""Trains SmolLM2-135M under each row of plan.md with equal tokens, and evaluates every row; stopped, it goes on.

    python experiment.py --model MODEL.gguf --documents FOLDER --work SCRATCH --out OUT --device cuda

PYTHONPATH is the root of a clone, whose examples/long_context it trains with. FOLDER has the folders train, study and
pilot (documents.json beside this file, and the context study's). SCRATCH gets
the checkpoints, 540 MB each. OUT gets training.jsonl, one line a row with the loss of every step, temperature.json, and
readings/ROW/TASK, the folders of `posenc.evaluation`. Rows are trained one after another in this process; each is
evaluated by processes of its own while the next one trains. A row whose checkpoint exists is not trained again, and a
reading that exists is not made again. `--row` limits a run to some rows.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from examples.long_context.drope import TEMPERATURES, dropped_config
from examples.long_context.tuning import Recipe, tune
from torch import Tensor

from posenc.evaluation.documents import read_documents
from posenc.evaluation.likelihood import evenly_spaced_pieces, token_losses
from posenc.frequencies.modules import LongRoPE
from posenc.hf.attach.loading import load_causal_lm
from posenc.hf.attach.rotary_modules import RotaryModules, scaled_config
from posenc.hf.evaluate import evaluate

HERE = Path(__file__).resolve().parent
ORIGINAL, TARGET = 8192, 12288
LONG_ROWS = 2  # rows of a step at the target; three rows at the original length have as many tokens
TRAINED = ("drope", "control", "yarn", "longrope", "pi")
AT_ORIGINAL = ("drope", "control")  # trained in rows of the original length; control keeps the model's rotation
UNTRAINED = "untouched"
CHARACTERS = 150_000  # of a document: more than its first 12,288 tokens, which alone are read
CALIBRATED = "drope_temperature"  # drope with the temperature that is best on pilot documents
FOUND_FACTORS = HERE.parent / "smollm2" / "progressive.json"


def options() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--documents", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--row", nargs="+", choices=(UNTRAINED, *TRAINED), default=[UNTRAINED, *TRAINED])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=TARGET, help="of a row at the target; two thirds of it else")
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--count", type=int, default=60, help="documents whose likelihood is read")
    parser.add_argument("--prompts", type=int, default=50)
    parser.add_argument("--pilot", type=int, default=4, help="documents that the temperature is chosen on")
    parser.add_argument("--lengths", type=int, nargs=3, default=[TARGET, 2048, ORIGINAL], help="the target first")
    parser.add_argument("--scored", type=int, default=512)
    parser.add_argument("--jobs", type=int, default=2, help="processes that evaluate a row")
    parser.add_argument(
        "--evaluate", nargs=2, metavar=("ROW", "K"), help="evaluate a part of a row, as a child process"
    )
    return parser


def prepare(model: Path, work: Path) -> Path:
    """The untouched model as a folder in float32, which loads faster than a GGUF file."""
    folder = work / UNTRAINED
    if not folder.exists():
        save(*load_causal_lm(model), folder)
    return folder


def save(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write a folder of transformers, which exists only when it is complete."""
    new = folder.with_suffix(".new")
    model.save_pretrained(new)
    tokenizer.save_pretrained(new)
    new.replace(folder)


def training_text(tokenizer: Any, documents: Path, cache: Path) -> Tensor:
    """The training documents as tokens, one after another in the order of documents.json."""
    if not cache.exists():
        tokens: list[int] = []
        for entry in json.loads((HERE / "documents.json").read_text(encoding="utf-8")):
            content = (documents / "train" / entry["name"]).read_bytes()
            if hashlib.sha256(content).hexdigest() != entry["sha256"]:
                raise ValueError(f"{entry['name']} is another text than the plan's")
            text = content.decode() + tokenizer.eos_token
            tokens += tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        torch.save(torch.tensor(tokens), cache.with_suffix(".new"))
        cache.with_suffix(".new").replace(cache)
    loaded: Tensor = torch.load(cache, weights_only=True)
    return loaded


def config_of(row: str, rotations: RotaryModules) -> dict[str, Any] | None:
    """The configuration that a row is trained and read under; None: the model's own."""
    if row == "control":
        return None
    if row == "drope":
        return dropped_config(rotations, ORIGINAL, TARGET)
    if row == "longrope":  # factors that posenc's search has found for this model and length
        record = json.loads(FOUND_FACTORS.read_text(encoding="utf-8"))
        factors = record["config"]["rope_parameters"]["long_factor"]
        scaling = LongRoPE([1.0] * len(factors), factors, original_length=ORIGINAL, factor=TARGET / ORIGINAL)
        ((kind, rope),) = rotations.long_range_ropes(ORIGINAL).items()
        return rotations.config_with({kind: rope.replace(scaling=scaling)}, ORIGINAL, TARGET)
    return scaled_config(rotations, row, ORIGINAL, TARGET)


def train(row: str, args: argparse.Namespace) -> None:
    """Train one row from the untouched model, and write its folder and a line of training.jsonl."""
    folder = args.work / row
    if folder.exists():
        return
    model, tokenizer = load_causal_lm(args.work / UNTRAINED, device=args.device)
    text = training_text(tokenizer, args.documents, args.work / "text.pt")
    rotations = RotaryModules(model)
    new = config_of(row, rotations)
    if new is not None:
        rotations.rebuild(new)
    short = row in AT_ORIGINAL
    width, batch = (args.tokens * 2 // 3, LONG_ROWS * 3 // 2) if short else (args.tokens, LONG_ROWS)
    recipe = Recipe(
        steps=args.steps, batch=batch, tokens=width, lr=args.lr, warmup=args.steps // 10, save_every=max(1, args.steps)
    )
    model.gradient_checkpointing_enable()  # type: ignore[operator]
    if args.device != "cpu":
        torch.cuda.reset_peak_memory_stats()
    losses: list[float] = []
    start = time.perf_counter()
    state = args.work / f"{row}.pt"
    model = tune(
        model, text, recipe, width if short else TARGET, state=state,
        progress=partial(report, row), on_step=lambda step, loss: losses.append(round(loss, 5)),
    )  # fmt: skip
    record = {
        "row": row, "recipe": asdict(recipe), "training_tokens": recipe.steps * recipe.batch * width,
        "text": hashlib.sha256(text.numpy().tobytes()).hexdigest(), "text_tokens": len(text), "losses": losses,
        "seconds": round(time.perf_counter() - start, 1), "torch": torch.__version__,
        "device": device_name(args.device),
        "mixed_precision": os.environ.get("ACCELERATE_MIXED_PRECISION", "no"),
        "peak_gigabytes": 0.0 if args.device == "cpu" else round(torch.cuda.max_memory_allocated() / 1e9, 1),
    }  # fmt: skip
    with (args.out / "training.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    model.gradient_checkpointing_disable()  # type: ignore[operator]
    if row == "drope":
        calibrate(model, tokenizer, args)
        rotations.rebuild(dropped_config(rotations, ORIGINAL, TARGET))
    save(model, tokenizer, folder)
    state.unlink()
    del model, rotations
    if args.device != "cpu":
        torch.cuda.empty_cache()


def calibrate(model: Any, tokenizer: Any, args: argparse.Namespace) -> None:
    """Choose DroPE's temperature on pilot documents at the target, and write the folder of that row."""
    length, rotations = args.lengths[0], RotaryModules(model)
    pieces: list[Tensor] = []
    for document in read_documents([args.documents / "pilot"]):
        ids = tokenizer(document.text, add_special_tokens=False, verbose=False)["input_ids"]
        if len(ids) >= length and len(pieces) < args.pilot:
            pieces += evenly_spaced_pieces(torch.tensor(ids), length, 1)
    losses: dict[str, list[float]] = {}
    autocast = torch.autocast(args.device, torch.bfloat16, enabled=args.device != "cpu")
    for temperature in TEMPERATURES:
        with rotations.temporarily(dropped_config(rotations, ORIGINAL, TARGET, temperature)), autocast:
            losses[f"{temperature:g}"] = [float(token_losses(model, p, args.scored).mean()) for p in pieces]
    best = min(TEMPERATURES, key=lambda temperature: sum(losses[f"{temperature:g}"]))
    (args.out / "temperature.json").write_text(json.dumps({"chosen": best, "losses": losses}), encoding="utf-8")
    report("drope", f"temperature {best:g}: {losses}")
    if best != 1:
        rotations.rebuild(dropped_config(rotations, ORIGINAL, TARGET, best))
        save(model, tokenizer, args.work / CALIBRATED)


def read(row: str, part: int, args: argparse.Namespace) -> None:
    """One process's part of a row's readings: first the likelihood, then the needles."""
    torch.set_num_threads(1)
    long, out = args.lengths[0], args.out / "readings" / row
    model, tokenizer = load_causal_lm(
        args.work / row, dtype="float32" if args.device == "cpu" else "bfloat16", device=args.device
    )
    documents = [each._replace(text=each.text[:CHARACTERS]) for each in read_documents([args.documents / "study"])]
    lengths = [long] if row == CALIBRATED else args.lengths
    measure = partial(
        evaluate, model, tokenizer=tokenizer, documents=documents, trained_length=ORIGINAL, part=(part, args.jobs),
        progress=partial(report, row),
    )  # fmt: skip
    likelihood = partial(measure, tasks=["perplexity"], count=args.count, scored=args.scored, out=out / "likelihood")
    likelihood(lengths=lengths, methods=["as_is"])
    if row in (UNTRAINED, "control"):
        likelihood(lengths=[long], methods=["as_is", "cut"])
    measure(
        tasks=["niah_single"], count=args.prompts, scored=args.scored, answer_tokens=32, lengths=lengths[:2],
        methods=["as_is"], out=out / "needles",
    )  # fmt: skip


def start_reading(row: str, argv: list[str], jobs: int) -> list[subprocess.Popen[bytes]]:
    """Processes that evaluate one row."""
    command = [sys.executable, str(Path(__file__).resolve()), *argv, "--evaluate", row]
    return [subprocess.Popen([*command, str(k)]) for k in range(1, jobs + 1)]


def report(row: str, line: str) -> None:
    """A line of progress."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {row}: {line}\n")


def device_name(device: str) -> str:
    """The accelerator's own name, or cpu."""
    return torch.cuda.get_device_name() if device.startswith("cuda") else device


def main(argv: list[str]) -> int:
    """Returns 1 where a process that evaluates has failed."""
    args = options().parse_args(argv)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if args.device.startswith("cuda"):
        os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
        os.environ.setdefault("ACCELERATE_MIXED_PRECISION", "bf16")  # of tune; weights and optimizer are float32
    if args.evaluate:
        read(args.evaluate[0], int(args.evaluate[1]), args)
        return 0
    for folder in (args.work, args.out):
        folder.mkdir(parents=True, exist_ok=True)
    prepare(args.model, args.work)
    children = start_reading(UNTRAINED, argv, args.jobs) if UNTRAINED in args.row else []
    for row in (row for row in TRAINED if row in args.row):
        train(row, args)
        children += start_reading(row, argv, args.jobs)
        if row == "drope" and (args.work / CALIBRATED).exists():
            children += start_reading(CALIBRATED, argv, args.jobs)
    return max([child.wait() for child in children], default=0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
