"""Lines that serve a model, a line for each engine: the one renderer of extend, serve, recommend and SERVING.md.

    as_written   the folder's config.json says the rotation to serve, so that a line has the length alone
    overridden   flags say it, for the weights of a folder whose config.json says another rotation
    plug-in      flags hand posenc's plug-in a table of exact frequencies (vLLM and SGLang)

An engine is one file of `posenc.hf.serving.engines`, a trainer one of `posenc.hf.serving.trainers`. What a line claims
is what was measured of the class that serves the model type (`posenc.hf.serving.table`); where an engine was measured
to compute the rotation wrong, there is the reason and what to do instead of a command. A written config is preferred to
flags that override it: vLLM does not hand overrides on to a draft model, and overrides of a part of a config
(text_config) are lost or crash in some classes.

An override has the block in the engine's own convention: a fixed spectrum without a rope type is written as longrope,
with a factor for each pair; a length-dependent one needs a declared length and posenc's plug-ins. Keys of the file's
block that say something else than the rotation (temperatures, sections) are kept, because an override replaces it.
Source: vLLM 0.33, rotary_embedding/__init__.py (get_rope), engine arguments; SGLang 0.5.23,
    rotary_embedding/factory.py, server_args.py, utils/hf_transformers/config.py (it merges an override into the file's
    block, so every key of that block is written out).
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from posenc.arguments import check_flag, check_whole, one_line, shown
from posenc.frequencies.host import steps_of
from posenc.frequencies.longrope import LongRoPE
from posenc.frequencies.rotation import RoPESpec
from posenc.hf.config.facts import ModelFacts
from posenc.hf.config.rope_config import RopeConfig
from posenc.hf.config.rope_keys import ALL, INTERLEAVED, PRESERVED, TYPES_OF, Block
from posenc.hf.config.rotation import LENGTH, SILENT, Convention, Rotation, equivalent, text_rope
from posenc.hf.config.text_config import attached_names, max_length
from posenc.hf.config.write import block_of, extended_length, keys_of, share_of, to_longrope
from posenc.hf.families.family import CHUNKED
from posenc.hf.limits import TOKENS
from posenc.hf.plan.plan import documented_block, yarn_gain
from posenc.hf.rules.keys import misspelt
from posenc.hf.serving.plugin_block import plugin_block
from posenc.hf.serving.table import TITLES, UNKNOWN, Verdict, engine_result, engine_table, spelling_of, verdict

T = TypeVar("T")


def _programs(folder: str) -> tuple[str, ...]:
    """The programs that have a file in a folder here."""
    stems = sorted(path.stem for path in Path(__file__).with_name(folder).glob("[a-z]*.py"))
    return tuple(stem.replace("_cpp", ".cpp").replace("_", "-") for stem in stems)


BY_FLAGS = ("vllm", "sglang", "llama.cpp")  # engines whose flags say a rotation
ENGINES = (*BY_FLAGS, *(name for name in _programs("engines") if name not in BY_FLAGS))
TRAINERS = _programs("trainers")
_AS_TRANSFORMERS = {"trl": "transformers", "llamafactory": "llama-factory"}  # other names of programs
WRITE_FIRST = "write the folder first (posenc extend --config-only --out DIR), and train that"


class Line(NamedTuple):
    """How one engine serves a model.

    Attributes:
        engine: one of `ENGINES`.
        version: of the engine, which the line is for.
        command: lines to type, with "; " between them; "" where there is none.
        right: whether that version was measured to compute the rotation right; None: not measured.
        text: what was measured, or why there is no command and what to do instead.
        words: the flags of the command, one by one.
        notes: what else is known of this engine and model.
    """

    engine: str
    version: str
    command: str
    right: bool | None
    text: str
    words: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The engine with its version."""
        version = f"({self.version})" if " " in self.version else self.version  # of another package
        return f"{TITLES.get(self.engine, self.engine)} {version}".strip()

    def __str__(self) -> str:
        text = "; ".join([self.text, *self.notes])
        if not self.command:
            return f"{self.name}: {'no. ' if self.right is False else ''}{text}"
        return f"{self.name}: {self.command}   ({text})"


