"""The commands of ``posenc``: compare, list, info, explain, export. An option overrides every number of a profile."""

from __future__ import annotations

import shlex
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

import posenc
from posenc.catalogue import info, list_encodings
from posenc.hf.config import read_rope
from posenc.hf.inspect import as_json, as_text
from posenc.hf.scalings import check_convention
from posenc.lab.compare import FailedJobsError, compare
from posenc.lab.export.command import export_command
from posenc.lab.plan import Plan
from posenc.lab.profiles import parse_lengths
from posenc.lab.runners import distributed
from posenc.lab.runners.slurm import CLUSTERS, SlurmOptions
from posenc.lab.tasks import task_named
from posenc.lab.tasks.numbers import override

BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130  # exit codes

app = typer.Typer(
    name="posenc",
    help="Positional encodings for transformers: what there is, and what survives past the trained length.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"posenc {posenc.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    pass


def _numbers(help_text: str, name: str | None = None) -> typer.models.OptionInfo:
    names = [] if name is None else [name]
    option: typer.models.OptionInfo = typer.Option(
        *names, help=help_text, rich_help_panel="Numbers of the profile", show_default=False
    )
    return option


class StoppedByUserError(Exception):
    """Ctrl-C or SIGTERM; the parser would otherwise end the process in its own way."""


@app.command("compare")
def compare_command(
    context: typer.Context,
    encodings: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names from `posenc list`, a class of your own as my_module:MyClass, mixes like rope+alibi, controls "
            "like rope+window. Default: the profile's.",
            show_default=False,
        ),
    ] = None,
    task_name: Annotated[str, typer.Option("--task", help="What is learnt: text or images.")] = "text",
    chosen_profile: Annotated[str, typer.Option("--profile", help="quick, standard or full.")] = "quick",
    data: Annotated[
        str | None,
        typer.Option(
            help="Text: a file, a folder, hf:NAME or hf:NAME:CONFIG; by default Python's own standard library. "
            "Images: a folder with a folder of pictures for each class; by default scikit-learn's digits.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the run. Default: posenc-compare/<profile>, or <task>-<profile>.", show_default=False
        ),
    ] = None,
    control: Annotated[bool, typer.Option(help="With text, always add the control rope+window.")] = True,
    workers: Annotated[
        int | None, typer.Option(help="Jobs at a time. Default: one per core, or per GPU.", show_default=False)
    ] = None,
    runner: Annotated[
        str, typer.Option(help="local or slurm; under torchrun all ranks train each job together.")
    ] = "local",
    slurm_cluster: Annotated[
        str, typer.Option(help="slurm; local and debug try the same without a cluster.")
    ] = "slurm",
    slurm_partition: Annotated[str | None, typer.Option(help="Partition of the cluster.", show_default=False)] = None,
    slurm_timeout: Annotated[int, typer.Option(help="Minutes until a job is queued again.")] = 240,
    train_length: Annotated[int | None, _numbers("Bytes a model is trained on at a time.")] = None,
    lengths: Annotated[str | None, _numbers("Test lengths in training lengths, like 1,2,4,8,16.")] = None,
    steps: Annotated[int | None, _numbers("Training steps, of text.")] = None,
    epochs: Annotated[int | None, _numbers("How often each image is seen.")] = None,
    image_size: Annotated[int | None, _numbers("Pixels that images are scaled to, each way.")] = None,
    patch: Annotated[int | None, _numbers("Pixels of an image's token, each way.")] = None,
    batch_size: Annotated[int | None, _numbers("Texts or images in a step.")] = None,
    seeds: Annotated[int | None, _numbers("How many seeds each encoding is trained with.")] = None,
    windows: Annotated[int | None, _numbers("Evaluation windows.")] = None,
    dim: Annotated[int | None, _numbers("Width of the model.")] = None,
    layers: Annotated[int | None, _numbers("Layers of the model.")] = None,
    heads: Annotated[int | None, _numbers("Attention heads.")] = None,
    lr: Annotated[float | None, _numbers("Learning rate.")] = None,
    weight_decay: Annotated[float | None, _numbers("Weight decay of matrices.")] = None,
    clip: Annotated[float | None, _numbers("Norm that gradients are clipped to.")] = None,
    warmup: Annotated[int | None, _numbers("Steps of warm-up, at most a fifth of all.")] = None,
    decay: Annotated[float | None, _numbers("Last share of the steps, in which the learning rate falls.")] = None,
    checkpoint_every: Annotated[int | None, _numbers("Steps between checkpoints.")] = None,
    precision: Annotated[str | None, _numbers("auto, float32 or bfloat16; auto measures both.")] = None,
    device: Annotated[str | None, _numbers("auto, cpu, cuda or mps.")] = None,
    threads: Annotated[int | None, _numbers("Processor threads of each job.")] = None,
) -> None:
    """Train one small model per encoding at a short length, and measure all of them on longer text.

    With --task images: train on a small grid of tokens, and measure moved and larger ones.

    Stop it any way you like: the same command goes on where it stopped, and ends with the same numbers.
    """
    numbers = {
        "train_length": train_length, "lengths": None if lengths is None else parse_lengths(lengths), "steps": steps,
        "batch_size": batch_size, "seeds": seeds, "windows": windows, "dim": dim, "layers": layers, "heads": heads,
        "lr": lr, "weight_decay": weight_decay, "clip": clip, "warmup": warmup, "decay": decay,
        "checkpoint_every": checkpoint_every, "precision": precision, "device": device, "threads": threads,
        "epochs": epochs, "image_size": image_size, "patch": patch,
    }  # fmt: skip
    if workers is not None and workers < 1:
        raise ValueError(f"--workers {workers}: at least 1 is needed")
    if slurm_cluster not in CLUSTERS:
        raise ValueError(f"--slurm-cluster {slurm_cluster}: {', '.join(CLUSTERS)} is needed")
    task = task_named(task_name)
    chosen = override(task.profile(chosen_profile), list(encodings or ()), numbers)
    folder = chosen.name if task_name == "text" else f"{task_name}-{chosen.name}"
    plan = Plan(
        profile=chosen,
        data=task.source if data is None else data,
        out=Path("posenc-compare") / folder if out is None else out,
        workers=workers,
        runner=runner,
        slurm=SlurmOptions(
            slurm_cluster, slurm_partition, slurm_timeout, gpus=int(chosen.settings.device.startswith("cuda"))
        ),
        control=control,
        command=context.obj,
    )
    # A terminated run stops like an interrupted one: its workers save and end.
    before = signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        compare(plan, Console(quiet=not distributed.is_first(), highlight=False, markup=False))
    except KeyboardInterrupt:
        raise StoppedByUserError(f"nothing is lost; to go on: {plan.command}") from None
    finally:
        signal.signal(signal.SIGTERM, before)


