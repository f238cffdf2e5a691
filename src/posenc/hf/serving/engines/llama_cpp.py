"""llama.cpp: its converter and llama-server on the file, or flags for a file that says another rotation.

The gain of YaRN is --yarn-attn-factor times the rule, 0.1 ln(factor) + 1. Whatever flags cannot express must be in the
file (`posenc gguf`).
Source: llama.cpp, common/arg.cpp; convert_hf_to_gguf.py (yarn_log_multiplier of DeepSeek's class);
    ggml-org/llama.cpp#17459: its server cuts the context at the file's own length, which --override-kv raises.
"""

from __future__ import annotations

import json
import math
import shlex

from posenc.hf.config.rope_keys import Block
from posenc.hf.config.rotation import text_rope
from posenc.hf.serving.lines import Line, Serving, block_in, gain_of_yarn
from posenc.hf.serving.table import CONVERTER, FLAGS, WRITER, version_of
from posenc.hf.sources.gguf_metadata import ARCHITECTURES

COLUMN, VERSION = CONVERTER, f"llama_cpp_python {version_of(CONVERTER)}"  # llama.cpp's releases have no numbers
_SECTION = "mrope_section"
_OF_YARN = {"rope_type", "rope_theta", "factor", "original_max_position_embeddings", "beta_fast", "beta_slow"}
_GAIN = {"attention_factor", "mscale", "mscale_all_dim"}


def line(serving: Serving) -> Line:
    """The line of llama.cpp."""
    if serving.gguf:
        return _of_gguf(serving)
    return _by_flags(serving) if serving.overridden else _of_folder(serving)


def _context(serving: Serving) -> list[str]:
    return [] if serving.length is None else ["-c", str(serving.length)]


def _of_folder(serving: Serving) -> Line:
    """The converter's file, or where it loses the rotation a file that `posenc gguf` writes over it."""
    name, serve = shlex.quote(serving.folder), shlex.join(["llama-server", "-m", "model.gguf", *_context(serving)])
    convert = f"python convert_hf_to_gguf.py {name} --outfile"
    result = Line("llama.cpp", VERSION, f"{convert} model.gguf; {serve}", None, "")
    if serving.facts.text.rotation.latent:  # of which the bench has no case
        text = "not measured for latent attention"
        if any((block or {}).get("mscale_all_dim") for block in serving.blocks):
            text += (
                ": its converter writes yarn_log_multiplier, from which gain and softmax scale follow without a flag"
            )
        return result._replace(text=text)
    lost = serving.verdict(CONVERTER)
    if lost.right is not False:
        return result._replace(right=lost.right, text=str(lost))
    written = serving.verdict(WRITER, spelling="v5")
    if written.right is False:
        return result._replace(command="", right=False, text=f"no GGUF file is known to hold this rotation: {written}")
    rows = ", ".join(dict.fromkeys(each.row for each in lost.results if each.right is False))
    command = f"{convert} plain.gguf; posenc gguf plain.gguf model.gguf --rope {name}; {serve}"
    text = f"its own converter is wrong in {rows}; posenc gguf: {written}"
    return result._replace(command=command, right=written.right, text=text)


def _by_flags(serving: Serving) -> Line:
    """Flags for the file of the original weights."""
    result = Line("llama.cpp", VERSION, "", None, "")
    if serving.facts.text.rotation.latent:
        text = "no flag sets the softmax scale of latent attention: convert the written folder"
        return result._replace(text=text)
    try:
        words, block = flags_of(serving)
    except ValueError as error:
        return result._replace(text=str(error))
    checked = serving.verdict(FLAGS, [block], "v5")
    if checked.right is False:
        return result._replace(right=False, text=f"{checked}; write the file: posenc gguf")
    raised = context_words(serving.facts.text.model_type, serving.length)
    return result._replace(
        command=shlex.join(["llama-server", "-m", "model.gguf", *words, *raised]), right=checked.right,
        text=str(checked), words=tuple(words),
    )  # fmt: skip