@dataclass(frozen=True)
class Serving:
    """What engines are to serve.

    Attributes:
        facts: of a config with the rotation to serve.
        length: tokens; None: the engine decides.
        folder: that has the weights and a config.json.
        overridden: whether flags say the rotation, because the config.json says another.
        exact: whether posenc's plug-ins are used.
        gguf: path of the source where it is a GGUF file, which llama.cpp alone serves.
    """

    facts: ModelFacts
    length: int | None
    folder: str = "DIR"
    overridden: bool = False
    exact: bool = False
    gguf: str = ""

    @cached_property
    def blocks(self) -> tuple[Block | None, ...]:
        """A block of the file for each kind of layers, None for layers that do not rotate."""
        return tuple(
            None if block.values is None else {k: value for k, value in block.effective.items() if value is not None}
            for block in self.facts.blocks
        )

    @cached_property
    def beyond(self) -> tuple[str, ...]:
        """Parts of the model's attention that depend on positions and that no rotary class computes, in words."""
        facts = self.facts
        try:
            layers = [layer for layer, _, _ in facts.patterns if layer.attends]
        except ValueError:  # a schedule that is not read, which posenc explain tells
            return ()
        if facts.before is not None:
            sharper = any(facts.softmax_factor(rope) != 1 for rope in facts.rotations.values())
        else:  # a file's own keys tell, so that its frequencies are not computed
            rules, blocks = facts.text.rotation, [block.effective for block in facts.blocks]
            heeded = (rules.latent and rules.yarn_in_softmax) or facts.reading.convention == "deepseek"
            sharper = heeded and any(block.get("mscale_all_dim") and block.get("factor") != 1 for block in blocks)
        found = {
            "temperature of the queries": any(layer.temperature is not None for layer in layers),
            "attention in chunks": any(layer.kind == CHUNKED for layer in layers),
            "windows": any(layer.window is not None and layer.kind != CHUNKED for layer in layers),
            "layers without rotation": any(layer.rotated_by is None for layer in layers),
            "softmax scale of mscale_all_dim": sharper,
            "sparse attention": any(layer.index_topk is not None or layer.not_read for layer in layers),
        }
        return tuple(name for name, is_there in found.items() if is_there)

    @property
    def rope(self) -> RoPESpec:
        """The one rotation of all layers.

        Raises:
            ValueError: where layers differ, do not rotate, or rotate by several coordinates of a token.
        """
        rotations = list(self.facts.rotations.values())
        if len(rotations) != 1 or rotations[0] is None:
            raise ValueError("its settings have one rotation for all layers, and the layers of this model differ")
        rope = text_rope(rotations[0])
        if rope is not rotations[0]:
            raise ValueError("its settings have no M-RoPE")
        return rope

    @property
    def changed(self) -> bool:
        """Whether the rotation to serve differs from the file's."""
        before, after = self.facts.before, self.facts.rotations
        return before is not None and any(not equivalent(rope, before.get(kind)) for kind, rope in after.items())

    def steps(self, kind: type[T], rope_type: str) -> list[T]:
        """The steps of one class in the scalings that are served.

        Args:
            kind: the class.
            rope_type: its name; the frequencies of a file that has another one are not computed.
        """
        facts = self.facts
        if facts.before is None and not any(block.effective.get("rope_type") == rope_type for block in facts.blocks):
            return []
        ropes = [text_rope(rope) for rope in facts.rotations.values() if rope is not None]
        return [step for rope in ropes for step in steps_of(rope.scaling) if isinstance(step, kind)]

    def verdict(self, engine: str, blocks: Any = None, spelling: str = "") -> Verdict:
        """What was measured of these blocks in an engine of the table; default: the file's, in its spelling."""
        text = self.facts.text
        return verdict(
            engine, self.blocks if blocks is None else blocks, spelling=spelling or spelling_of(text),
            model_type=text.model_type if text.known else UNKNOWN, length=self.length, beyond=self.beyond,
            overridden=str(self.facts.config.get("model_type")) if self.overridden and text.path else "",
        )  # fmt: skip


