"""``posenc extend``, ``evaluate`` and ``attach``: a checkpoint with a longer context or other encodings, measured."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posenc.input_files import naming
from posenc_cli.parsing import PATH, Parser, lengths, tokens

if TYPE_CHECKING:
    from posenc.search import Settings


_MOST_LAYERS = 4096


def extend_parser() -> Parser:
    """The options of the command."""
    parser = Parser(
        "extend",
        "The result is a new folder; only --in-place changes the checkpoint's files.",
        epilog="If it is interrupted, the same command resumes. auto: what the model's authors document; else yarn, or "
        "the rope type that a scaled model has; longrope2 searches by numbers hidden in texts. --config-only needs "
        "neither weights nor torch: it prints a diff of the config, what it costs, and a command for each engine.",
    )
    parser.add_argument("path", help=f"a folder of transformers, or a GGUF file; with --config-only also {PATH}")
    parser.add_argument(
        "--length", type=tokens, required=True, metavar="TOKENS", help="context length to extend to, such as 128k"
    )
    parser.add_argument(
        "--method", default="auto", metavar="NAME",
        help="auto, pi, ntk, ntk_by_parts, yarn, llama3, longrope (each also with +resonance), dynamic_ntk, "
        "longrope2, self_extend, rerope, leaky_rerope, dual_chunk, string, lm_infinite, streaming_llm "
        "(default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--config-only", action="store_true",
        help="change the config alone: --method auto, yarn, linear, dynamic or llama3",
    )  # fmt: skip
    parser.add_argument("--out", metavar="FOLDER", help="new folder for the result (default: print it only)")
    parser.add_argument(
        "--in-place", action="store_true", help="with --config-only, change the files; each is kept as NAME.original"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the folder if it exists")
    parser.add_argument("--text", metavar="FILE", help="text to measure and search on (default: built-in English)")
    parser.add_argument("--windows", type=int, default=4, metavar="N", help="windows of text (default: %(default)s)")
    parser.add_argument("--last", type=int, metavar="N", help="scored tokens at the end of each (default: 512)")
    parser.add_argument(
        "--lengths", type=lengths, metavar="N,N",
        help="context lengths to measure (default: a quarter of the training length, all of it, the target)",
    )  # fmt: skip
    parser.add_argument(
        "--original-length", type=tokens, metavar="TOKENS", help="training length, if the file is wrong"
    )
    parser.add_shared("--dtype", "--device")
    parser.add_argument(
        "--device-map", metavar="MAP",
        help="auto: spread the weights over all GPUs and main memory (needs accelerate)",
    )  # fmt: skip
    parser.add_shared("--json", "--trust-remote-code")
    search = parser.add_argument_group("longrope and longrope2")
    _search(search)
    search.add_argument(
        "--pieces", type=int, default=2, metavar="N", help="texts for each candidate (default: %(default)s)"
    )
    search.add_argument("--seed", type=int, default=0, metavar="N", help="of the search (default: %(default)s)")
    return parser


def extend(options: Namespace) -> int:
    """Extend a model and print what was measured; with ``--config-only`` its config alone, without torch.

    Raises:
        ValueError: as `posenc.hf.extend.extend` and `extend_config`.
    """
    if options.config_only:
        from posenc.hf.extend.config_only import extend_config

        for name in ("text", "last", "lengths", "search", "device_map", "overwrite"):
            if getattr(options, name):
                option = f"--{name.replace('_', '-')}"
                raise ValueError(f"{option} is not for --config-only, which measures and overwrites nothing")
        given = {name: getattr(options, name) for name in ("original_length", "out", "in_place")}
        with naming(options.path):
            extension: Any = extend_config(options.path, options.length, options.method, **given)
    elif options.in_place:
        raise ValueError("--in-place needs --config-only: an extension that is measured is written to a new folder")
    else:
        extension = _extended(options)
    sys.stdout.write(f"{json.dumps(extension.record(), indent=1) if options.as_json else extension}\n")
    return 0


def _extended(options: Namespace) -> Any:
    from posenc.hf.extend import extend as extend_checkpoint  # transformers

    left = ("path", "length", "method", "config_only", "in_place", "as_json", "search", "generations")
    rest = {name: value for name, value in vars(options).items() if name not in left}
    with naming(options.path), resumable(None if options.out is None else lambda: saved_state(options.out)):
        return extend_checkpoint(
            options.path, options.length, options.method, progress=print_progress,
            search=search_settings(options.search, options.generations), **rest,
        )  # fmt: skip


def evaluate_parser() -> Parser:
    """The options of the command."""
    parser = Parser(
        "evaluate",
        "Evaluates whole documents, and facts hidden in them, at each length: the unmodified model (as_is), the model "
        "on text truncated to its training length (cut), or in windows of it (chunked), and methods of posenc extend.",
        epilog="If interrupted, the same command resumes. yarn is set for the longest of --lengths, yarn@2 for twice "
        "the training length. Several processes share a folder with --part 1/2, --part 2/2.",
    )
    parser.add_argument("path", help="a folder of transformers, or a GGUF file")
    parser.add_argument(
        "--tasks", type=_names, default=["perplexity", "ruler"], metavar="NAME,NAME",
        help="perplexity, niah_single, niah_multikey, niah_multivalue, variable_tracking; niah: those three, ruler: "
        "all but perplexity (default: perplexity,ruler)",
    )  # fmt: skip
    parser.add_argument(
        "--lengths", type=lengths, metavar="N,N",
        help="tokens, in the order of measurement (default: a quarter of the training length, all of it, twice that)",
    )  # fmt: skip
    parser.add_argument(
        "--methods", type=_names, default=["as_is", "cut", "chunked"], metavar="NAME,NAME",
        help="as_is, cut, chunked, and methods of posenc extend except auto and longrope2 "
        "(default: as_is,cut,chunked)",
    )  # fmt: skip
    parser.add_argument(
        "--documents", nargs="+", default=[], metavar="PATH",
        help="text files, or folders with them (default: Python sources of the standard library)",
    )  # fmt: skip
    parser.add_argument(
        "--count", type=int, default=20, metavar="N", help="documents to evaluate (default: %(default)s)"
    )
    parser.add_argument(
        "--depths", type=_percentages, default=[10, 30, 50, 70, 90], metavar="P,P",
        help="where facts are hidden, percent of the document, cycled through (default: 10,30,50,70,90)",
    )  # fmt: skip
    parser.add_argument(
        "--scored", type=int, default=512, metavar="N", help="tokens whose loss is measured (default: %(default)s)"
    )
    parser.add_argument(
        "--answer-tokens", type=int, metavar="N", help="of an answer (default: as RULER, 128; variable tracking: 30)"
    )
    parser.add_argument("--trained-length", type=tokens, metavar="TOKENS", help="training length, if the file is wrong")
    parser.add_argument("--out", metavar="FOLDER", help="write every measurement, record.json and table.md here")
    parser.add_argument(
        "--part", type=_part, default=(1, 1), metavar="K/N", help="only every N-th document, from the K-th"
    )
    parser.add_shared("--dtype", "--device", "--json", "--trust-remote-code")
    _search(parser.add_argument_group("longrope"))
    return parser


def evaluate(options: Namespace) -> int:
    """Evaluate the checkpoint of a folder or a GGUF file, and print the tables.

    Raises:
        ValueError: as `posenc.hf.evaluate.evaluate`.
    """
    from posenc.hf.evaluate import evaluate as evaluate_checkpoint  # transformers

    state = f"every reading that was made is saved in {options.out}; to continue: {command_line()}"
    left = ("path", "as_json", "search", "generations")
    rest = {name: value for name, value in vars(options).items() if name not in left}
    with naming(options.path), resumable(None if options.out is None else lambda: state):
        result = evaluate_checkpoint(
            options.path, search=search_settings(options.search, options.generations), progress=print_progress, **rest
        )
    sys.stdout.write(f"{json.dumps(result.record(), indent=1) if options.as_json else result}\n")
    return 0


def attach_parser() -> Parser:
    """The options of the command."""
    parser = Parser(
        "attach",
        "The result is a new folder, and its config.json names the attached encodings.",
        epilog="posenc.hf.attach.load opens the new folder.",
    )
    parser.add_argument("path", metavar="folder", help="a folder with a model and its weights")
    parser.add_argument("encodings", help="names joined by +, as in posenc list; own is what the model has")
    parser.add_argument("--out", required=True, metavar="OUT", help="new folder to write")
    parser.add_argument(
        "--layers", type=_layers, metavar="NUMBERS", help="layers from 0, as 0,3 or 0-5 (default: all with attention)"
    )
    parser.add_argument(
        "--measure", action="store_true", help="print the loss of the model before and with the encodings"
    )
    parser.add_argument("--text", metavar="FILE", help="text for --measure (default: built-in English)")
    parser.add_argument("--windows", type=int, default=8, metavar="N", help="windows of it (default: %(default)s)")
    parser.add_shared("--trust-remote-code")
    return parser


def attach(options: Namespace) -> int:
    """Write the folder, and print how to load it and, if it was measured, what it costs.

    Raises:
        ValueError: as `posenc.hf.attach.loading.attach_to_folder`.
    """
    from posenc.hf.attach.loading import attach_to_folder

    where = (Path(options.path), options.encodings, Path(options.out), options.layers)
    if options.measure:
        from posenc.hf.evaluate.attachment import attach_and_measure

        evaluation = attach_and_measure(
            *where, text=options.text, windows=options.windows, trust_remote_code=options.trust_remote_code,
            progress=print_progress,
        )  # fmt: skip
        sys.stdout.write(f"{evaluation}\n\n")
    else:
        attach_to_folder(*where, trust_remote_code=options.trust_remote_code)
    sys.stdout.write(f"written to {options.out}; load it with posenc.hf.attach.load\n")
    return 0


def saved_state(out: str) -> str:
    """What a stopped extension has saved, and the command that continues it."""
    readings = Path(f"{out}.work") / "readings.jsonl"
    count = readings.read_bytes().count(b"\n") if readings.exists() else 0
    return f"{count} readings saved in {readings.parent}; to continue: {command_line()}"


def command_line() -> str:
    """The command that is running, to be pasted into a shell."""
    return shlex.join(["posenc", *sys.argv[1:]])


@contextmanager
def resumable(describe_state: Callable[[], str] | None) -> Iterator[None]:
    """On Ctrl-C print what is kept and how to continue; None: nothing is."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write(
            f"\nstopped: {'nothing is saved without --out' if describe_state is None else describe_state()}\n"
        )
        raise


