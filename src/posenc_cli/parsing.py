"""A parser whose errors are raised, for `posenc_cli` to say."""

from __future__ import annotations

import argparse
from typing import NoReturn


class UsageError(ValueError):
    """A command line that cannot be read."""


class Parser(argparse.ArgumentParser):
    """One command's."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; {self.prog} --help tells more")