def serve_flags(
    config: RopeConfig,
    *,
    exact: bool = False,
    length: int | None = None,
    folder: str = "DIR",
    program: str | None = None,
) -> list[Line]:
    """The command for each engine: the folder as it is, or flags that express a changed rotation.

    Args:
        config: as `read_rope` gives it, with the rotation to serve.
        exact: through posenc's plug-ins, which must be installed with the engine: exact angles; a scaling that
            follows the length spans ``length``.
        length: tokens to serve; default: what the configuration declares, or what a changed rotation reaches.
        folder: of the model, as lines name it.
        program: one of `ENGINES` or `TRAINERS`, or "trl"; None: every engine that serves models of this kind.

    Raises:
        ValueError: for something else than a RopeConfig, for a length that is no count of tokens, for a program that
            is not known, and for a config with a misspelt key, which no engine reads.
    """
    check_flag("exact", exact)
    if length is not None:
        check_whole("length", length, most=TOKENS)
    if not isinstance(config, RopeConfig):
        raise ValueError(f"config must be a RopeConfig, as read_rope gives it, got {shown(config)}")
    if not isinstance(folder, str):
        raise ValueError(f"folder must be text, got {shown(folder)}")
    if program is not None and not isinstance(program, str):
        raise ValueError(f"program must be text, got {shown(program)}")
    asked, program = program, _AS_TRANSFORMERS.get(program, program) if program is not None else None
    if program is not None and program not in (*ENGINES, *TRAINERS):
        raise ValueError(f"program must be one of {', '.join((*ENGINES, 'trl', *TRAINERS))}, got {shown(program)}")
    serving = Serving(config.facts, length, folder, exact=exact)
    serving = replace(serving, overridden=exact or serving.changed)
    if (slip := misspelt(config.facts)) is not None:
        raise ValueError(f"{slip.key} {slip.text} Correct it first: posenc doctor MODEL --fix OUT --guesses")
    reach = reach_of(config.facts)
    if length is not None and reach is not None and length > reach:
        reason = f"this rotation reaches {reach:,} tokens, not {length:,}: extend it (posenc extend --config-only)"
        return [*serving_lines(serving, program, reason)]
    serving = replace(serving, length=length or _meant_length(serving))
    if program in TRAINERS:
        return [trainer_line(serving, program)]
    lines = serving_lines(serving, program)
    return [line._replace(engine="trl") if asked == "trl" else line for line in lines]


def _meant_length(serving: Serving) -> int | None:
    """Tokens that a config is to be served with: as it declares, or what its rotation extends that to."""
    facts, changed = serving.facts, serving.changed
    declared = max_length(facts.text)
    if declared is not None and not changed:
        kinds = [block.effective for block in facts.blocks if block.values is not None]
        if any(documented_block(facts.text.model_type, block, declared) for block in kinds):
            return declared  # Qwen3.5's 1,010,000 tokens are less than its factor times the original length
    # Llama 3.2 declares 131,072, and factor times original length is twice that: an unchanged rotation adds nothing.
    reached = extended_length(facts.rotations, recipes=changed)
    return max((length for length in (declared, reached) if length), default=None)


def serving_lines(serving: Serving, program: str | None = None, reason: str = "") -> tuple[Line, ...]:
    """The line of each engine that serves models of this kind.

    Args:
        serving: what is served.
        program: one engine by name; None: every one.
        reason: why no engine may serve it; "": nothing speaks against it.
    """
    facts = serving.facts
    names = ("llama.cpp",) if serving.gguf else BY_FLAGS if serving.overridden else ENGINES
    modules = [(name, _module(name)) for name in names if program in (None, name)]
    if program is None and not facts.text.path:
        modules = [(name, module) for name, module in modules if not getattr(module, "FOR_PARTS", False)]
    if attached_names(facts.config) is not None:
        reason = "no engine computes the encodings that posenc attached to this model"
    if reason:
        return tuple(Line(name, module.VERSION, "", None, reason) for name, module in modules)
    lines = tuple(module.line(serving) for _, module in modules)
    if facts.text.known or not facts.text.model_type or serving.gguf:
        return lines
    return tuple(
        _unmeasured(line, facts.text.model_type, own_code=bool(facts.config.get("auto_map"))) for line in lines
    )


def _unmeasured(line: Line, model_type: str, *, own_code: bool) -> Line:
    """The line for a model type that posenc does not know, whose code may read other keys than a Llama's."""
    if not line.command:
        return line
    if line.engine == "transformers" and not own_code:
        return line._replace(right=None)
    code = "the repository's own code" if line.engine == "transformers" else f"the engine's code of {model_type}"
    return line._replace(right=None, text=f"not measured: {code} may not read these keys")


