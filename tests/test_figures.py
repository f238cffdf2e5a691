"""Figures as files: what is drawn is what the numbers say, alone and in a page."""

from __future__ import annotations

import csv
import math
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import torch

import posenc_cli
from posenc import AxialRoPE, NTKAware, PositionInterpolation, RoPE, YaRN, attention
from posenc.bias import alibi_slopes
from posenc.catalogue import CATALOGUE
from posenc.catalogue.studies import studies
from posenc.diffusion import rotation
from posenc.figures import Bars, Curves, Heat, Plane, Stacked, Tokens, alone, figure, in_page, names, save
from posenc.figures.named import NAMED, SHOWN
from posenc.figures.texts import KEYS, LOGIT, OPEN, SEED, SENTENCES, SHUT
from posenc.positions import grid
from posenc.score import CoPE
from posenc.weight import StickBreaking

SVG = "{http://www.w3.org/2000/svg}"


def test_numbers_of_a_figure_equal_the_encoding(tmp_path: Path) -> None:
    _, table = save(figure("alibi"), tmp_path / "alibi.svg")
    rows = list(csv.reader(table.read_text(encoding="utf-8").splitlines()))
    assert len(rows[0]) == 3
    last = [float(bias) for name, back, bias in rows[1:] if name == "head 1" and float(back) == 64]
    assert last == [pytest.approx(-64 * alibi_slopes(4)[0])]


