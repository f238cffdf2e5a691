"""The rope keys of a config in the spelling of transformers 4, of transformers 5, or of both: `posenc convert`.

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

from posenc.arguments import check_flag
from posenc.hf.config.rope_config import read_rope
from posenc.hf.config.rope_keys import find_rope_blocks
from posenc.hf.config.text_config import TextConfig, find_text_config, head_dim
from posenc.hf.config.version_keys import NoOldFormError, Spelling, block_to_add, changes_to, check_spelling
from posenc.hf.config.write import SHARES, rotary_dim
from posenc.hf.json_text import REMOVED, edited
from posenc.hf.sources.config_files import CONFIG, read_files, unified_diff, write_in_place, write_out
from posenc.hf.sources.load import Config, Source, dotted


@dataclass(frozen=True)
class ConfigConversion:
    """A config in another spelling. Print it.

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
    if files.is_gguf:
        raise ValueError(f"{files.model} is a GGUF file, whose keys have one spelling; a config.json is needed")
    if in_place or out is not None:
        files.check_writable(None if out is None else Path(out))
    read_rope(files.config)  # raises for whatever cannot be understood, and names the key
    text_config, reason = find_text_config(files.config), ""
    try:
        changes = changes_to(target, text_config)
    except NoOldFormError as error:
        if target == "v4":
            raise
        changes, reason = block_to_add(text_config), str(error)
    paths = {(*text_config.path, key): value for key, value in changes.items()}
    text = edited(files.texts[CONFIG], paths)
    config: Config = json.loads(text)
    try:
        check_same_rotation(text_config, config)
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


def check_same_rotation(before: TextConfig, config: Config) -> None:
    """Raise a ValueError unless a converted config is read as its source was."""
    read_rope(config)
    rotations = [_rotations(text_config) for text_config in (before, find_text_config(config))]
    for kind, values in rotations[0].items():
        other = rotations[1].get(kind, {})
        wrong = sorted(key for key in {**values, **other} if values.get(key) != other.get(key))
        if wrong or kind not in rotations[1]:
            text = ", ".join(wrong) or "the rotation"
            raise ValueError(f"{kind}: {text} would be read back as another, so the config is not converted")


def _rotations(text_config: TextConfig) -> dict[str, dict[str, Any]]:
    """By kind of layers, the values that decide, with the share as a number of channels; none where none rotates."""
    result: dict[str, dict[str, Any]] = {}
    for block in find_rope_blocks(text_config):
        values = {key: value for key, value in block.effective.items() if key not in SHARES}
        if block.values is not None and block.effective.get("rope_type") != "proportional":
            values["rotary_dim"] = rotary_dim(block.effective, head_dim(text_config, block.kind, None))
        rope_type = values.get("rope_type", "default")
        if rope_type == "dynamic":  # whose start is a length outside the block
            values["trained length"] = block.longest
        result[block.kind] = {} if block.values is None else {**values, "rope_type": rope_type}
    return result