def flags_of(serving: Serving) -> tuple[list[str], Block]:
    """Words of llama-server, and the block that they say, whether or not llama.cpp computes it correctly.

    Raises:
        ValueError: for a rotation that no flags say.
    """
    rotations = list(serving.facts.rotations.items())
    rotating = [(kind, rotation) for kind, rotation in rotations if rotation is not None]
    if not rotating:
        raise ValueError("no layer rotates")
    if len(rotations) > 1:
        kinds = " and ".join(kind for kind, _ in rotating)
        raise ValueError(
            f"its flags set one rotation for all layers, and here {kinds} layers rotate in their own way: convert the "
            "written folder"
        )
    block = block_in("transformers", text_rope(rotating[0][1]), serving.length)
    return [*words_of_block(block), *_context(serving)], block


def words_of_block(block: Block) -> list[str]:
    """Words of llama-server for a block.

    Raises:
        ValueError: for a block that no flags say.
    """
    kind, base = block.get("rope_type"), ["--rope-freq-base", f"{block.get('rope_theta', 0):.10g}"]
    if kind == "default":
        return ["--rope-scaling", "none", *base]
    if kind == "linear":
        return ["--rope-scaling", "linear", "--rope-scale", f"{block['factor']:.10g}", *base]
    if kind != "yarn":
        raise ValueError("its flags have no factors for each pair: write the file (posenc gguf)")
    if set(block) - _OF_YARN - _GAIN - {"partial_rotary_factor"}:
        raise ValueError("its flags have no YaRN with another ramp: write the file (posenc gguf)")
    words = ["--rope-scaling", "yarn", "--rope-scale", f"{block['factor']:.10g}"]
    words += ["--yarn-orig-ctx", str(block["original_max_position_embeddings"])]
    for key in ("beta_fast", "beta_slow"):
        words += [f"--yarn-{key.replace('_', '-')}", f"{block[key]:.10g}"] if key in block else []
    rule = gain_of_yarn({key: value for key, value in block.items() if key not in _GAIN})[0]
    share = gain_of_yarn(block)[0] / rule
    words += [] if math.isclose(share, 1.0, rel_tol=1e-6) else ["--yarn-attn-factor", f"{share:.9g}"]
    return [*words, *base]


def _of_gguf(serving: Serving) -> Line:
    """Flags for a GGUF file, or a copy of it."""
    gguf, checked = serving.gguf, serving.verdict(WRITER, spelling="v5")
    result = Line("llama.cpp", VERSION, "", None, "")
    if checked.right is False or len(serving.blocks) != 1 or serving.blocks[0] is None:
        reason = str(checked) if checked.right is False else "its layers have rotations of several kinds"
        return result._replace(right=False, text=f"no GGUF file is known to hold this rotation: {reason}")
    block = {key: value for key, value in serving.blocks[0].items() if key != _SECTION}
    by_flags = serving.verdict(FLAGS, spelling="v5")
    try:
        words = words_of_block(block)
    except ValueError:  # the file must say it
        words = []
    end = [*_context(serving), *context_words(serving.facts.text.model_type, serving.length)]
    if words and by_flags.right is not False:
        command = shlex.join(["llama-server", "-m", gguf, *words, *end])
        text = f"no file is changed; {by_flags}"
        return result._replace(command=command, right=by_flags.right, text=text, words=(*words, *end))
    copy = shlex.join(["posenc", "gguf", gguf, "model.gguf", "--rope", json.dumps(block)])
    command = f"{copy}; {shlex.join(['llama-server', '-m', 'model.gguf', *end])}"
    return result._replace(command=command, right=checked.right, text=str(checked), words=tuple(end))


def context_words(model_type: str, length: int | None) -> list[str]:
    """Words with which llama-server grants more tokens than a file declares; none for a model type without a name."""
    name = next((name for name, (served_type, _) in ARCHITECTURES.items() if served_type == model_type), None)
    return [] if name is None or length is None else ["--override-kv", f"{name}.context_length=int:{length}"]