def test_the_measured_picture_has_counting_and_the_context_that_models_use() -> None:
    shown, study = curves("measured"), next(study for study in studies() if study.name == SHOWN)
    assert study.counting is not None
    assert list(shown.levels.values()) == [study.counting.ngram, study.counting.unigram]
    for name, points in shown.series.items():
        row, by_context = study.rows[name], dict(points)
        assert {0.25, 0.5, 1.0, float(study.longest)} <= set(by_context), "fewer and more tokens than in training"
        assert by_context[0.25] == row.reach[study.train_length // 4][0]
        assert by_context[1.0] == row.means[study.train_length][0]


def curves(name: str) -> Curves:
    shown = figure(name)
    assert isinstance(shown, Curves)
    return shown


def bars(name: str) -> Bars:
    shown = figure(name)
    assert isinstance(shown, Bars)
    return shown


def test_a_pair_rotates_by_its_frequency() -> None:
    shown, theta = figure("rotation"), RoPE(64).spectrum().theta
    assert isinstance(shown, Plane)
    for title, vectors in shown.circles.items():
        pair = int(title.split()[1].rstrip(":"))
        for position, (x, y) in vectors.items():
            angle = int(position) * float(theta[pair])
            assert [x, y] == pytest.approx([math.cos(angle), math.sin(angle)], abs=1e-6)


def test_alibis_matrix_is_what_attention_adds() -> None:
    shown = figure("alibi-matrix")
    assert isinstance(shown, Heat)
    for i, row in enumerate(shown.rows):
        assert row == [pytest.approx(-0.125 * (i - j)) if j <= i else -math.inf for j in range(12)]
    slopes = bars("alibi-slopes").columns
    assert slopes["slope"] == alibi_slopes(8)
    assert slopes["1 / slope (tokens)"] == [2.0**head for head in range(1, 9)]


def test_copes_positions_are_what_the_encoding_counts() -> None:
    shown = bars("cope-counts")
    gates = torch.tensor([OPEN if token == "." else SHUT for token in SENTENCES]).sigmoid()
    assert shown.columns["gate"] == pytest.approx(gates.tolist(), abs=1e-6)
    positions = shown.columns["position"]
    assert positions == pytest.approx(gates.flip(0).cumsum(0).flip(0).tolist(), abs=1e-6)
    # the encoding itself: a table that is p at position p adds the position to a logit
    cope = CoPE(1, max_position=len(SENTENCES))
    with torch.no_grad():
        cope.table.copy_(torch.arange(len(SENTENCES) + 1.0)[None])
        q, k = torch.ones(1, 1, 1, 1), torch.tensor([OPEN if t == "." else SHUT for t in SENTENCES]).view(1, 1, -1, 1)
        v = torch.eye(len(SENTENCES))[None, None]
        weights = attention(q, k, v, [cope], scale=1.0)[0, 0, 0]
    assert torch.allclose(weights, (k.flatten() + torch.tensor(positions)).softmax(-1), atol=1e-5)


def test_the_stick_is_divided_as_the_encoding_divides_it() -> None:
    columns = bars("stick").columns
    source = torch.Generator().manual_seed(SEED)
    q, k = torch.randn(2, 1, 1, KEYS + 1, 4, generator=source)
    q[..., 0], k[..., 0] = 2.0, LOGIT
    share = (q[0, 0, -1] @ k[0, 0, :-1].T / 2).sigmoid().flip(0)
    assert columns["share taken"] == pytest.approx(share.tolist(), abs=1e-4)
    left = 1.0
    for now, taken, weight in zip(*(columns[name] for name in columns), strict=True):
        assert now == pytest.approx(left, abs=1e-5)
        assert weight == pytest.approx(now * taken, abs=1e-6)
        left -= weight
    v = torch.eye(KEYS + 1)[None, None]
    weights = attention(q, k, v, [StickBreaking()])[0, 0, -1, :-1].flip(0)
    assert columns["weight"] == pytest.approx(weights.tolist(), abs=1e-6)


def test_half_of_axial_pairs_rotate_by_row_and_half_by_column() -> None:
    rope = AxialRoPE(16)
    table = rope.table(grid(3, 4))
    by_row, by_column = bars("axial-channels").columns.values()
    assert [(row > 0) + (column > 0) for row, column in zip(by_row, by_column, strict=True)] == [1] * 8
    for pair in range(8):
        for token, (row, column) in enumerate(grid(3, 4).tolist()):
            angle = row * by_row[pair] + column * by_column[pair]
            assert float(table[0][token, pair]) == pytest.approx(math.cos(angle), abs=1e-6)
    shown = figure("axial-grid")
    assert isinstance(shown, Plane)
    of_row, of_column = ([vectors[name] for vectors in shown.circles.values()] for name in shown.circles["(0, 0)"])
    assert of_row[:4] == [of_row[0]] * 4, "the same along a row"
    assert len({x for x, _ in of_row}) == 3
    assert of_column[::4] == [of_column[0]] * 3, "the same along a column"


def test_wavelengths_are_those_of_the_scalings() -> None:
    scalings = {
        "unscaled": None, "PI": PositionInterpolation(4.0), "NTK-aware": NTKAware(4.0),
        "YaRN": YaRN(4.0, original_length=2048),
    }  # fmt: skip
    shown, slower = curves("context-extension"), curves("slowdown")
    assert list(shown.series) == list(scalings)
    assert shown.levels == {"training length": 2048, "extended": 8192}
    unscaled = RoPE(64).spectrum().theta
    for name, scaling in scalings.items():
        theta = RoPE(64, scaling=scaling).spectrum(8192).theta
        expected = [2 * math.pi / float(t) for t in theta]
        assert [y for _, y in shown.series[name]] == pytest.approx(expected, rel=1e-6)
        if scaling is not None:
            assert [y for _, y in slower.series[name]] == pytest.approx((unscaled / theta).tolist(), rel=1e-5)


def test_channels_of_generators_are_those_of_their_rotation() -> None:
    shown = figure("axes-split")
    assert isinstance(shown, Stacked)
    assert shown.rows["Wan, Cosmos"] == [("first axis", 44), ("rows", 42), ("columns", 42)]
    assert shown.rows["MiniMax-H3"][-1] == ("not rotated", 32)
    sin = rotation("minimax-h3").table(torch.ones(1, 3, dtype=torch.long))[1]
    assert int((sin.abs() > 0).sum()) == sum(width for kind, width in shown.rows["MiniMax-H3"][:-1]) / 2
    lengths = {name: sum(width for _, width in row) for name, row in shown.rows.items()}
    assert set(lengths.values()) == {128, 96, 64}
    paths = ElementTree.fromstring(alone(shown)).iter(f"{SVG}path")
    segments = [path for path in paths if "stroke-width:18" in path.get("style", "")]
    assert len(segments) == sum(map(len, shown.rows.values()))


def test_tokens_stand_where_the_builder_puts_them() -> None:
    shown = figure("token-grids")
    assert isinstance(shown, Tokens)
    assert shown.panels["FLUX.1"]["text"] == [(0, 0)] * 5
    qwen = shown.panels["Qwen-Image"]
    assert (min(qwen["picture"]), max(qwen["picture"])) == ((-3, -2), (2, 1))
    assert qwen["text"] == [(3 + word, 3 + word) for word in range(5)], "behind the longer half of the picture"
    assert shown.panels["CogVideoX"]["picture"][-1] == (37.5, 22.5), "of 45 columns and 30 rows"
    first = figure("reference-axes")
    assert isinstance(first, Tokens)
    rows_of = {title: {y for _, y in kinds.get("reference", [])} for title, kinds in first.panels.items()}
    assert rows_of == {"FLUX.1 Kontext": {1}, "FLUX.2": {10}, "Qwen-Image-Edit": {1}, "Z-Image": set()}
    root = ElementTree.fromstring(alone(Tokens({"a": {"b": [(0, 0)] * 3, "c": [(1, 2)]}}, "x", "y", "label", "c")))
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert "× 3" in texts
    assert len([path for path in root.iter(f"{SVG}path") if "line" in path.get("class", "")]) == 2 + 2, "and a legend"


def test_periods_of_generators_are_those_of_their_axes() -> None:
    for title, model, axis, width in (("FLUX.1", "flux-1", 1, 56), ("Z-Image", "z-image", 1, 48)):
        rope = rotation(model)
        step = torch.zeros(1, 3, dtype=torch.long)
        step[0, axis] = 1
        cos, sin = (part[0].double() for part in rope.table(step))
        angles = torch.atan2(sin, cos)
        expected = (2 * math.pi / angles[angles > 0]).tolist()
        assert len(expected) == width / 2
        assert [y for _, y in curves("row-periods").series[title]] == pytest.approx(expected, rel=1e-3)
    slowed = dict(curves("riflex-periods").series["with RIFLEx"])
    trained = dict(curves("riflex-periods").series["HunyuanVideo"])
    assert {pair for pair in trained if trained[pair] != slowed[pair]} == {4}
    assert round(trained[4]) == 50
    assert slowed[4] == pytest.approx(66 / 0.9, rel=1e-6)
    wave = dict(curves("riflex-angle").series["with RIFLEx"])
    assert wave[60] == pytest.approx(math.cos(60 * 0.9 * 2 * math.pi / 66), abs=1e-6)


@pytest.mark.parametrize("name", NAMED)
def test_a_picture_says_what_is_to_be_seen_and_fits_a_telephone(name: str) -> None:
    shown = figure(name)
    assert len(shown.label.split()) > 8, "alternative text that describes"
    root = ElementTree.fromstring(alone(shown))
    assert root.findtext(f"{SVG}desc") == shown.label
    assert float(root.attrib["width"]) <= 470, "letters of 15 are at least 11 pixels on 390"
    if isinstance(shown, Curves):
        texts = [text.text or "" for text in root.iter(f"{SVG}text")]
        assert any("log scale" in text for text in texts) == (shown.log or shown.log_x)
        numbers = [text for text in texts if text[:1].isdigit() or text[:1] == "−"]
        assert len(numbers) >= 6, "three ticks an axis"
    ends = {"start": (0, 1), "middle": (0.5, 0.5), "end": (1, 0)}
    for text in root.iter(f"{SVG}text"):
        if "x" in text.attrib:
            before, after = (share * 7.6 * len(text.text or "") for share in ends[text.attrib["text-anchor"]])
            assert float(text.attrib["x"]) - before > -4, text.text
            assert float(text.attrib["x"]) + after < float(root.attrib["width"]) + 4, text.text


def test_bars_are_as_long_as_their_numbers() -> None:
    root = ElementTree.fromstring(alone(Bars(["a", "b"], {"x": [1.0, 0.25]}, "row", "label", "caption")))
    long, short = (float(bar.attrib["width"]) for bar in root.iter(f"{SVG}rect") if bar.get("class") == "bar")
    assert short == pytest.approx(long / 4, abs=0.1)
    for wrong in ([1.0], [1.0, -1.0]):
        with pytest.raises(ValueError, match="x"):
            Bars(["a", "b"], {"x": wrong}, "row", "label", "caption")


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
