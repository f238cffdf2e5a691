"""The laboratory's commands of ``posenc``: compare, report, tune, cost and export."""

from __future__ import annotations

import shlex
import sys
from contextlib import suppress
from importlib import import_module

import typer

from posenc.lab.console import FailedJobsError, StoppedByUserError
from posenc.lab.run import joint

BAD_INPUT, FAILED = 2, 1  # exit codes
MODULES = {  # each with a function NAME_command; loaded when it is asked for
    "compare": "posenc.lab.compare",
    "report": "posenc.lab.compare",
    "tune": "posenc.lab.tune",
    "cost": "posenc.lab.cost",
    "export": "posenc.lab.export",
}


def run(arguments: list[str]) -> int:
    """Run a command line; returns the exit code. Whatever is wrong with the input is said on stderr."""
    command = typer.main.get_command(_app(arguments[0]))
    try:
        typed = shlex.join(["posenc", *arguments])
        outcome = command.main(args=arguments, prog_name="posenc", standalone_mode=False, obj=typed)
    except BrokenPipeError:
        raise
    except (ValueError, OSError) as error:
        return _complain(str(error), BAD_INPUT)
    except FailedJobsError as error:
        return _complain(str(error), FAILED)
    except StoppedByUserError as error:
        return _complain(str(error), error.exit_code, kind="stopped")
    except Exception as error:
        # The parser's own errors: typer brings its own copy of click, so they are known by what they offer.
        text = getattr(error, "format_message", None)
        if text is None:
            raise
        return _complain(text() or "no command is given; posenc --help lists them", BAD_INPUT)
    return outcome if isinstance(outcome, int) else 0


def _app(name: str) -> typer.Typer:
    """The parser of one command."""
    app = typer.Typer(name="posenc", add_completion=False, pretty_exceptions_enable=False)
    app.callback()(lambda: None)  # with it, the command's name stays the first argument
    app.command(name)(getattr(import_module(MODULES[name]), f"{name}_command"))
    return app


def _complain(text: str, code: int, kind: str = "error") -> int:
    if joint.is_first():
        with suppress(OSError):  # of a terminal that is gone
            sys.stderr.write(f"{kind}: {text.strip()}\n")
            sys.stderr.flush()
    return code
