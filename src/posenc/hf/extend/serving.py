"""What engines must be told to turn as an extended model does, as lines to paste.

Source: vLLM's documentation, features/context_extension (--hf-overrides); SGLang, server_args.py (--context-length,
    --json-model-override-args); llama.cpp, common/arg.cpp, and ggml-org/llama.cpp#17459: its server cuts the context at
    the file's own length, which --override-kv raises.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from posenc.hf.formats.architectures import ARCHITECTURES
from posenc.hf.section import replaced, section_of

_ENDS = "whose rope type computes its base at every length in transformers, but once, for its factor, in"


def lines_for(config: Mapping[str, Any], folder: str, length: int, *, trained: bool) -> str:
    """A text in Markdown.

    Args:
        config: of the extended model, in the spelling of version 5.
        folder: where it will lie, as engines are given it.
        length: tokens.
        trained: whether its weights were changed, so that the original ones are of no use.
    """
    section = section_of(dict(config))
    text = section.config
    block = text["rope_parameters"]
    changed = {"rope_parameters": block, "max_position_embeddings": text.get("max_position_embeddings", length)}
    override = shlex.quote(
        json.dumps(replaced({}, section, changed) if not section.path else _nested(section.path, changed))
    )
    name = shlex.quote(folder)
    allowed = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1"
    found = [
        f"# Serving {folder} with {length:,} tokens", "", "transformers needs nothing but the folder. vLLM:", "",
        f"    vllm serve {name} --max-model-len {length}", "", "SGLang:", "",
        f"    {allowed} python -m sglang.launch_server --model-path {name} --context-length {length}", "",
    ]  # fmt: skip
    if not trained:
        found += [
            "The weights are the original ones. With those, ORIGINAL their folder, the same is:", "",
            f"    vllm serve ORIGINAL --max-model-len {length} --hf-overrides {override}",
            f"    {allowed} python -m sglang.launch_server --model-path ORIGINAL --context-length {length} "
            f"--json-model-override-args {override}", "",
        ]  # fmt: skip
    found += ["llama.cpp:", "", *_llama_cpp(section.model_type, block, length, folder, trained), ""]
    kinds = [one for one in _blocks(block) if one.get("rope_type") == "dynamic"]
    if kinds:
        found += [f'Beware: the rope type is "dynamic", {_ENDS} vLLM and SGLang: there it changes nothing.', ""]
    return "\n".join(found)


def of_distances(folder: str, name: str) -> str:
    """The same for distances that are moved, which no engine and no rope type knows."""
    return (
        f"# Serving {folder}\n\nIts layers attend by {name} of the Python package posenc. Load it with\n\n"
        "    from posenc.hf.attach import load\n\n    model = load(FOLDER)\n\nfrom_pretrained refuses it. vLLM, SGLang "
        "and llama.cpp have nothing that does the same; a model for them needs a method of the frequencies.\n"
    )


def _nested(path: tuple[str, ...], value: Mapping[str, Any]) -> dict[str, Any]:
    inner: Any = dict(value)
    for name in reversed(path):
        inner = {name: inner}
    found: dict[str, Any] = inner
    return found


def _blocks(block: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [block] if "rope_type" in block else [one for one in block.values() if one]


def _llama_cpp(model_type: str, block: Mapping[str, Any], length: int, folder: str, trained: bool) -> list[str]:
    """Flags for the original file where they say it, or else that the folder must be converted."""
    convert = f"    python convert_hf_to_gguf.py {shlex.quote(folder)} --outfile extended.gguf"
    told = [convert, f"    llama-server -m extended.gguf -c {length}"]
    blocks = _blocks(block)
    flags = None if trained or len(blocks) != 1 else _flags(blocks[0])
    if flags is None:
        return [*told, "", "Its flags alone cannot say this rotation."]
    names = [name for name, (theirs, _) in ARCHITECTURES.items() if theirs == model_type]
    raised = f" --override-kv {names[0]}.context_length=int:{length}" if names else ""
    return [
        *told,
        "",
        "or with the original file:",
        "",
        f"    llama-server -m ORIGINAL.gguf -c {length} {flags}{raised}",
    ]


def _flags(block: Mapping[str, Any]) -> str | None:
    kind = block["rope_type"]
    if kind == "default":
        return f"--rope-freq-base {block['rope_theta']:.10g}"
    if kind == "linear":
        return f"--rope-scaling linear --rope-scale {block['factor']:g}"
    if kind != "yarn" or {"attention_factor", "mscale", "mscale_all_dim", "truncate"} & set(block):
        return None
    found = f"--rope-scaling yarn --rope-scale {block['factor']:g} --yarn-orig-ctx "
    found += str(block["original_max_position_embeddings"])
    for key, flag in (("beta_fast", "--yarn-beta-fast"), ("beta_slow", "--yarn-beta-slow")):
        found += f" {flag} {block[key]:g}" if key in block else ""
    return found
