"""The rotation that a command line names: a block of rope_parameters as JSON, or a configuration that has one."""

from __future__ import annotations

import json
from pathlib import Path

from posenc.arguments import shown
from posenc.hf.config.block_schema import FREE, Block
from posenc.hf.config.rope_config import RopeConfig, read_rope
from posenc.hf.config.rotation import text_rope
from posenc.hf.config.text_config import with_text_config
from posenc.hf.families.family import FULL
from posenc.input_files import naming

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
    layout, head_dim = rotating[0].layout if rotating else None, config.reading.head_dim
    base_config = config.to_config(version=5)
    text_config = read_rope(base_config, layout=layout, head_dim=head_dim).text_config
    blocks = text_config["rope_parameters"]
    nested = isinstance(blocks.get(FULL), dict)
    old = blocks[FULL] if nested else blocks
    new = {**{key: value for key, value in old.items() if key in _STAYING}, **block}
    text = {**text_config.config, "rope_parameters": {**blocks, FULL: new} if nested else new}
    return read_rope(with_text_config(base_config, text_config, text), layout=layout, head_dim=head_dim)
