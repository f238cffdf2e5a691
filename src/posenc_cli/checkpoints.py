"""The arguments of the commands for checkpoints: from explain to probe."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

from posenc_cli.parsing import Parser, lengths, tokens

CONVENTIONS = ("transformers", "deepseek", "vllm", "sglang")  # of `posenc.hf.config.rotation.Convention`
_WIDEST_HEAD = 2**16  # channels
_MOST_LAYERS = 4096
_PATH = "the folder of a checkpoint, a config.json, a GGUF file, or a model of the Hugging Face Hub (org/name)"


def _explain() -> argparse.ArgumentParser:
    parser = Parser(
        "explain",
        "By default: base, wavelengths, scaling and lengths for each kind of layers, and what to watch out for.",
        epilog="Exit code with --live: 1 where the model's modules compute something else than the config says.",
    )
    parser.add_argument("path", nargs="?", help=_PATH)
    views = parser.add_mutually_exclusive_group()
    views.add_argument("--layers", action="store_true", help="print one line for each layer")
    views.add_argument(
        "--live", action="store_true",
        help="build the model (with the folder's weights, if it has any) and compare each layer's modules with the "
        "config; needs posenc[hf]",
    )  # fmt: skip
    views.add_argument("--families", action="store_true", help="list all known model types")
    parser.add_argument(
        "--convention", default="transformers", metavar="NAME",
        help=f"whose reading of YaRN's keys: {', '.join(CONVENTIONS)} (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--head-dim", type=_head_dim, metavar="CHANNELS", help="channels of a head, if the file does not say"
    )
    parser.add_argument("--ignore", action="append", default=[], metavar="KEY", help="a key to ignore; repeatable")
    parser.add_shared("--json", "--trust-remote-code")
    return parser


def _doctor() -> argparse.ArgumentParser:
    parser = Parser(
        "doctor",
        "Each finding says what is wrong, what it costs, and what to write.",
        epilog="Exit code: 0 without findings or with notes only, 1 for a fault, 3 for a suspicion without a fault, 2 "
        "for bad usage or unreadable input. After --fix and --in-place: of the findings that are left. With --compare: "
        "0 without drift, 1 with drift, 3 where only limits of other files differ.",
    )
    parser.add_argument("path", nargs="?", help=_PATH)
    parser.add_argument(
        "--compare", nargs=2, metavar=("A", "B"),
        help="print what differs between two checkpoints or configurations in their positions, and examine neither",
    )  # fmt: skip
    parser.add_argument(
        "--draft", metavar="DRAFT",
        help="print whether this draft model of speculative decoding fits the checkpoint, and up to which length",
    )  # fmt: skip
    parser.add_argument(
        "--trainer", metavar="NAME",
        help="with --engine, print whether both compute one rotation from the file: transformers, trl, axolotl, "
        "llama-factory, verl, unsloth, litgpt, torchtitan, torchtune, megatron",
    )  # fmt: skip
    parser.add_argument("--engine", metavar="NAME", help="an engine of posenc serve, such as vllm or sglang")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--fix", metavar="OUT", dest="out", help="write a corrected copy to this new folder")
    where.add_argument(
        "--in-place", action="store_true", help="correct the files; a copy of each is kept as NAME.original"
    )
    parser.add_argument(
        "--guesses", action="store_true", help="also write corrections whose numbers only the model's authors know"
    )
    parser.add_argument(
        "--weights", action="store_true",
        help="also load the model and measure its loss within and beyond the training length, and with other rotations",
    )  # fmt: skip
    parser.add_argument("--text", metavar="FILE", help="text for --weights (default: English documentation of Python)")
    parser.add_argument(
        "--most", type=tokens, default=4096, metavar="TOKENS", help="longest context to measure (default: %(default)s)"
    )
    parser.add_argument(
        "--accept", action="append", default=[], metavar="NAME", help="a finding that is intended; repeatable"
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 for a suspicion too")
    parser.add_shared("--json", "--trust-remote-code")
    return parser


def _extend() -> argparse.ArgumentParser:
    parser = Parser(
        "extend",
        "The result is a new folder; only --in-place changes the checkpoint's files.",
        epilog="If it is interrupted, the same command resumes. auto: what the model's authors document; else yarn, or "
        "the rope type that a scaled model has; longrope2 searches by numbers hidden in texts. --config-only needs "
        "neither weights nor torch: it prints a diff of the config, what it costs, and a command for each engine.",
    )
    parser.add_argument("path", help=f"a folder of transformers, or a GGUF file; with --config-only also {_PATH}")
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


def _convert() -> argparse.ArgumentParser:
    parser = Parser("convert", "The rotation stays the same; no weights are loaded.")
    parser.add_argument("path", help=_PATH.replace(" a GGUF file,", ""))
    parser.add_argument(
        "--spelling", default="both", choices=("both", "v4", "v5"),
        help="both: transformers 4 and 5 read the same rotation; v4: rope_theta and rope_scaling; v5: rope_parameters "
        "(default: %(default)s)",
    )  # fmt: skip
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--out", metavar="FOLDER", help="new folder for the result (default: print the diff only)")
    where.add_argument(
        "--in-place", action="store_true", help="change config.json; the old one is kept as config.json.original"
    )
    parser.add_shared("--json")
    return parser


def _evaluate() -> argparse.ArgumentParser:
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


def _attach() -> argparse.ArgumentParser:
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


def _gguf() -> argparse.ArgumentParser:
    parser = Parser("gguf", "The weights are copied unchanged.")
    parser.add_argument("source", metavar="SOURCE", help="a GGUF file")
    parser.add_argument("target", metavar="TARGET", help="the copy to write")
    parser.add_argument(
        "--rope", required=True, metavar="ROPE",
        help="the new settings: a block of rope_parameters as JSON, or a config.json, a folder or a GGUF file",
    )  # fmt: skip
    parser.add_argument("--replace", action="store_true", help="overwrite TARGET, which may then be SOURCE")
    return parser


def _serve() -> argparse.ArgumentParser:
    parser = Parser(
        "serve",
        "A model is served as it is; --rope and --exact print the flags for another rotation.",
    )
    parser.add_argument("path", metavar="PATH", help="a config.json, or the folder of a checkpoint that has one")
    parser.add_argument(
        "--rope", metavar="ROPE", help="other RoPE settings to serve it with, as for posenc gguf (default: its own)"
    )
    parser.add_argument(
        "--for", dest="program", metavar="NAME",
        help="one engine, such as vllm, llama.cpp or mlx-vlm, or what to set in a trainer, such as trl, axolotl or "
        "verl; another name prints all of them (default: every engine)",
    )  # fmt: skip
    parser.add_argument(
        "--exact", action="store_true", help="use posenc's plug-in: exact angles, and spectra without a rope type"
    )
    parser.add_argument(
        "--length", type=tokens, metavar="TOKENS",
        help="context length to serve (default: what the config declares, or what --rope reaches)",
    )  # fmt: skip
    parser.add_shared("--json")
    return parser


def _check_batch() -> argparse.ArgumentParser:
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


def _engines() -> argparse.ArgumentParser:
    parser = Parser(
        "engines",
        "Looks up the kinds of rotation of --checkpoint in the table of engines; nothing runs.",
        epilog="Exit code: 0 if every result is correct, 1 if an engine is off or ignores a key, 3 if it refuses or "
        "nothing was measured, 2 for bad usage.",
    )
    parser.add_argument("what", choices=("check",), help="what to do")
    parser.add_argument("--checkpoint", metavar="PATH", help="the model: a folder, a config.json or a GGUF file")
    parser.add_argument(
        "--engine", action="extend", nargs="+", default=[], metavar="NAME", dest="engines",
        help="engines of the table (default: all)",
    )  # fmt: skip
    parser.add_shared("--json")
    return parser


def _probe() -> argparse.ArgumentParser:
    parser = Parser(
        "probe",
        "It asks for completions at growing lengths; no weights and no second engine are needed.",
        epilog="Exit code: 0 if positions are correct up to --length, 1 for a fault (scaling not applied, context "
        "capped, prompts truncated), 3 if inconclusive, 2 for bad usage or a server that cannot be reached.",
    )
    parser.add_argument("--endpoint", metavar="URL", required=True, help="base URL of a server with /v1/completions")
    parser.add_argument("--checkpoint", metavar="PATH", help="the model: a folder, a config.json or a GGUF file")
    parser.add_argument(
        "--original", type=tokens, metavar="TOKENS",
        help="training length before the scaling, assumed to work (default: from "
        "--checkpoint, or half of --length)",
    )  # fmt: skip
    parser.add_argument(
        "--length", type=tokens, metavar="TOKENS",
        help="longest prompt to send (default: from --checkpoint or the server, else 8192)",
    )  # fmt: skip
    parser.add_argument(
        "--model", default="", metavar="NAME", help="model name in requests (default: the server's first)"
    )
    parser.add_argument(
        "--api-key-env", default="", metavar="VARIABLE", help="environment variable with the key to send"
    )
    parser.add_argument(
        "--requests", type=int, default=40, metavar="N", help="maximum number of requests (default: %(default)s)"
    )
    parser.add_argument(
        "--seconds", type=float, default=1800.0, metavar="S", help="maximum time in seconds (default: %(default)g)"
    )
    parser.add_shared("--json")
    return parser


def _search(group: argparse._ArgumentGroup) -> None:
    """Sizes of LongRoPE's search."""
    group.add_argument("--search", type=int, metavar="N", help="candidates that a search starts with (default: 16)")
    group.add_argument("--generations", type=int, default=4, metavar="N", help="after them (default: %(default)s)")


def _head_dim(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 9 or not 1 <= int(text) <= _WIDEST_HEAD:
        raise argparse.ArgumentTypeError(f"a whole number from 1 to {_WIDEST_HEAD} is needed, got {text[:24]}")
    return int(text)


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


PARSERS: dict[str, Callable[[], argparse.ArgumentParser]] = {
    "explain": _explain, "doctor": _doctor, "extend": _extend, "convert": _convert, "evaluate": _evaluate,
    "attach": _attach, "gguf": _gguf, "serve": _serve, "check-batch": _check_batch, "engines": _engines,
    "probe": _probe,
}  # fmt: skip
