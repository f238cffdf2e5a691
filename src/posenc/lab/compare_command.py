"""The command ``posenc compare``. An option overrides every number of a profile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posenc.lab.compare import compare
from posenc.lab.console import plain_console
from posenc.lab.own import permitted
from posenc.lab.plan import Plan, default_folder
from posenc.lab.runners import ranks
from posenc.lab.runners.slurm import CLUSTERS, SlurmOptions
from posenc.lab.specs import permission_for
from posenc.lab.stopping import stoppable
from posenc.lab.tasks import NAMES, task_named
from posenc.lab.tasks.numbers import check_count, override
from posenc.lab.text.profiles import parse_lengths


def _numbers(help_text: str, name: str | None = None) -> typer.models.OptionInfo:
    names = [] if name is None else [name]
    option: typer.models.OptionInfo = typer.Option(
        *names, help=help_text, rich_help_panel="Numbers of the profile", show_default=False
    )
    return option


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
    task_name: Annotated[str, typer.Option("--task", help=f"What is learnt: {', '.join(NAMES)}.")] = "text",
    chosen_profile: Annotated[
        str,
        typer.Option(
            "--profile",
            help="quick, standard or full. Text's full wants a GPU of the H100's class for about an hour, by estimate: "
            "it is not yet measured on one.",
        ),
    ] = "quick",
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
    classes_from: Annotated[
        Path | None,
        typer.Option(help="Folder that classes of your own lie in; before Python's own path.", show_default=False),
    ] = None,
    control: Annotated[bool, typer.Option(help="With text, always add the control rope+window.")] = True,
    cost: Annotated[
        bool, typer.Option(help="With text, measure time and memory by length at the end, on this machine.")
    ] = True,
    workers: Annotated[
        int | None, typer.Option(help="Jobs at a time. Default: one per core, or per GPU.", show_default=False)
    ] = None,
    runner: Annotated[
        str, typer.Option(help="local, slurm or ray; under torchrun all ranks train each job together.")
    ] = "local",
    slurm_cluster: Annotated[
        str, typer.Option(help="slurm; local and debug try the same without a cluster.")
    ] = "slurm",
    slurm_partition: Annotated[str | None, typer.Option(help="Partition of the cluster.", show_default=False)] = None,
    slurm_timeout: Annotated[int, typer.Option(help="Minutes until a job is queued again.")] = 240,
    ray_address: Annotated[
        str, typer.Option(help="Of a Ray cluster: auto, HOST:PORT, or local for one of this machine alone.")
    ] = "auto",
    train_length: Annotated[int | None, _numbers("Bytes or tokens a model is trained on at a time.")] = None,
    lengths: Annotated[str | None, _numbers("Test lengths in training lengths, like 1,2,4,8,16.")] = None,
    steps: Annotated[int | None, _numbers("Training steps, of text and sequences.")] = None,
    epochs: Annotated[int | None, _numbers("How often each image is seen.")] = None,
    image_size: Annotated[int | None, _numbers("Pixels that images are scaled to, each way.")] = None,
    patch: Annotated[int | None, _numbers("Pixels of an image's token, each way.")] = None,
    fine_tune_length: Annotated[int | None, _numbers("Length of extension's fine-tuning, in training lengths.")] = None,
    fine_tune_steps: Annotated[int | None, _numbers("Steps of extension's fine-tuning.")] = None,
    fine_tune_lr: Annotated[float | None, _numbers("Learning rate of extension's fine-tuning.")] = None,
    batch_size: Annotated[int | None, _numbers("Texts, images or sequences in a step.")] = None,
    seeds: Annotated[int | None, _numbers("How many seeds each encoding is trained with.")] = None,
    windows: Annotated[int | None, _numbers("Evaluation windows, or sequences of each length.")] = None,
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
    compiled: Annotated[
        bool | None, _numbers("Compile the model for its training, by torch.compile.", "--compile/--no-compile")
    ] = None,
    shard: Annotated[
        bool | None, _numbers("Share each model out among the ranks of torchrun (FSDP).", "--shard/--no-shard")
    ] = None,
    max_epochs: Annotated[int | None, _numbers("How often a training may read its text; 0: no limit.")] = None,
) -> None:
    """Train one small model per encoding at a short length, and measure all of them on longer text.

    With --task images: train on a small grid of tokens, and measure moved and larger ones. With a generated task, such
    as --task passkey: train on short sequences, and ask long ones.

    Stop it any way you like: the same command goes on where it stopped, and ends with the same numbers.
    """
    numbers = {
        "train_length": train_length, "lengths": None if lengths is None else parse_lengths(lengths), "steps": steps,
        "batch_size": batch_size, "seeds": seeds, "windows": windows, "dim": dim, "layers": layers, "heads": heads,
        "lr": lr, "weight_decay": weight_decay, "clip": clip, "warmup": warmup, "decay": decay,
        "checkpoint_every": checkpoint_every, "precision": precision, "device": device, "threads": threads,
        "epochs": epochs, "image_size": image_size, "patch": patch, "fine_tune_length": fine_tune_length,
        "fine_tune_steps": fine_tune_steps, "fine_tune_lr": fine_tune_lr, "compile": compiled, "shard": shard,
        "max_epochs": max_epochs,
    }  # fmt: skip
    if workers is not None:
        check_count("workers", workers, 1)
    check_count("slurm_timeout", slurm_timeout, 1)
    if slurm_cluster not in CLUSTERS:
        raise ValueError(f"--slurm-cluster {slurm_cluster}: {', '.join(CLUSTERS)} is needed")
    task = task_named(task_name)
    chosen = override(task.profile(chosen_profile), list(encodings or ()), numbers)
    plan = Plan(
        profile=chosen,
        data=task.source if data is None else data,
        out=default_folder(task_name, chosen.name) if out is None else out,
        workers=workers,
        runner=runner,
        slurm=SlurmOptions(
            slurm_cluster, slurm_partition, slurm_timeout, gpus=int(chosen.settings.device.startswith("cuda"))
        ),
        ray_address=ray_address,
        control=control,
        cost=cost and task_name == "text" and runner == "local",
        command=context.obj,
    )
    with permitted(permission_for(encodings or (), classes_from or Path())), stoppable(plan.command):
        compare(plan, plain_console(quiet=not ranks.is_first()))
