"""Measured results of engines' rotation code, and lookups of them for one config.

engine_table.json is made from the records of the bench (benchmarks/engines in the repository). For each engine it has
the version, and for each row (a kind of rope block) and spelling (keys of transformers 4, 5 or both) the state, the
largest difference from transformers and the remedy that was run in that engine. Needs no torch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from posenc.hf.config.rope_keys import Block
from posenc.hf.config.text_config import TextConfig

VLLM, SGLANG, MLX = "vllm", "sglang", "mlx_lm"
CONVERTER, WRITER, FLAGS = "llama_cpp_converter", "llama_cpp_gguf", "llama_cpp_flags"
_ONE_CODE = (CONVERTER, WRITER, FLAGS)  # for all model types
UNKNOWN = "?"  # in place of a model type that posenc does not know: an engine's code of it may not read these keys
TITLES = {  # how engines are called in sentences, where not by their names
    VLLM: "vLLM", SGLANG: "SGLang", MLX: "mlx-lm", CONVERTER: "llama.cpp's converter",
    WRITER: "llama.cpp, posenc gguf", FLAGS: "llama.cpp, flags", "lmdeploy": "LMDeploy",
}  # fmt: skip
_NESTED = "nested "  # before the spelling of a block that stands in a config's text_config
SPELLINGS = {"v4": "version-4 keys", "v5": "version-5 keys", "both": "both versions' keys"}
SPELLINGS |= {f"{_NESTED}{spelling}": f"{words} in text_config" for spelling, words in SPELLINGS.items()}
WITHIN = ", within the original length"  # of rows whose frequencies follow the length
_AT_MOST = "at most"  # how a remedy for texts within the original length says so
State = Literal["right", "off", "ignored", "refused", "disputed", "not measured"]
WRONG: tuple[State, ...] = ("off", "ignored", "refused")
# Model types whose M-RoPE runs the code of a measured type in vLLM 0.33.0: models/qwen3_5.py:165 and
# models/qwen3_vl_moe.py:77 call qwen3_vl.py's mrope_positions_factor; Qwen2-VL and Qwen2.5-VL both use Qwen2's language
# model. models/glm4_moe.py:281 leaves that factor at its 4, as Qwen2's does, and YaRN's ramp is computed from 4 times
# the original length (rotary_embedding/mrope.py:351): by this formula GLM-4.5V's slow pairs are 1.267 times too fast at
# twice its 65,536 tokens, and 1.27 was measured.
_SAME_MROPE = {
    "qwen3_5_text": "qwen3_vl_text", "qwen3_5_moe_text": "qwen3_vl_text", "qwen3_vl_moe_text": "qwen3_vl_text",
    "qwen2_vl_text": "qwen2_5_vl_text", "qwen2_vl": "qwen2_5_vl_text", "qwen2_5_vl": "qwen2_5_vl_text",
    "glm4v_moe_text": "qwen2_5_vl_text",
}  # fmt: skip
# Model types of which other types' results say nothing, by engine and version: state, text, rows and date. No case of
# the bench asks about them; benchmarks/engines/lines.py saw them in released configs. MiMo-V2's class hands the base
# alone on (vLLM, models/mimo_v2.py:304).
_SEEN: dict[tuple[str, str, str], tuple[State, str, tuple[str, ...], str]] = {
    (VLLM, "0.33.0", "mimo_v2_flash"): ("ignored", "all scaling", ("yarn", "linear", "llama3", "per layer: yarn"),
                                        "2026-11-26"),
}  # fmt: skip


@lru_cache(maxsize=1)
def engine_table() -> dict[str, dict[str, Any]]:
    """By engine, the version that was measured, and what it computes (``engine_table.json``)."""
    text = Path(__file__).with_name("engine_table.json").read_text(encoding="utf-8")
    engines: dict[str, dict[str, Any]] = json.loads(text)["engines"]
    return engines


def version_of(engine: str) -> str:
    """The version of an engine that was measured; "" where none was."""
    return str(engine_table().get(engine, {}).get("version", ""))


class Remedy(NamedTuple):
    """What was run in the same engine to make a wrong cell right.

    Attributes:
        how: "config": other keys; "flag": options of the engine; "tool": a file or plug-in of posenc; "none" where
            nothing that was tried is right.
        what: the change, in words; for "none" what was tried.
        adds: keys that a config's block needs more, where it needs nothing else.
        only: the texts of the measured case for which the change is right; "": all.
    """

    how: Literal["config", "flag", "tool", "none"]
    what: str
    adds: tuple[str, ...] = ()
    only: str = ""

    def __str__(self) -> str:
        if self.how == "none":
            return f"no remedy found (tried: {self.what})"
        if not self.only:
            return self.what
        known = {_AT_MOST: "up to the original length", "more than": "beyond the original length"}
        texts = next((words for start, words in known.items() if self.only.startswith(start)), "of one length")
        return f"{self.what}, for texts {texts} only"  # without the length of the measured case


class EngineResult(NamedTuple):
    """The measured result of one engine for one row in one spelling.

    Attributes:
        engine: its adapter's name.
        version: that was measured; "": none was.
        row: the kind of block: a rope type, or one with a key that changes its meaning.
        spelling: a key of `SPELLINGS`.
        state: right, off, ignored (a key), refused, disputed, or "not measured".
        gap: from transformers; None where there is no number.
        text: what is ignored, or the engine's own words.
        date: of the record.
        model: the model type that was measured.
        remedy: None where none was run.
    """

    engine: str
    version: str
    row: str
    spelling: str
    state: State
    gap: float | None = None
    text: str = ""
    date: str = ""
    model: str = ""
    remedy: Remedy | None = None

    @property
    def right(self) -> bool | None:
        """Whether the engine computes the row as transformers does; None: disputed, or not measured."""
        return False if self.state in WRONG else (self.state == "right" or None)

    def __str__(self) -> str:
        name = f"{TITLES.get(self.engine, self.engine)} {self.version}"
        what = f"{self.row} ({SPELLINGS[self.spelling]})"
        gap = "" if self.gap is None else f", largest difference {self.gap:.2g}"
        if self.state == "not measured":
            return f"{what} was not measured in {name}"
        if self.state == "disputed":
            return f"{what} is disputed: {self.text} ({name}, measured {self.date})"
        words = {
            "right": f"computes {what} correctly",
            "off": f"computes {what} differently from transformers{gap}",
            "ignored": f"ignores {self.text} in {what}{gap}",
            "refused": f"refuses {what}: {self.text}",
        }
        return f"{name} {words[self.state]} (measured {self.date}, {self.model})"


def engine_result(engine: str, row: str, spelling: str = "v5", model_type: str = "") -> EngineResult:
    """The measurement of one row: of the class that serves the model type, by the bench or in a released config.

    Another model type's result speaks for this one where an engine has one code for all of them (llama.cpp's converter
    and flags), and where a rotary class was wrong in each of several model types that it was asked with. A block in a
    text_config counts as measured by its own record, or else as the same block outside.

    Args:
        engine: its adapter's name.
        row: the kind of block.
        spelling: a key of `SPELLINGS`.
        model_type: of the text model; "": any.
    """
    content = engine_table().get(engine, {})
    version = content.get("version", "")
    nothing = EngineResult(engine, version, row, spelling, "not measured")
    state, text, seen, date = _SEEN.get((engine, version, model_type), ("not measured", "", (), ""))
    if row in seen:
        return nothing._replace(state=state, text=text, date=date, model=model_type)
    rows = content.get("rows", {}).get(row, {})
    model_type = _SAME_MROPE.get(model_type, model_type) if row.startswith("M-RoPE") else model_type
    spellings, of_class = [spelling, spelling.removeprefix(_NESTED)], content.get("measures") == "cos and sin"
    if of_class:  # transformers hands the class version 5's block, however it is written
        spellings += ["v5", f"{_NESTED}v5"]
    for key in dict.fromkeys(spellings):
        entry = _entry_for(rows.get(key, []), model_type, of_class or engine in _ONE_CODE)
        if entry is None:
            continue
        tried = entry.get("remedy")
        remedy = tried and Remedy(
            tried["how"], tried.get("what", ""), tuple(tried.get("adds", ())), tried.get("only", "")
        )
        return nothing._replace(
            spelling=key, state=entry["state"], gap=entry.get("gap"), text=entry.get("text", ""), date=content["date"],
            model=model_type if model_type in entry["models"] else entry["models"][0], remedy=remedy,
        )  # fmt: skip
    ran = content.get("classes", {}).get(model_type, {})
    if any(row in ran.get(way, ()) for way in ("file", "override")):
        return nothing._replace(state="right", date=content["date"], model=model_type)
    return nothing


def _entry_for(entries: Sequence[Mapping[str, Any]], model_type: str, one_code: bool) -> Mapping[str, Any] | None:
    """The entry of a model type; None where nothing answers for it.

    Args:
        entries: of one row and spelling.
        model_type: of the text model; "": any, and then Llama's, or the worst.
        one_code: whether all model types of the engine share the code that computes the rotation.
    """
    names = {model_type, model_type.removesuffix("_text")}  # records name a nested case after the whole model
    matching = [entry for entry in entries if names & set(entry["models"])]
    if not matching and not model_type:
        matching = [entry for entry in entries if "llama" in entry["models"]] or list(entries)
    models = {model for entry in entries for model in entry["models"]}
    if not matching and one_code and len(models) > 1 and all(entry["state"] in WRONG for entry in entries):
        matching = list(entries)
    order = ("right", "disputed", *reversed(WRONG))
    return max(matching, key=lambda entry: order.index(entry["state"]), default=None)


def rows_of_block(block: Block, length: int | None = None) -> list[str]:
    """The rows that a block belongs to; an engine must be right in each.

    Args:
        block: of ``rope_parameters``, with the names of version 5.
        length: tokens that are served; None: more than the original length.
    """
    kind = block.get("rope_type", "default")
    original = block.get("original_max_position_embeddings")
    short = length is not None and original is not None and length <= original
    within = WITHIN if short and block.get("short_factor") != block.get("long_factor") else ""
    rows = [kind + (within if kind == "longrope" else "")]
    if kind == "dynamic":  # whose base follows every text, also a short one under a long served length
        rows.append(f"dynamic{WITHIN}")
    elif kind == "yarn":
        if block.get("attention_factor") is not None or block.get("attn_factor") is not None:
            rows.append("yarn: attention_factor")
        scales = bool(block.get("mscale")) + bool(block.get("mscale_all_dim"))
        if scales:
            rows.append(f"yarn: {'one of ' if scales == 1 else ''}mscale and mscale_all_dim")
        if (block.get("beta_fast") or 32, block.get("beta_slow") or 1) != (32, 1):
            rows.append("yarn: betas")
        if block.get("truncate") is False:
            rows.append("yarn: truncate false")
    elif kind == "longrope" and any(block.get(key) is not None for key in ("attention_factor", *_GAINS)):
        rows.append(f"longrope: attention_factor{within}")
    elif kind == "proportional" and (block.get("factor") or 1) != 1:
        rows.append("proportional: factor")
    if kind != "proportional" and (block.get("partial_rotary_factor") or 1) != 1:
        rows.append("partial: yarn" if kind == "yarn" else "partial")
    if block.get("mrope_section") is not None:
        rows.append(f"M-RoPE on text: {kind}")
    return rows


_GAINS = ("short_mscale", "long_mscale")


def rows_of_blocks(blocks: Iterable[Block | None], length: int | None = None) -> dict[str, Block]:
    """The rows of a config's kinds of layers, with the block that each comes from.

    Args:
        blocks: one for each kind of layers, None for a kind that does not rotate.
        length: as `rows_of_block` takes it.
    """
    every = list(blocks)
    rotating = [block for block in every if block is not None]
    if len(every) < 2 or not rotating:
        return {row: block for block in rotating for row in rows_of_block(block, length)}
    kinds = [block.get("rope_type", "default") for block in rotating]
    scaled = next((kind for kind in kinds if kind != "default"), "default")
    name = "per layer: none in full attention" if None in every else f"per layer: {scaled}"
    # The row of several kinds stands for their plain rope types; keys that change a type are rows of their own.
    return {name: rotating[0]} | {
        row: block for block in rotating for row in rows_of_block(block, length) if row not in kinds
    }


class Verdict(NamedTuple):
    """The measured results of one engine for each row that a config belongs to.

    Attributes:
        engine: its adapter's name.
        results: one a row.
        right: True where every row was measured as correct, False where one was measured as wrong, else None.
        beyond: parts of the config's attention that a measurement of a rotary class says nothing about.
        override_ran: whether an override of this part of a config was run in the model class, and was right.
    """

    engine: str
    results: tuple[EngineResult, ...]
    right: bool | None
    beyond: tuple[str, ...] = ()
    override_ran: bool = False

    def __str__(self) -> str:
        """What is wrong, with its remedy; what is disputed; what was not measured; or what is correct."""
        texts = []
        for result in self.results if self.right is False else ():
            remedy = result.remedy
            advice = (
                "no remedy was measured" if remedy is None else remedy if remedy.how == "none" else f"remedy: {remedy}"
            )
            texts += [f"{result}; {advice}"] if result.right is False else []
        texts = texts or [str(result) for result in self.results if result.state == "disputed"]
        if texts:
            return "; ".join(dict.fromkeys(texts))
        rows = dict.fromkeys(result.row for result in self.results if self.right or not result.right)
        if self.right:
            models = dict.fromkeys(result.model for result in self.results)
            of_class = engine_table()[self.engine]["measures"] == "cos and sin"
            measures = "rotary class" if of_class else "whole model"
            rest = f"; not measured: {', '.join(self.beyond)}" if self.beyond and of_class else ""
            verb = "matches" if len(rows) == 1 else "match"
            return f"{', '.join(rows)} {verb} transformers ({measures}, {', '.join(models)}{rest})"
        if self.engine not in engine_table():
            return f"not measured: {TITLES.get(self.engine, self.engine)}"
        return f"not measured: {', '.join(rows)} with {SPELLINGS[self.results[0].spelling]}" if rows else "not measured"


def verdict(
    engine: str,
    blocks: Iterable[Block | None],
    *,
    spelling: str = "v5",
    model_type: str = "",
    length: int | None = None,
    beyond: tuple[str, ...] = (),
    overridden: str = "",
) -> Verdict:
    """The measured results of an engine for a config.

    A row that was measured wrong counts as right where the config has what its remedy adds: the keys of the block, or
    a served length within the original one.

    Args:
        engine: its adapter's name.
        blocks: one for each kind of layers, with the names of version 5; None for layers that do not rotate.
        spelling: of the config that the engine reads, a key of `SPELLINGS`.
        model_type: of the text model.
        length: tokens that are served; None: more than the original length.
        beyond: as `posenc.hf.serving.lines.Serving.beyond` has it.
        overridden: the type of the whole model where flags override a part of its config, such as text_config.
    """
    results = []
    for row, block in rows_of_blocks(blocks, length).items():
        result = engine_result(engine, row, spelling, model_type)
        results.append(
            result._replace(state="right") if result.right is False and _has_remedy(result, block) else result
        )
    ran = not overridden or "nested override" in engine_table().get(engine, {}).get("classes", {}).get(overridden, {})
    states = {result.right for result in results}
    right = False if False in states else (states == {True} or None)
    return Verdict(engine, tuple(results), right, beyond, ran)


def _has_remedy(result: EngineResult, block: Block) -> bool:
    """Whether a config has what made the row right: the added keys, and a served length within the original one."""
    remedy = result.remedy
    if remedy is None or remedy.how in ("none", "tool"):
        return False
    added = all(block.get(key) is not None for key in remedy.adds)
    if remedy.how == "flag":  # the length that is served, which the row stands for
        return added and remedy.only.startswith(_AT_MOST) and result.row.endswith(WITHIN)
    return bool(remedy.adds) and added and not remedy.only


def spelling_of(text_config: TextConfig) -> str:
    """The keys in which a text config says its rotation, a key of `SPELLINGS`."""
    older = any(text_config.get(key) is not None for key in ("rope_scaling", "rope_theta", "rotary_emb_base"))
    newer = text_config.get("rope_parameters") is not None
    return (_NESTED if text_config.path else "") + ("v4" if not newer else "both" if older else "v5")