def trainer_line(serving: Serving, trainer: str) -> Line:
    """What to set in a trainer of `TRAINERS`."""
    module = import_module(f"posenc.hf.serving.trainers.{trainer.replace('-', '_')}")
    try:
        line: Line = module.line(serving)
    except ValueError as error:
        instead = getattr(module, "INSTEAD", "")
        line = Line(trainer, module.VERSION, "", None, f"{error}: {instead}" if instead else str(error))
    return line


def column_of(engine: str) -> str:
    """The column of the table of engines that says what an engine computes from a config.json."""
    return str(_module(engine).COLUMN)


def differences_of(serving: Serving, engine: str) -> tuple[str, ...]:
    """What an engine computes otherwise than a file says, as read in its code and not measured."""
    compare = getattr(_module(engine), "differences", None)
    return () if compare is None else tuple(compare(serving))


def _module(engine: str) -> Any:
    return import_module(f"posenc.hf.serving.engines.{engine.replace('.', '_').replace('-', '_')}")


def reach_of(facts: ModelFacts) -> int | None:
    """The longest context that a rotation is meant for, in tokens; None: no length bounds it, or none is declared."""
    ropes = [text_rope(rope) for rope in facts.rotations.values() if rope is not None]
    if any(rope.length_dependent and not has_lists(rope) for rope in ropes):
        return None
    return max((length for rope in ropes if (length := facts.reachable(rope)) is not None), default=None)


def has_lists(rope: RoPESpec) -> bool:
    """Whether a scaling is LongRoPE's, with a list of factors for short and one for long texts."""
    return any(isinstance(step, LongRoPE) for step in steps_of(rope.scaling))


# Overrides of a config on the command lines of vLLM and SGLang


class Server(NamedTuple):
    """An engine that serves over HTTP and takes overrides of the config.

    Attributes:
        name: of the engine, of its column in the table, and of the convention of its rope blocks.
        version: of the engine.
        start: words of its command before the folder.
        length_flag: of the tokens to serve.
        override_flag: takes the keys that replace the config's, as JSON.
        merges: whether it merges an override into the file's block, instead of replacing it.
        from_outer: model types whose text model is built from the config outside text_config.
    """

    name: Literal["vllm", "sglang"]
    version: str
    start: tuple[str, ...]
    length_flag: str
    override_flag: str
    merges: bool = False
    from_outer: tuple[str, ...] = ()


def server_line(server: Server, serving: Serving, notes: Sequence[str]) -> Line:
    """The line of a server: the folder with the length, and what overrides its config where the rotation changes."""
    folder = serving.folder
    length = () if serving.length is None else (server.length_flag, str(serving.length))
    line = Line(server.name, server.version, "", None, "")
    blocks: dict[str, Block | None] = {}
    if not serving.overridden:
        checked, words = serving.verdict(server.name), length
    else:
        try:
            blocks = _blocks(server, serving)
        except ValueError as error:
            return line._replace(text=str(error))
        checked = serving.verdict(server.name, blocks.values(), "v5")
        words = (server.override_flag, json.dumps(_overrides(server, serving, blocks)), *length)
    if checked.right is False and not serving.overridden:  # flags may reach what the file's own keys do not
        by_flags = server_line(server, replace(serving, overridden=True), notes)
        if by_flags.command and by_flags.right is not False:
            return by_flags._replace(notes=(*by_flags.notes, f"as the file is: {checked}"))
    if checked.right is False and not serving.exact:
        multimodal = any(text_rope(rope) is not rope for rope in serving.facts.rotations.values() if rope is not None)
        exact = ["posenc", "serve", folder, "--exact", *(["--length", str(serving.length)] if serving.length else [])]
        remedies = [result.remedy for result in checked.results if result.right is False and result.remedy is not None]
        failed = any(remedy.how == "none" and "plug-in" in remedy.what for remedy in remedies)
        plug_in = "" if multimodal or failed else f"; or posenc's plug-in: {shlex.join(exact)}"
        return line._replace(right=False, text=f"{checked}{plug_in}")
    right, text = checked.right, str(checked)
    if serving.exact:
        if not _hands_on_blocks(server, serving):
            model_type = serving.facts.text.model_type
            whose = f"{server.name}'s model class of {model_type}"
            return line._replace(text=f"posenc's plug-in was found not to reach the rotation of {whose}")
        right, text = True, "posenc's table in the engine's own class, compared with posenc's"
    command = shlex.join([*server.start, folder, *words])
    if serving.overridden and serving.facts.text.path and not checked.override_ran:
        part, model_type = ".".join(serving.facts.text.path), serving.facts.text.model_type
        keys, serve = _inner_keys(server, serving, blocks), shlex.join([*server.start, folder, *length])
        return line._replace(
            text=f"an override of {part} was not run in this engine for {model_type}, and is lost or refused in some "
            f"classes: write {json.dumps(keys)} into {part} of config.json, then: {serve}"
        )
    return line._replace(command=command, right=right, text=text, words=words, notes=tuple(filter(None, notes)))


