"""The rope keys of a config in the spelling of transformers 4, of transformers 5, or of both: `posenc convert`.

`rope_to_config` makes them from a rotation, `parse_rope_argument` puts a block of a command line into a config.

    from posenc.hf import convert_config
    print(convert_config("my-model", "both"))
    convert_config("my-model", "both", in_place=True)

Only these keys change, in the file's own text, and the result is read again before it is returned.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from posenc.arguments import check_flag, check_whole, shown
from posenc.hf.config.rope_config import RopeConfig, check_rotations, check_version, read_rope
from posenc.hf.config.rope_keys import FREE, Block
from posenc.hf.config.rotation import Layers, Reading, Rotation, meaning, misread, text_rope
from posenc.hf.config.text_config import with_text_config
from posenc.hf.config.write import (
    NoOldFormError,
    Spelling,
    block_to_add,
    changes_to,
    check_meaning,
    check_spelling,
    extended_length,
    keys_in_version,
    to_longrope,
)
from posenc.hf.families import FAMILIES, RotationRules
from posenc.hf.families.family import FULL
from posenc.hf.limits import TOKENS
from posenc.hf.sources.config_files import CONFIG, REMOVED, edited, read_files, unified_diff, write_in_place, write_out
from posenc.hf.sources.load import Config, Source, dotted
from posenc.input_files import naming


@dataclass(frozen=True)
class ConfigConversion:
    """A config with its RoPE keys rewritten. Print it.

    Attributes:
        model: the source, as it was given.
        spelling: "both", "v4" or "v5".
        config: the whole config.
        changes: by the path of the key, the new value; None for a key that goes.
        text: of the file.
        diff: of the file, unified; "" where it has this spelling already.
        no_old_form: why version 4 has no keys for this rotation; "" where it has.
        written: the folder or file that was written; None: none was.
    """

    model: str
    spelling: Spelling
    config: Config
    changes: Mapping[str, Any]
    text: str
    diff: str
    no_old_form: str = ""
    written: str | None = None

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "model": self.model, "spelling": self.spelling, "changes": dict(self.changes), "diff": self.diff,
            "no_old_form": self.no_old_form, "written": self.written,
        }  # fmt: skip

    def __str__(self) -> str:
        old = [f"No old form: {self.no_old_form}."] if self.no_old_form else []
        if not self.diff:
            return "\n".join([*old, f"{self.model} has this spelling already: nothing to write."])
        where = f"Written: {self.written}" if self.written is not None else "Write it: add --out DIR or --in-place"
        return "\n".join([*old, self.diff, "", where])


def convert_config(
    source: Source, spelling: str = "both", *, out: str | Path | None = None, in_place: bool = False
) -> ConfigConversion:
    """Write the rotation of a config under the keys of transformers 4, of transformers 5, or of both.

    Args:
        source: a folder, a config.json, a model of the Hugging Face Hub (``org/name``) or a mapping.
        spelling: "both": old and new readers read the config alike; where version 4 has no keys for this rotation,
            the keys of version 5 alone, and `ConfigConversion.no_old_form` says why. "v4" or "v5": these keys alone.
        out: a new folder to write; from a folder of weights it gets everything, large files as links.
        in_place: change the config.json of the source; it is kept as config.json.original.

    Raises:
        ValueError: for "v4" where version 4 has no keys, for a model that does not rotate, and for what cannot be read.
        OSError: for files that cannot be read or written.

    >>> block = {"rope_type": "default", "rope_theta": 1e6}
    >>> convert_config({"model_type": "qwen3", "rope_parameters": block}).config["rope_theta"]
    1000000.0
    """
    target = check_spelling(spelling)
    if check_flag("in_place", in_place) and out is not None:
        raise ValueError("out or in_place: give one of the two")
    files = read_files(source)
    if files.gguf:
        raise ValueError(f"{files.model} is a GGUF file, whose keys have one spelling; a config.json is needed")
    if in_place or out is not None:
        files.check_writable(None if out is None else Path(out))
    facts = read_rope(files.config).facts  # raises for whatever cannot be understood, and names the key
    text_config, reason = facts.text, ""
    try:
        changes = changes_to(target, text_config, facts.blocks)
    except NoOldFormError as error:
        if target == "v4":
            raise
        changes, reason = block_to_add(text_config, facts.blocks), str(error)
    paths = {(*text_config.path, key): value for key, value in changes.items()}
    text = edited(files.texts[CONFIG], paths)
    config: Config = json.loads(text)
    try:
        read = read_rope(config).facts
        if wrong := misread(meaning(read.text, read.blocks), meaning(text_config, facts.blocks)):
            raise ValueError(f"{', '.join(wrong)} would be read back as another, so the config is not converted")
    except ValueError as error:
        if target != "both":
            raise
        raise ValueError(f"both spellings cannot stand in one config here: choose v4 or v5 ({error})") from error
    conversion = ConfigConversion(
        files.model, target, config,
        {dotted(path): None if value is REMOVED else value for path, value in paths.items()}, text,
        unified_diff(files.texts, {CONFIG: text}), reason,
    )  # fmt: skip
    if not conversion.diff or not (in_place or out is not None):
        return conversion
    if out is not None:
        write_out(files, {CONFIG: text}, Path(out))
        return replace(conversion, written=str(out))
    return replace(conversion, written=write_in_place(files, {CONFIG: text}))


def rope_to_config(
    rope: Rotation | Layers,
    *,
    version: int = 5,
    model_type: str | None = None,
    as_longrope: bool = False,
    original_length: int | None = None,
) -> Config:
    """Return the keys that make transformers rotate as ``rope`` does; merge them into a config.json.

    YaRN and LongRoPE come with ``max_position_embeddings``, the extended context length. Llama 3's recipe does
    not: models with it declare more than its factor says.

    Args:
        rope: one, or one for each kind of layers (None: they do not rotate).
        version: spelling of transformers 4 or 5.
        model_type: whose keys and layout to use, default Llama's.
        as_longrope: write any fixed spectrum as rope type "longrope", a factor for each pair.
        original_length: training length for ``as_longrope``, if the scaling has none.

    Raises:
        ValueError: where no rope type says what the rotation does, and what can be done then.

    >>> from posenc import RoPE
    >>> rope_to_config(RoPE(128, base=500000.0))
    {'head_dim': 128, 'rope_parameters': {'rope_type': 'default', 'rope_theta': 500000.0}}
    """
    layers = check_rotations("rope", rope)
    check_version(version)
    if original_length is not None:
        check_whole("original_length", original_length, most=TOKENS)
    if check_flag("as_longrope", as_longrope):
        layers = {
            kind: None if rotation is None else to_longrope(rotation, original_length)
            for kind, rotation in layers.items()
        }
    known = FAMILIES.get(model_type) if isinstance(model_type, str) else None
    family = RotationRules() if model_type is None else None if known is None else known.rotation
    if family is None:
        names = ", ".join(sorted(name for name in FAMILIES if FAMILIES[name].rotation))
        raise ValueError(f"model_type {shown(model_type)} is not known; known are {names}")
    widths = {rotation.head_dim for rotation in layers.values() if rotation is not None}
    if len(widths) != 1:
        raise ValueError(
            f"rope: head_dim must be the same in all layers, and some layers must rotate, got {sorted(widths)}"
        )
    name: Config = {} if model_type is None else {"model_type": model_type}
    width = "qk_rope_head_dim" if family.latent else "head_dim"
    longest = extended_length(layers, recipes=False)
    config = {
        **name,
        width: widths.pop(),
        **({} if longest is None else {"max_position_embeddings": longest}),
        **keys_in_version(version, layers, {}, family),
    }
    layouts = {text_rope(rotation).layout for rotation in layers.values() if rotation is not None}
    layout = layouts.pop() if model_type is None and len(layouts) == 1 else None
    check_meaning(config, layers, Reading(layout=layout))
    return config


_STAYING = set(FREE) - {"rope_type", "original_max_position_embeddings"}


def parse_rope_argument(text: str, config: RopeConfig) -> RopeConfig:
    """The configuration at a path, or what ``config`` becomes under a block.

    A block takes the place of the scaling; base, share and sections stay where the block does not give them. Where
    kinds of layers have a rotation each, it is for full attention.

    Args:
        text: a JSON object, or the path of a configuration.
        config: of the model.

    Raises:
        ValueError: for what cannot be read, as `read_rope`.
        OSError: for a file that cannot be read.
    """
    if not text.lstrip().startswith("{"):
        with naming(text):
            return read_rope(Path(text))
    try:
        block = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"rope: {shown(text)} is no JSON: {error}") from None
    return _under(config, block)


def _under(config: RopeConfig, block: Block) -> RopeConfig:
    rotating = [text_rope(rope) for rope in config.layers.values() if rope is not None]
    layout, head_dim = rotating[0].layout if rotating else None, config.facts.reading.head_dim
    base_config = config.to_config(version=5)
    text_config = read_rope(base_config, layout=layout, head_dim=head_dim).text_config
    blocks = text_config["rope_parameters"]
    nested = isinstance(blocks.get(FULL), dict)
    old = blocks[FULL] if nested else blocks
    new = {**{key: value for key, value in old.items() if key in _STAYING}, **block}
    text = {**text_config, "rope_parameters": {**blocks, FULL: new} if nested else new}
    return read_rope(with_text_config(base_config, text_config, text), layout=layout, head_dim=head_dim)
