"""The page: scripts, style and data in one HTML file, a classic script that opens from disk."""

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import torch

from posenc import __version__
from posenc.bias.fire import FIRE
from posenc.catalogue.studies import raw
from posenc.explorer.models import forms, models_of

STATIC = Path(__file__).parent / "static"
NUMBERS = ("frequencies", "biases", "content", "precision", "block", "config")  # the first ones serve the others
VIEWS = (
    "controls", "address", "chart", "models", "config", "wavelengths", "rotation", "biases", "logits", "content",
    "precision", "results", "window",
)  # fmt: skip
HEADS, SEED, DIGITS = 8, 0, 6  # of the drawn FIRE


def page(paths: list[Path], home: str | None = None) -> str:
    """The HTML, with the configurations of these paths and a few well-known ones.

    Args:
        paths: configurations; the first of them is what the page opens with.
        home: address of the guide that the page is a part of, for a link to it.

    Raises:
        OSError, ValueError: for a path that cannot be read.
    """
    data = {"models": models_of(paths), "given": len(paths), "forms": forms(), "fire": _fire(), "results": raw()}
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return Template(_static("page.html")).substitute(
        version=__version__,
        home="" if home is None else f' · <a href="{escape(home)}">the guide</a>',
        style=_static("page.css"),
        data=_halves.sub(_escaped, text.replace("<", "\\u003c")),  # so that no text of a configuration ends the element
        script=script(),
    )


_halves = re.compile("[\ud800-\udfff]")  # of signs, which UTF-8 has no bytes for


def _escaped(half: re.Match[str]) -> str:
    return f"\\u{ord(half.group()):04x}"


def script() -> str:
    """All files of the page as one classic script; each a block that shares ``numbers`` and ``page``."""
    first = 'const page = {views: {}, data: JSON.parse(document.getElementById("data").textContent)};\n'
    return '"use strict";\n' + numbers_script() + first + _blocks("views", VIEWS)


def numbers_script() -> str:
    """The files that compute, without the page: they fill the constant ``numbers``."""
    return "const numbers = {};\n" + _blocks("numbers", NUMBERS)


def _blocks(folder: str, names: tuple[str, ...]) -> str:
    return "".join(f"{{ // {folder}/{name}.js\n{_static(f'{folder}/{name}.js')}}}\n" for name in names)


def _fire() -> dict[str, Any]:
    """A FIRE as it begins, drawn from a seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        fire = FIRE(HEADS)
    parts = {
        "inner": fire.inner.weight[:, 0], "inner_bias": fire.inner.bias, "outer": fire.outer.weight,
        "outer_bias": fire.outer.bias,
    }  # fmt: skip
    return {name: part.detach().double().round(decimals=DIGITS).tolist() for name, part in parts.items()}


def _static(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")