def longrope_note(serving: Serving, *, always: bool) -> str:
    """Which of LongRoPE's lists applies where an engine takes one list for all texts.

    Args:
        serving: what is served.
        always: whether the engine does so without posenc's plug-in too.
    """
    steps = serving.steps(LongRoPE, "longrope")
    originals = [step.original_length for step in steps if step.short != step.long]
    if not originals or not (always or serving.exact):
        return ""
    long = serving.length is not None and serving.length > originals[0]
    return (
        f"every text gets the {'long' if long else 'short'} factors, while transformers uses the short factors up to "
        f"{originals[0]:,} tokens" + (f"; for those serve at most {originals[0]:,} tokens (--length)" if long else "")
    )


def _hands_on_blocks(server: Server, serving: Serving) -> bool:
    """Whether no measurement says that the model class keeps the block from the engine's rotary class.

    It then computes every scaling as none, or fails on a rope type that it does not know: no plug-in helped there.
    """
    model_type = serving.facts.text.model_type
    results = {row: engine_result(server.name, row, "v5", model_type) for row in engine_table()[server.name]["rows"]}
    default, yarn = results["default"], results["yarn"]
    own = [each for each in results.values() if each.model in (model_type, model_type.removesuffix("_text"))]
    tried = [each.remedy.what for each in own if each.remedy is not None and each.remedy.how == "none"]
    ignored = yarn.state == "ignored" and yarn.text == "all scaling"
    return default.right is not False and not ignored and not any("plug-in" in what for what in tried)


def _blocks(server: Server, serving: Serving) -> dict[str, Block | None]:
    """A block in the engine's convention for each kind of layers, None for layers that do not rotate.

    Keys of the file's block that say something else than the rotation stay, because an override replaces the block.
    """
    facts, separate = (
        serving.facts,
        ("max_position_embeddings", INTERLEAVED),
    )  # the served length; what the rotation says
    blocks = {
        kind: None if rotation is None else _block(server, serving, rotation)
        for kind, rotation in facts.rotations.items()
    }
    for before in () if serving.exact else facts.blocks:
        block, values = blocks.get(before.kind), before.effective
        kept = [key for key in PRESERVED if values.get(key) is not None and key not in separate]
        if block is not None:
            block |= {key: values[key] for key in kept if key not in block}
    if not any(blocks.values()):
        raise ValueError("no layer rotates")
    return blocks


def _block(server: Server, serving: Serving, rotation: Rotation) -> Block:
    rope, text_config = text_rope(rotation), serving.facts.text
    if serving.exact:
        if rope is not rotation:
            raise ValueError("the plug-in has no M-RoPE; leave --exact out")
        return plugin_block(rope, length=serving.length if rope.length_dependent else None, tokens=serving.length)
    block = block_in(server.name, rope, serving.length)
    if rope.rotary_dim != rope.head_dim and not text_config.rotation.latent:
        block["partial_rotary_factor"] = share_of(rope.rotary_dim, rope.head_dim)
    elif text_config.get("partial_rotary_factor") not in (None, 1):  # the engine else takes the share outside the block
        block["partial_rotary_factor"] = 1.0
    return block | keys_of(rotation, text_config.rotation, {})


def block_in(convention: Convention, rope: RoPESpec, declared: int | None) -> Block:
    """The block in an engine's convention; for what has no rope type there, a factor for each pair.

    Raises:
        ValueError: for a rotation that follows the length.
    """
    if rope.length_dependent and not has_lists(rope):
        if declared is not None and all(getattr(s, "original_length", 0) >= declared for s in steps_of(rope.scaling)):
            return {"rope_type": "default", "rope_theta": rope.base}  # within it the base does not grow
        text = "it follows the length, which the engine fixes once: declare one with --exact and posenc's plug-in"
        raise ValueError(f"{one_line(rope.scaling)}: {text}")
    try:
        block = block_of(rope, convention, {})
    except ValueError:
        block = block_of(text_rope(to_longrope(rope, declared)), convention, {})
    if convention == "vllm" and block["rope_type"] == "yarn":  # gpt_oss.py takes them from the block without a default
        block = {**block, "beta_fast": block.get("beta_fast", 32.0), "beta_slow": block.get("beta_slow", 1.0)}
    return {key: value for key, value in block.items() if key != LENGTH}


