"""``posenc convert``: the rope keys of a config for old readers, new readers, or both."""

from __future__ import annotations

import json
import sys
from argparse import Namespace

from posenc.hf.config.convert import convert_config
from posenc.input_files import naming


def run(options: Namespace) -> int:
    """Print the diff, and write the config if asked to.

    Raises:
        ValueError: as `posenc.hf.config.convert.convert_config`.
    """
    with naming(options.path):
        conversion = convert_config(options.path, options.spelling, out=options.out, in_place=options.in_place)
    sys.stdout.write(f"{json.dumps(conversion.record(), indent=1) if options.as_json else conversion}\n")
    return 0
