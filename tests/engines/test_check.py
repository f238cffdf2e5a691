"""The bench: each thing that an engine can do to a block is told apart, and a run goes on where it ended."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from benchmarks.engines import check
from benchmarks.engines.__main__ import main
from benchmarks.engines.adapters import NAMES, load_adapter
from benchmarks.engines.cases import Case, cases
from benchmarks.engines.check import ROUNDING, Cell, cos_and_sin, judged, read_record, run_check
from benchmarks.engines.checkpoint import check_config

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # the bench, whose records change seldom
FAKE = Path(__file__).with_name("fake.py")


def of(name: str, *rows: str, spelling: str = "v5", model: str = "llama") -> dict[str, Cell]:
    questions = [case for case in cases() if case.model == model and case.spelling == spelling and case.row in rows]
    _, cells, absent = run_check([f"{FAKE}:{name}"], questions=questions)
    assert absent == []
    assert len(cells) == len(questions) > 0
    return {cell.row: cell for cell in cells}


def test_a_right_engine() -> None:
    cells = of("RIGHT", "default", "yarn: betas", "longrope")
    assert [cell.state for cell in cells.values()] == ["right"] * 4
    assert "longrope, within the original length" in cells
    assert max(cell.gap or 0 for cell in cells.values()) < 1e-4


def test_an_ignored_key_and_ignored_scaling_are_told_apart() -> None:
    cells = of("KEY", "yarn: attention_factor", "yarn", spelling="v4")
    assert (cells["yarn: attention_factor"].state, cells["yarn: attention_factor"].text) == (
        "ignored",
        "attention_factor",
    )
    assert cells["yarn: attention_factor"].gap == pytest.approx(0.1386, abs=0.001)  # 0.1 ln 4
    assert cells["yarn"].state == "right"
    cells = of("SCALING", "default", "yarn", "yarn: betas")
    assert [(cell.state, cell.text) for cell in cells.values()] == [
        ("right", ""), ("ignored", "all scaling"), ("ignored", "all scaling"),
    ]  # fmt: skip


def test_off_refused_ended_and_not_run(own_process: None) -> None:
    cells = of("FAULTY", "default", "linear", "dynamic", "llama3", "yarn", "longrope")
    assert cells["default"].state == "right"
    assert (cells["linear"].state, cells["linear"].text) == ("refused", "RuntimeError: no such scaling")
    assert cells["llama3"].state == "refused"
    assert "exit code 7" in cells["llama3"].text
    assert (cells["yarn"].state, cells["yarn"].gap) == ("off", pytest.approx(1.14e-3, rel=0.02))  # after llama3's crash
    assert cells["dynamic"].state == "not run"
    assert (cells["longrope"].state, cells["longrope"].text) == ("off", "rows of 1 numbers where 32 are right")


def test_mrope_that_is_wrong_and_models_that_transformers_does_not_run_are_cells() -> None:
    questions = [case for case in cases() if case.row == "M-RoPE on text: yarn"]
    _, cells, _ = run_check([f"{FAKE}:OFF"], questions=questions, remedies=True)
    assert {(cell.state, round(cell.gap or 0, 3)) for cell in cells} == {("off", 0.001)}
    assert {cell.remedy["how"] for cell in cells if cell.remedy} == {"none"}
    questions = [case for case in questions if case.model.endswith("_text")]
    questions += [case for case in cases() if case.model == "deepseek_v3"][:1]
    _, cells, _ = run_check([f"{FAKE}:LOGITS"], questions=questions)
    assert {cell.state for cell in cells} == {"not run"}
    assert all("transformers does not run a whole model of this config" in cell.text for cell in cells)


def test_a_config_without_a_truth_is_not_run(tmp_path: Path) -> None:
    for config, words in (({"model_type": "opt"}, "no rotary module"), ({"model_type": "mimo"}, "mimo")):
        case = Case(check.USER_CONFIG, config["model_type"], "v5", config, 128, 256)
        _, cells, _ = run_check([f"{FAKE}:RIGHT"], questions=[case])
        assert (cells[0].state, words in cells[0].text) == ("not run", True), cells


def test_a_config_that_posenc_and_transformers_read_differently_is_disputed(monkeypatch: pytest.MonkeyPatch) -> None:
    unpatched = check.transformers_frequencies
    monkeypatch.setattr(check, "transformers_frequencies", lambda *a: (unpatched(*a)[0], unpatched(*a)[1] + 1e-5))
    cell = of("RIGHT", "yarn")["yarn"]
    assert cell.state == "disputed"
    assert "the gain is 1.13862944 in posenc, 1.13863944 in transformers" in cell.text


def test_a_record_is_resumed(tmp_path: Path) -> None:
    record, questions = tmp_path / "record.jsonl", [case for case in cases() if case.model == "olmo2"]
    lines: list[str] = []
    run_check([f"{FAKE}:RIGHT"], questions=questions[:4], record=record, progress=lines.append)
    assert len(lines) == 4
    content = record.read_text()
    record.write_text(content + '{"engine": "right", "ver')  # as an interrupted run leaves it
    run_check([f"{FAKE}:RIGHT"], questions=questions, record=record, progress=lines.append)
    assert len(lines) == len(questions)
    heads, cells = read_record(record)
    assert [head.engine for head in heads] == ["right"]
    assert [cell.case for cell in cells] == [case.name for case in questions]
    record.write_text("{}\n")
    with pytest.raises(ValueError, match="line 1"):
        read_record(record)


def test_the_reference_is_right_by_its_own_forward() -> None:
    questions = [case for case in cases() if case.spelling == "v5" and case.row in ("yarn", "partial", "longrope")]
    questions += [case for case in cases() if case.row.startswith(("per layer", "M-RoPE"))]
    _, cells, _ = run_check(["transformers"], questions=questions)
    assert {(cell.case, cell.state, cell.text) for cell in cells if cell.state != "right"} == set()


def test_every_adapter_can_be_imported_without_its_engine() -> None:
    for name in NAMES:
        adapter = load_adapter(name)
        assert adapter.name == name
        assert adapter.requirement.startswith("pip install")
        assert adapter.models == () or set(adapter.models) <= {case.model for case in cases()}


def test_an_adapter_from_the_page(tmp_path: Path) -> None:
    page = (Path(check.__file__).with_name("README.md")).read_text(encoding="utf-8")
    code = page.partition("```python\n")[2].partition("```")[0]
    (tmp_path / "mine.py").write_text(code)
    questions = [case for case in cases() if case.name in ("llama/yarn/v5/256/1024", "qwen2/yarn/v5/256/1024")]
    try:
        _, cells, _ = run_check([f"{tmp_path / 'mine.py'}:MINE"], questions=questions)
    finally:
        sys.modules.pop("mine", None)  # which other tests write as well
    assert {cell.model: cell.state for cell in cells} == {"llama": "right", "qwen2": "not run"}


def test_the_committed_records_can_be_read() -> None:
    heads, cells = check.committed()
    known = {case.name for case in cases()}
    engines = {head.engine for head in heads}
    assert {cell.engine for cell in cells} == engines >= {"transformers", "exllamav3", "unsloth"}
    assert {cell.case for cell in cells} <= known
    reference = [cell for cell in cells if cell.engine == "transformers"]
    assert {cell.state for cell in reference} == {"right", "disputed"}
    assert all(
        "this engine: as in posenc and transformers" in cell.text for cell in reference if cell.state == "disputed"
    )
    disputed = {(cell.engine, cell.case) for cell in cells if cell.state == "disputed"}
    lone = "yarn: one of mscale and mscale_all_dim"
    assert disputed == {(c.engine, c.case) for c in cells if c.row == lone and c.state != "not run"} != set()


def test_the_command_of_the_bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["--engine", f"{FAKE}:KEY", "--rope", "yarn: attention_factor", "--out", str(tmp_path / "record.jsonl")]
    assert main(line) == 1
    assert "ignores attention_factor" in capsys.readouterr().out
    assert main(["--engine", f"{FAKE}:ABSENT", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["not_installed"] == ["absent is not installed: pip install absent==2"]
    assert main(["--engine", f"{FAKE}:RIGHT", "--rope", "linear"]) == 0
    with pytest.raises(SystemExit):
        main([*line, "--python", "vllm"])


def test_a_config_of_a_checkpoint_in_an_engine(tmp_path: Path) -> None:
    case = next(c for c in cases() if c.model == "llama" and c.row == "yarn: attention_factor" and c.spelling == "v4")
    ignored, right = check_config(f"{FAKE}:KEY", case.config), check_config(f"{FAKE}:RIGHT", case.config)
    assert ignored is not None
    assert right is not None
    assert (ignored.state, right.state) == ("ignored", "right")
    assert check_config(f"{FAKE}:ABSENT", case.config) is None
    (tmp_path / "config.json").write_text(json.dumps(case.config))
    assert main(["--checkpoint", str(tmp_path), "--engine", f"{FAKE}:KEY"]) == 1


def test_rounding_of_float32_angles_is_no_fault_of_an_engine() -> None:
    """At 40,959 tokens cos and sin of float32 angles are 2e-3 off in every engine; a gain 0.1 % off is seen at 0."""
    config = {"model_type": "qwen3", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
              "head_dim": 128, "num_hidden_layers": 1, "max_position_embeddings": 40960, "rope_theta": 1e6}  # fmt: skip
    cell = check_config("transformers", config)
    assert cell is not None
    assert cell.state == "right"
    assert 3e-4 < (cell.gap or 0) < ROUNDING * 40_959
    off = check_config(f"{FAKE}:OFF", config)
    assert off is not None
    assert off.state == "off"
    rows = cos_and_sin([1.0, 0.01, 1e-4], 1.0, (0, 20_479, 40_959))
    for theta in ([1.0, 0.01001, 1e-4], [1.0, 0.01, 1.01e-4]):
        assert not judged(cos_and_sin(theta, 1.0, (0, 20_479, 40_959)), rows, "cos and sin", (0, 20_479, 40_959))[0]
