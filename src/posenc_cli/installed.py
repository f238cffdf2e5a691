"""What ``posenc --version`` says: posenc, Python, torch, and the packages of each extra, none of which it imports.

The first line is the name and the version alone, for programs that parse it.
"""

from __future__ import annotations

import platform
import re
import shutil
import textwrap
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path

_OF_DEVELOPERS = {"all", "dev", "docs", "reference"}  # extras that add nothing to what posenc can do
_WIDEST = 100  # columns


def report() -> str:
    """The versions of what is installed, as lines."""
    lines = [f"posenc {posenc_version()}", f"python {platform.python_version()} on {platform.platform(terse=True)}"]
    lines.append(f"torch {_version('torch') or 'is not installed'}")
    for extra, packages in extras(_requirements()).items():
        width = min(_WIDEST, shutil.get_terminal_size().columns)
        lines += textwrap.wrap(f"[{extra}] {_versions(packages)}", width, subsequent_indent="  ")
    return "\n".join(lines) + "\n"


def posenc_version() -> str:
    """The version of the `posenc` that a command would load, read without loading it."""
    spec = find_spec("posenc")
    text = "" if spec is None or spec.origin is None else Path(spec.origin).read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "(.+)"$', text, re.M)
    if match is None:
        raise ValueError("posenc is not installed, or without its file __init__.py: pip install posenc")
    return match.group(1)


def extras(requirements: Iterable[str]) -> dict[str, list[str]]:
    """The packages of each extra that users choose, from requirements as a distribution's metadata write them.

    >>> extras(["torch>=2.6", "gguf>=0.17; extra == 'gguf'", "gguf; extra == 'gguf'", "ruff>=0.8; extra == 'dev'"])
    {'gguf': ['gguf']}
    """
    packages: dict[str, list[str]] = {}
    for requirement in requirements:
        package, extra = re.match(r"[\w.-]+", requirement), re.search(r"extra == ['\"]([\w.-]+)['\"]", requirement)
        if package and extra and extra[1] not in _OF_DEVELOPERS:
            of_extra = packages.setdefault(extra[1], [])
            of_extra += [package[0]] if package[0] not in of_extra else []
    return packages


def _requirements() -> list[str]:
    try:
        return requires("posenc") or []
    except PackageNotFoundError:  # a checkout on PYTHONPATH, which has no extras to speak of
        return []


def _versions(packages: list[str]) -> str:
    there = [f"{name} {number}" for name in packages if (number := _version(name))]
    missing = [name for name in packages if not _version(name)]
    parts = [", ".join(there), f"not installed: {', '.join(missing)}" if missing else ""]
    return "; ".join(filter(None, parts))


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
