"""Lines that serve a model, a line for each engine: the one renderer of extend, serve, recommend and SERVING.md.

    as_written   the folder's config.json says the rotation to serve, so that a line has the length alone
    overridden   flags say it, for the weights of a folder whose config.json says another rotation
    plug-in      flags hand posenc's plug-in a table of exact frequencies (vLLM and SGLang)

An engine is one file of `posenc.hf.serving.engines`, a trainer one of `posenc.hf.serving.trainers`. What a line claims
is what was measured of the class that serves the model type (`posenc.hf.serving.table`); where an engine was measured
to compute the rotation wrong, there is the reason and what to do instead of a command. A written config is preferred to
flags that override it: vLLM does not hand overrides on to a draft model, and overrides of a part of a config
(text_config) are lost or crash in some classes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from posenc.arguments import check_flag, check_whole, shown
from posenc.frequencies.host import steps_of
from posenc.frequencies.longrope import LongRoPE
from posenc.frequencies.rotation import RoPESpec
from posenc.hf.config.non_rotary import attached_names
from posenc.hf.config.rope_config import RopeConfig, model_from_config
from posenc.hf.config.rope_keys import Block
from posenc.hf.config.rotation import equivalent, text_rope
from posenc.hf.config.text_config import TextConfig, max_length
from posenc.hf.config.write import extended_length
from posenc.hf.families.family import CHUNKED
from posenc.hf.limits import TOKENS
from posenc.hf.plan.documented import documented_block
from posenc.hf.rules.keys import misspelt
from posenc.hf.serving.table import UNKNOWN, Verdict, spelling_of, title, verdict, version_of
from posenc.hf.sources.load import Config


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
        return f"{title(self.engine)} {version}".strip()

    def __str__(self) -> str:
        text = "; ".join([self.text, *self.notes])
        if not self.command:
            return f"{self.name}: {'no. ' if self.right is False else ''}{text}"
        return f"{self.name}: {self.command}   ({text})"


@dataclass(frozen=True)
class Serving:
    """What engines are to serve.

    Attributes:
        config: with the rotation to serve.
        length: tokens; None: the engine decides.
        folder: that has the weights and a config.json.
        overridden: whether flags say the rotation, because the config.json says another.
        exact: whether posenc's plug-ins are used.
        gguf: path of the source where it is a GGUF file, which llama.cpp alone serves.
    """

    config: RopeConfig
    length: int | None
    folder: str = "DIR"
    overridden: bool = False
    exact: bool = False
    gguf: str = ""

    @property
    def text_config(self) -> TextConfig:
        """The text model's part of the config."""
        return self.config.text_config

    @property
    def model_type(self) -> str:
        """Of the text model; `UNKNOWN` where posenc does not know it."""
        return self.text_config.model_type if self.text_config.known else UNKNOWN

    @cached_property
    def blocks(self) -> tuple[Block | None, ...]:
        """A block of the file for each kind of layers, None for layers that do not rotate."""
        return tuple(
            None if block.values is None else {k: value for k, value in block.effective.items() if value is not None}
            for block in self.config.facts.blocks
        )

    @cached_property
    def beyond(self) -> tuple[str, ...]:
        """Parts of the model's attention that depend on positions and that no rotary class computes, in words."""
        try:
            layers = [layer for layer in model_from_config(self.config).distinct_layers if layer.attends]
        except ValueError:  # a schedule that is not read, which posenc explain tells
            return ()
        rotations = self.config.rotations
        found = {
            "temperature of the queries": any(layer.temperature is not None for layer in layers),
            "attention in chunks": any(layer.kind == CHUNKED for layer in layers),
            "windows": any(layer.window is not None and layer.kind != CHUNKED for layer in layers),
            "layers without rotation": any(layer.spec is None for layer in layers),
            "softmax scale of mscale_all_dim": any(
                rope is not None and self.config.softmax_factor(kind) != 1 for kind, rope in rotations.items()
            ),
            "sparse attention": any(layer.index_topk is not None or layer.not_read for layer in layers),
        }
        return tuple(name for name, is_there in found.items() if is_there)

    @property
    def rope(self) -> RoPESpec:
        """The one rotation of all layers.

        Raises:
            ValueError: where layers differ, do not rotate, or rotate by several coordinates of a token.
        """
        rotations = list(self.config.rotations.values())
        if len(rotations) != 1 or rotations[0] is None:
            raise ValueError("its settings have one rotation for all layers, and the layers of this model differ")
        rope = text_rope(rotations[0])
        if rope is not rotations[0]:
            raise ValueError("its settings have no M-RoPE")
        return rope

    @property
    def changed(self) -> bool:
        """Whether the rotation to serve differs from the file's."""
        old = self.config.facts.as_read
        return any(not equivalent(rope, old.get(kind)) for kind, rope in self.config.rotations.items())

    def verdict(self, engine: str, blocks: Any = None, spelling: str = "", length: int | None = None) -> Verdict:
        """What was measured of these blocks in an engine of the table; default: the file's, in its spelling."""
        return verdict(
            engine, self.blocks if blocks is None else blocks, spelling=spelling or spelling_of(self.text_config),
            model_type=self.model_type, length=length or self.length, beyond=self.beyond,
            overridden=str(self.config.config.get("model_type")) if self.overridden and self.text_config.path else "",
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
    serving = Serving(config, length, folder, exact=exact)
    serving = replace(serving, overridden=exact or serving.changed)
    if (slip := misspelt(config.facts)) is not None:
        raise ValueError(f"{slip.key} {slip.text} Correct it first: posenc doctor MODEL --fix OUT --guesses")
    reach = reach_of(config)
    if length is not None and reach is not None and length > reach:
        reason = f"this rotation reaches {reach:,} tokens, not {length:,}: extend it (posenc extend --config-only)"
        return _refused(serving, program, reason)
    serving = replace(serving, length=length or _meant_length(serving))
    if program in TRAINERS:
        return [trainer_line(serving, program)]
    lines = serving_lines(serving, program)
    return [line._replace(engine="trl") if asked == "trl" else line for line in lines]


def _meant_length(serving: Serving) -> int | None:
    """Tokens that a config is to be served with: as it declares, or what its rotation extends that to."""
    facts, changed = serving.config.facts, serving.changed
    declared = max_length(serving.text_config)
    if declared is not None and not changed:
        for block in facts.blocks:
            recipe = None if block.values is None else documented_block(facts.text.model_type, block.effective)
            if recipe is not None and recipe.factor(declared) == block.effective.get("factor"):
                return declared  # Qwen3.5's 1,010,000 tokens are less than its factor times the original length
    # Llama 3.2 declares 131,072, and factor times original length is twice that: an unchanged rotation adds nothing.
    reached = extended_length(serving.config.rotations, recipes=changed)
    return max((length for length in (declared, reached) if length), default=None)


def serving_lines(serving: Serving, program: str | None = None) -> tuple[Line, ...]:
    """The line of each engine that serves models of this kind, or of one by name."""
    if attached_names(serving.config.config) is not None:
        return tuple(_refused(serving, program, "no engine computes the encodings that posenc attached to this model"))
    lines = tuple(module.line(serving) for _, module in _engines(serving, program))
    text_config = serving.text_config
    if text_config.known or not text_config.model_type or serving.gguf:
        return lines
    return tuple(_unmeasured(line, text_config.model_type, serving.config.config) for line in lines)


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


def _engines(serving: Serving, program: str | None) -> list[tuple[str, Any]]:
    """Names and modules of the engines that serve such a model; of one alone where a program is named."""
    names = ("llama.cpp",) if serving.gguf else BY_FLAGS if serving.overridden else ENGINES
    modules = [(name, _module(name)) for name in names if program in (None, name)]
    has_parts = bool(serving.text_config.path)
    return [each for each in modules if program or has_parts or not getattr(each[1], "FOR_PARTS", False)]


def _module(engine: str) -> Any:
    return import_module(f"posenc.hf.serving.engines.{engine.replace('.', '_').replace('-', '_')}")


def _refused(serving: Serving, program: str | None, reason: str) -> list[Line]:
    return [Line(name, version_of(module.COLUMN), "", None, reason) for name, module in _engines(serving, program)]


def _unmeasured(line: Line, model_type: str, config: Config) -> Line:
    """The line for a model type that posenc does not know, whose code may read other keys than a Llama's."""
    if not line.command:
        return line
    if line.engine == "transformers" and not config.get("auto_map"):
        return line._replace(right=None)
    code = "the repository's own code" if line.engine == "transformers" else f"the engine's code of {model_type}"
    return line._replace(right=None, text=f"not measured: {code} may not read these keys")


def reach_of(config: RopeConfig) -> int | None:
    """The longest context that a rotation is meant for, in tokens; None: no length bounds it, or none is declared."""
    ropes = [text_rope(rope) for rope in config.rotations.values() if rope is not None]
    lengths = [config.facts.reachable(rope) for rope in ropes]
    if any(rope.length_dependent and not has_lists(rope) for rope in ropes):
        return None
    return max((length for length in lengths if length is not None), default=None)


def has_lists(rope: RoPESpec) -> bool:
    """Whether a scaling is LongRoPE's, with a list of factors for short and one for long texts."""
    return any(isinstance(step, LongRoPE) for step in steps_of(rope.scaling))