def search_settings(population: int | None, generations: int) -> Settings | None:
    """Settings of a search with half as many new candidates per generation as it starts with."""
    if population is None:
        return None
    from posenc.search import Settings

    quarter, half = max(1, population // 4), max(1, population // 2)
    return Settings(population=population, mutations=quarter, crossovers=quarter, parents=half, generations=generations)


def print_progress(text: str) -> None:
    """A line of progress, on stderr."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _search(group: argparse._ArgumentGroup) -> None:
    """Sizes of LongRoPE's search."""
    group.add_argument("--search", type=int, metavar="N", help="candidates that a search starts with (default: 16)")
    group.add_argument("--generations", type=int, default=4, metavar="N", help="after them (default: %(default)s)")


def _layers(text: str) -> list[int]:
    """Numbers and ranges of numbers."""
    if not re.fullmatch(r"\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"numbers of layers are needed, such as 0,3 or 0-5, got {text[:24]}")
    layers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        layers += range(int(first), int(last or first) + 1)
    if not layers or max(layers) >= _MOST_LAYERS:
        raise argparse.ArgumentTypeError(f"numbers of layers from 0 to {_MOST_LAYERS - 1} are needed, got {text[:24]}")
    return layers


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f"names with commas between are needed, got {text[:40]!r}")
    return names


def _percentages(text: str) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"numbers from 0 to 100 are needed, got {text[:24]}") from error
    if not all(0 <= number <= 100 for number in numbers):
        raise argparse.ArgumentTypeError(f"numbers from 0 to 100 are needed, got {text[:24]}")
    return numbers


def _part(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text, re.ASCII)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise argparse.ArgumentTypeError(f"a part such as 1/2 is needed, got {text[:24]}")
    return int(match[1]), int(match[2])