@app.command("list")
def list_command() -> None:
    """All encodings: where they act, and what they are."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in ("name", "acts on", "encoding", "parameters"):
        table.add_column(head)
    for name in list_encodings():
        entry = info(name)
        table.add_row(entry.name, entry.place, entry.title, entry.parameters)
    console = Console(highlight=False, markup=False)
    console.print(table)
    console.print("posenc info NAME tells more; posenc compare measures them.", style="dim")


@app.command("info")
def info_command(name: Annotated[str, typer.Argument(help="A name from `posenc list`.")]) -> None:
    """One encoding: formula, source, parameters, what it costs."""
    entry = info(name)
    console = Console(highlight=False, markup=False)
    console.print()
    console.print(entry.title, style="bold")
    console.print()
    grid = Table.grid(padding=(0, 2))
    facts = (
        ("formula", entry.formula),
        ("acts on", entry.place),
        ("source", entry.source),
        ("parameters", entry.parameters),
        ("costs", entry.cost),
        ("past the trained length", entry.past_training),
    )
    for fact, value in facts:
        grid.add_row(Text(fact, style="dim"), value)
    console.print(grid)


@app.command("explain")
def explain_command(
    path: Annotated[Path, typer.Argument(help="A config.json, or the folder of a checkpoint that has one.")],
    convention: Annotated[
        str, typer.Option(help="Whose reading of YaRN's keys: transformers, deepseek or vllm.")
    ] = "transformers",
    head_dim: Annotated[
        int | None, typer.Option(help="Channels of a head, if the file does not say.", show_default=False)
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(help="A key of the block to leave unread.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the facts as JSON.")] = False,
) -> None:
    """What a Hugging Face configuration means: base, wavelengths, scaling, lengths, and what to beware of."""
    config = read_rope(path, head_dim=head_dim, convention=check_convention(convention), ignore=ignore or ())
    typer.echo(as_json(config) if json else as_text(config))


app.command("export")(export_command)


def run(arguments: list[str]) -> int:
    """Run a command line; returns the exit code. Whatever is wrong with the input is one line on stderr."""
    command = typer.main.get_command(app)
    try:
        typed = shlex.join(["posenc", *arguments])
        outcome = command.main(args=arguments, prog_name="posenc", standalone_mode=False, obj=typed)
    except (ValueError, OSError) as error:
        return _complain(str(error), BAD_INPUT)
    except FailedJobsError as error:
        return _complain(str(error), FAILED)
    except StoppedByUserError as error:
        return _complain(str(error), INTERRUPTED, kind="stopped")
    except Exception as error:
        # The parser's own errors: typer brings its own copy of click, so they are known by what they offer.
        text = getattr(error, "format_message", None)
        if text is None:
            raise
        return _complain(text() or "no command is given; posenc --help lists them", BAD_INPUT)
    return outcome if isinstance(outcome, int) else 0


def _complain(text: str, code: int, kind: str = "error") -> int:
    if distributed.is_first():
        line = text if code == FAILED else " ".join(text.split())
        sys.stderr.write(f"{kind}: {line}\n")
    return code


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
