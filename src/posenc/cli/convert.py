"""``posenc convert``: the rope keys of a config for old readers, new readers, or both."""

from __future__ import annotations

import json
import sys

from posenc.hf.config.convert import convert_config
from posenc.input_files import naming


def run(*, path: str, spelling: str, out: str | None, in_place: bool, as_json: bool) -> int:
    """Print the diff, and write the config if asked to.

    Raises:
        ValueError: as `posenc.hf.config.convert.convert_config`.
    """
    with naming(path):
        conversion = convert_config(path, spelling, out=out, in_place=in_place)
    sys.stdout.write(f"{json.dumps(conversion.record(), indent=1) if as_json else conversion}\n")
    return 0
