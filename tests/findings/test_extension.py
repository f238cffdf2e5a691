"""What is said of extended models, small ones and a real one."""

from __future__ import annotations

import json
import re

from posenc.lab.runs import read_run
from tests.findings.reading import DOCS, TEXT, about, lines_about, named, signed


def test_the_table_of_the_extension() -> None:
    study = named("extension")
    lines = re.findall(r"^\| `([^`]+)`( under its window)? \|(.+)\|$", lines_about("extension"), re.M)
    assert len(lines) >= 14
    for name, windowed, cells in lines:
        row = study.rows[name]
        means = row.window if windowed else row.means
        said = [cell.strip() for cell in cells.split("|")]
        there = [means.get(times * study.train_length) for times in (1, 2, 4, 8, 16)]
        assert said == ["–" if one is None else f"{one[0]:.3f}" for one in there], name


def test_what_is_said_of_the_extension() -> None:
    study, section = named("extension"), about("extension")
    length, rows = study.train_length, study.rows
    window = rows["rope"].window[16 * length][0]
    least = min(one.means[k * length][0] for one in rows.values() for k in (2, 4, 8, 16))
    assert window - least < 0.002, "nothing beats the window"
    lost = [rows[name].means[16 * length][0] - rows[name].means[length][0] for name in ("yarn", "longrope")]
    assert "they lose {:.1f} and {:.1f} bits".format(*lost) in " ".join(TEXT.split())
    at = {name: one.means[4 * length][0] for name, one in rows.items() if "+tuned" not in name and "@" not in name}
    scaled = ("pi", "ntk", "ntk_by_parts", "yarn", "llama3", "longrope")
    assert max(at[name] for name in ("self_extend", "leaky_rerope", "dual_chunk")) < min(at[name] for name in scaled)
    assert min(scaled, key=at.__getitem__) == "longrope"
    for times, names in (
        (4, ("self_extend", "leaky_rerope", "dual_chunk", *scaled[:4], "longrope")),
        (16, ("clipped",)),
    ):
        assert all(f"{rows[name].means[times * length][0]:.3f}" in section for name in names)
    for name, times in (
        ("yarn+tuned", 8), ("longrope+tuned", 8), ("ntk_by_parts+tuned", 8), ("rope+tuned", 8), ("pi+tuned", 8),
        ("yarn+tuned", 16), ("dynamic_yarn+tuned", 16), ("clex+tuned", 8), ("clex+tuned", 16),
    ):  # fmt: skip
        assert f"{rows[name].means[times * length][0]:.3f}" in section
    assert f"costs {rows['rerope'].means[length][0] - rows['rope'].means[length][0]:.3f} bits" in section


def test_the_table_of_the_real_model() -> None:
    study, records = named("smollm2"), read_run(DOCS / "results" / "smollm2").records
    trained, cut = study.train_length, study.rows["rope"].means[study.train_length][0]
    lengths = sorted({n for row in study.rows.values() for n in row.means if n >= trained})
    lines = re.findall(r"^\| `([^`]+)`( under its window)? \|(.+)\|$", lines_about("smollm2"), re.M)
    assert {name for name, _, _ in lines} == set(study.rows)
    for name, windowed, cells in lines:
        row = study.rows[name]
        means = {trained: row.means[trained], **row.window} if windowed else row.means
        own = records[(records["spec"] == name) & (records["view"] == ("window" if windowed else "full"))]
        keys = own[own["metric"] == "passkey_by_depth"]
        every = [keys[keys["length"] == n]["value"] for n in lengths[1:]]
        far = [keys[(keys["length"] == n) & keys["item"].isin([10, 30])]["value"] for n in lengths[1:]]
        losses = [signed(means[n][0] - cut) if n in means else "–" for n in lengths]
        there = [*losses, *(f"{100 * part.mean():.0f}" if len(part) else "–" for part in (*every, *far))]
        assert [cell.strip() for cell in cells.split("|")] == there, (name, windowed)
    assert f"with its last {trained:,} tokens alone ({cut:.3f})" in about("smollm2")


def test_what_is_said_of_the_real_model() -> None:
    study, section = named("smollm2"), about("smollm2")
    trained, rows = study.train_length, study.rows
    cut = rows["rope"].means[trained][0]
    yarn = rows["yarn"].means[trained * 3 // 2][0] - cut
    assert yarn < 0.05, "YaRN without training, at one and a half trained lengths"
    assert f"YaRN at 12,288 tokens costs {signed(yarn)}" in section
    window = rows["rope"].window[trained * 3 // 2][0] - cut
    small = named("extension").rows["rope"]
    less = small.window[128][0] - small.means[64][0]
    assert f"costs {signed(window)} here and {signed(less)} bits" in section
    for name in ("yarn", "llama3", "dynamic_ntk"):
        assert f"{signed(rows[name].means[4 * trained][0] - cut)} ±" in section, name
    records = read_run(DOCS / "results" / "smollm2").records
    header = records[(records["metric"] == "nats_headers") & (records["view"] == "full")]
    whole = header[(header["spec"] == "self_extend") & (header["length"] == 4 * trained)]["value"].item()
    alone = header[(header["spec"] == "rope") & (header["length"] == trained)]["value"].item()
    assert f"the C++ header ({whole:.3f} nats against {alone:.3f} of the text that is cut)" in section


def test_what_is_said_of_the_progressive_extension() -> None:
    record = json.loads((DOCS / "results" / "smollm2" / "progressive.json").read_text(encoding="utf-8"))
    before, after = (
        {n: sum(one["windows"]) / len(one["windows"]) for n, one in record[when].items()}
        for when in ("before", "after")
    )
    section, cut = about("smollm2"), before["8192"]
    assert f"had {cut:.3f} nats at 8,192 tokens and {before['12288']:.3f} at 12,288" in section
    said = [f"{after[n]:.3f} ({signed(after[n] - cut)}" for n in ("8192", "12288")]
    assert f"afterwards it has {said[0]}) and {said[1]} against the text that is cut)" in section
    assert f"the longer text costs {signed(after['12288'] - after['8192'])}." in section
    recipe = record["request"]["recipe"]
    assert (recipe["intermediate"], recipe["steps"], recipe["tokens"], recipe["seed"]) == (10240, 40, 1024, 0)
