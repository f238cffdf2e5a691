"""The laboratory's commands of ``posenc``: compare, report, tune, cost and export."""

from __future__ import annotations

import inspect
import shlex
import sys
from contextlib import suppress
from importlib import import_module

from posenc.lab.console import FailedJobsError, StoppedByUserError
from posenc.lab.run import joint
from posenc_cli.parsing import Parser

BAD_INPUT, FAILED = 2, 1  # exit codes
MODULES = {  # each with NAME_options, which adds options to a parser, and NAME_command; loaded when it is asked for
    "compare": "posenc.lab.compare", "report": "posenc.lab.compare", "tune": "posenc.lab.tune",
    "cost": "posenc.lab.cost", "export": "posenc.lab.export",
}  # fmt: skip


def parser_of(name: str) -> Parser:
    """The parser of one command; its options may stand among the names."""
    module = import_module(MODULES[name])
    # The first paragraph of a command's docstring is its summary, which the parser knows.
    more = inspect.cleandoc(getattr(module, f"{name}_command").__doc__).partition("\n\n")[2]
    parser = Parser(name, more)
    getattr(module, f"{name}_options")(parser)
    return parser


def run(arguments: list[str]) -> int:
    """Run a command line; returns the exit code. Whatever is wrong with the input is said on stderr."""
    name, *words = arguments
    try:
        options = parser_of(name).parse_intermixed_args(words)
        getattr(import_module(MODULES[name]), f"{name}_command")(options, shlex.join(["posenc", *arguments]))
    except BrokenPipeError:
        raise
    except (ValueError, OSError) as error:
        return _complain(str(error), BAD_INPUT)
    except FailedJobsError as error:
        return _complain(str(error), FAILED)
    except StoppedByUserError as error:
        return _complain(str(error), error.exit_code, kind="stopped")
    return 0


def _complain(text: str, code: int, kind: str = "error") -> int:
    if joint.is_first():
        with suppress(OSError):  # of a terminal that is gone
            sys.stderr.write(f"{kind}: {text.strip()}\n")
            sys.stderr.flush()
    return code
