"""Figures as files: what is drawn is what the numbers say, alone and in a page."""

from __future__ import annotations

import csv
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import posenc_cli
from posenc.bias import alibi_slopes
from posenc.catalogue import CATALOGUE
from posenc.figures import Curves, Flow, Heat, alone, figure, in_page, names, save
from posenc.figures.named import NAMED

SVG = "{http://www.w3.org/2000/svg}"


def test_numbers_of_a_figure_equal_the_encoding(tmp_path: Path) -> None:
    _, table = save(figure("alibi"), tmp_path / "alibi.svg")
    rows = list(csv.reader(table.read_text(encoding="utf-8").splitlines()))
    assert len(rows[0]) == 3
    last = [float(bias) for name, back, bias in rows[1:] if name == "head 1" and float(back) == 64]
    assert last == [pytest.approx(-64 * alibi_slopes(4)[0])]


def test_a_file_of_its_own_has_colours_legend_and_title(tmp_path: Path) -> None:
    shown = figure("context-extension")
    file, _ = save(shown, tmp_path / "a.svg")
    root = ElementTree.fromstring(file.read_text(encoding="utf-8"))
    assert root.findtext(f"{SVG}title") == shown.caption
    assert ".s0{stroke:#" in str(root.findtext(f"{SVG}style"))
    assert isinstance(shown, Curves)
    assert set(shown.series) <= {text.text for text in root.iter(f"{SVG}text")}
    assert len(list(root.iter(f"{SVG}polyline"))) == len(shown.series)


def test_larger_numbers_are_drawn_stronger() -> None:
    root = ElementTree.fromstring(alone(Heat([[0.0, 1.0], [0.5, float("-inf")]], "a", "b", "label", "caption")))
    squares = [float(rect.attrib["fill-opacity"]) for rect in root.iter(f"{SVG}rect") if "class" not in rect.attrib]
    assert squares == [1.0, 0.5], "the smallest is left out, and what is not finite"


def test_arrows_lead_from_box_to_box() -> None:
    shown = figure("fox-pro")
    root = ElementTree.fromstring(alone(shown))
    assert {text.text for text in root.iter(f"{SVG}text")} >= set(shown.boxes)
    assert len(list(root.iter(f"{SVG}path"))) == shown.table().count("\n") - 1
    with pytest.raises(ValueError, match=r"\bc\b"):
        Flow({"a": (0, 0), "b": (0, 1)}, [("a", "b"), ("b", "c")], "label", "caption")


def test_a_pdf(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    file, _ = save(figure("sinusoids"), tmp_path / "a.pdf")
    assert file.read_bytes().startswith(b"%PDF")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert posenc_cli.run(["figure"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in names())
    assert posenc_cli.run(["figure", "binary"]) == 0
    assert (tmp_path / "binary.svg").is_file()
    assert (tmp_path / "binary.csv").read_text().splitlines()[1] == "0,0,0.0"
    capsys.readouterr()
    for wrong, message in ((["figure", "rop"], "rope"), (["figure", "rope", "--out", "a.png"], ".svg")):
        assert posenc_cli.run(wrong) == 2
        assert message in capsys.readouterr().err
    assert not set(NAMED) & set(CATALOGUE)


def test_words_cannot_break_the_page() -> None:
    shown = Curves({"<a>": [(0.0, 1.0)], "b": [(1.0, 2.0)]}, "x & y", "<", '"', "<script>")
    for text in (in_page(shown), alone(shown)):
        ElementTree.fromstring(text)