def _overrides(server: Server, serving: Serving, blocks: dict[str, Block | None]) -> Block:
    """The keys that override the config's own in the engine, nested as the text model's part is."""
    overrides = inner = _inner_keys(server, serving, blocks)
    for name in reversed(serving.facts.text.path):
        overrides = {name: overrides}
    return {**inner, **overrides} if serving.facts.text.model_type in server.from_outer else overrides


def _inner_keys(server: Server, serving: Serving, blocks: dict[str, Block | None]) -> Block:
    """The keys of the text model that change."""
    text_config, blocks = serving.facts.text, _as_in_file(serving, blocks)
    if server.merges and not serving.exact and list(blocks) == [ALL]:
        # SGLang merges an override into the file's block: a key that the override leaves out would keep its old value,
        # so that every other key of the type is set to its default, or null.
        new = blocks[ALL] or {}
        old = next(block.effective for block in serving.facts.blocks if block.values is not None)
        read = sum(TYPES_OF["sglang"][new["rope_type"]], ())
        blocks[ALL] = new | {k: SILENT.get(k) for k in read if k not in new and (k in SILENT or k in old)}
    keys: Block = {"rope_parameters": blocks[ALL] if list(blocks) == [ALL] else blocks}
    if "rope_theta" in text_config and list(blocks) == [ALL]:  # version 4's key, which must not contradict the block
        keys["rope_theta"] = keys["rope_parameters"]["rope_theta"]
    longest = max((length for length in (serving.length, max_length(text_config)) if length), default=None)
    return keys if longest is None else {**keys, text_config.length_key: longest}


def _as_in_file(serving: Serving, blocks: dict[str, Block | None]) -> dict[str, Block | None]:
    """The blocks by kind of layers, or one for all where the code of the model decides which layers rotate.

    Cohere 2, EXAONE 4 and AFMoE leave their full-attention layers without a rotation by their code: the file has one
    block, and vLLM's and SGLang's classes of them read no other form (models/commandr.py, exaone4.py, afmoe.py).
    """
    in_file = serving.facts.text.get("rope_parameters") or {}
    by_kind = any(isinstance(value, dict) for value in in_file.values())
    rotating = [block for block in blocks.values() if block is not None]
    read = serving.facts.as_read
    by_code = all(block is not None or read.get(kind) is None for kind, block in blocks.items())
    if len(rotating) < len(blocks) and by_code and not by_kind and all(block == rotating[0] for block in rotating):
        return {ALL: rotating[0]}
    return dict(blocks)


def gain_of_yarn(block: dict[str, Any]) -> tuple[float, float, float]:
    """The gain of a YaRN block on rotated queries and keys, and the scales (numerator, denominator) that give it.

    m(a) = 0.1 a ln(factor) + 1, and the gain is m(numerator) / m(denominator).

    Raises:
        ValueError: for a factor of 1 with another gain than 1.
    """
    scale, all_dim = float(block.get("mscale") or 0), float(block.get("mscale_all_dim") or 0)
    if block.get("attention_factor") is None:
        scale, all_dim = (scale, all_dim) if scale and all_dim else (1.0, 0.0)
        return yarn_gain(block["factor"], scale) / yarn_gain(block["factor"], all_dim), scale, all_dim
    gain = float(block["attention_factor"])
    if block["factor"] <= 1:
        raise ValueError("a gain needs a factor above 1 there")
    return gain, (gain - 1) / (0.1 * math.log(block["factor"])), 0.0


def steps_of_temperature(facts: ModelFacts) -> Iterator[tuple[float, int]]:
    """Of each block whose temperature of the queries grows in steps: its beta, and the step in tokens."""
    rule = facts.text.family.attention.temperature
    for block in facts.blocks:
        beta, step = (block.effective.get(key) for key in ("llama_4_scaling_beta", "original_max_position_embeddings"))
        if rule is not None and rule.form == "block steps" and beta and step:
            yield float(beta), int(step)
