"""The guide's pages before they are a site: their code runs, methods and questions have a place, faults are found."""

from __future__ import annotations

import json
import re
import subprocess
from html import escape
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from posenc.catalogue import CATALOGUE

pytest.importorskip("latex2mathml", reason="needs the extra docs")
pytest.importorskip("griffe", reason="needs the extra docs")

from benchmarks.engines import table as engine_table
from benchmarks.engines.check import committed
from guide import decision as decision_page
from guide import engine_page
from guide.check import problems_of
from guide.decision import LENGTHS, SITUATIONS, address, decision
from guide.docstrings import example_of
from guide.formulas import with_mathml
from guide.lists import table
from guide.methods import file_of, page_of, short_title, written
from guide.records import ROOT, measured
from guide.stage import configuration

from posenc.hf.serving.table import WRITER

WRITTEN = sorted([*(ROOT / "docs" / "learn").glob("*.md"), *(ROOT / "docs" / "methods").glob("*.md")])


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_lines_of_a_method_run(name: str) -> None:
    code = example_of(CATALOGUE[name])
    assert "import" in code
    exec(compile(code, name, "exec"), {"__name__": name})


def test_every_method_has_a_page_and_a_row_and_every_written_text_a_method() -> None:
    rows = table()
    nav = str(configuration()["nav"])
    for name in CATALOGUE:
        assert f"[{name}](methods/{name}.md)" in rows
        assert f"methods/{name}.md" in nav
    assert {page.stem for page in WRITTEN if page.parent.name == "methods"} <= set(CATALOGUE)


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_method_is_written_about(name: str) -> None:
    problem, text = written(CATALOGUE[name])
    assert problem, "say in two or three plain sentences which problem it solves"
    assert text.startswith("## ")


def test_the_numbers_of_a_methods_page_equal_the_records() -> None:
    page = page_of(CATALOGUE["alibi"])
    study, row = measured("alibi")[0]
    mean, low, high = row.means[study.train_length]
    assert f"{mean:.3f} ({low:.2f} to {high:.2f})" in page
    assert "https://arxiv.org/abs/2108.12409" in page


def test_the_decision_page_has_each_situation() -> None:
    page = decision()
    assert page.startswith("# Which positional encoding?\n")
    for title, needs in SITUATIONS.items():
        assert f'<span data-needs="{escape(address(needs))}">{title}</span>' in page
        state = dict(parse_qsl(address(needs)))
        assert (state["kind"], int(state["length"]), "tune" in state) == (needs.kind, needs.length, needs.tune)


def test_the_form_has_an_answer_of_the_plan_for_each_released_model() -> None:
    answers = decision_page._answers()
    qwen = answers["models"]["Qwen/Qwen3-8B"]["answers"]["131072"]
    assert answers["texts"][qwen["command"]] == ("posenc extend Qwen/Qwen3-8B --length 131072 --config-only --out DIR",)
    assert {answers["texts"][index][0] for index in qwen["sentences"]} >= {"default", "costs", "check"}
    assert all(len(model["answers"]) == 2 * len(LENGTHS) for model in answers["models"].values())
    assert len(answers["models"]) > 30


def test_every_how_to_page_is_in_the_navigation() -> None:
    listed = re.findall(r"howto/[\w-]+\.md", str(configuration()["nav"]))
    assert sorted(listed) == sorted(f"howto/{page.name}" for page in (ROOT / "docs" / "howto").glob("*.md"))


def test_the_table_of_engines_is_that_of_the_records() -> None:
    text = engine_table.FILE.read_text(encoding="utf-8")
    assert text == engine_table.text(), "records have changed: python -m benchmarks.engines.table"
    assert json.loads(text) == engine_table.derived()


def test_a_changed_record_changes_table_and_page(monkeypatch: pytest.MonkeyPatch) -> None:
    heads, cells = committed()
    changed = next(cell for cell in cells if cell.engine == "vllm" and cell.state == "right")
    worse = [cell._replace(state="off", gap=1.5) if cell == changed else cell for cell in cells]
    before = engine_page.engine_page()
    for module in (engine_table, engine_page):
        monkeypatch.setattr(module, "committed", lambda: (heads, tuple(worse)))
    assert engine_table.text() != engine_table.FILE.read_text(encoding="utf-8")
    lines = set(engine_page.engine_page().splitlines()) - set(before.splitlines())
    assert any("1.5" in line and line.startswith(f"| {changed.row} |") for line in lines)


def test_every_wrong_cell_has_a_line_of_its_engines_source() -> None:
    """And every line that is named explains a cell. posenc's own refusal to write a GGUF file has none."""
    wrong = [cell for cell in engine_page.wrong_cells() if cell.engine != WRITER]
    assert {(cell.engine, cell.row) for cell in wrong if engine_page.cause_of(cell) is None} == set()
    causes = json.loads(engine_page.CAUSES.read_text(encoding="utf-8"))
    used = [engine_page.cause_of(cell) for cell in wrong]
    measured = {(cell.engine, cell.version, cell.row) for cell in committed()[1] if cell.state != "not run"}
    for cause in causes:
        rows = {(cause["engine"], cause["version"], row) for row in cause.get("rows", ())}
        assert cause in used or not rows & measured, cause["link"]
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+/blob/[\w.]+/[\w./-]+(#L\d+(-L\d+)?)?", cause["link"]) for cause in causes)


def test_formulas_become_mathml_and_code_stays() -> None:
    built = with_mathml("One\n$x_i$ and `$y$`\n\n$$\na^*\n$$\n\n```\n$z$\n```\n")
    assert "One <math" in built, "a formula at the start of a line would end its paragraph"
    assert "`$y$`" in built
    assert "\n$z$\n" in built
    assert built.count("<math") == 2
    assert "*" not in built, "Markdown would read it"


def test_the_check_finds_what_is_missing_and_what_is_fetched(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<p id="here"></p><a href="#here"></a><a href="https://arxiv.org"></a><a href="b.html#there"></a>'
        '<a href="c.html"></a><a href="#gone"></a><script src="https://x.org/y.js"></script><img src="z.png">'
    )
    (tmp_path / "b.html").write_text('<h1 id="there">b</h1>')
    (tmp_path / "s.css").write_text("@import url(https://fonts.org/f); a { background: url(data:x) }")
    problems = problems_of(tmp_path)
    targets = ("https://x.org/y.js", "c.html", "#gone", "z.png", "https://fonts.org/f")
    assert all(target in problem for target, problem in zip(targets, problems, strict=True))


def tracked(pattern: str) -> list[Path]:
    """Files of the clone that version control has, or would take."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", pattern]
    done = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("needs a clone and git")
    return [path for line in done.stdout.splitlines() if (path := ROOT / line).is_file()]


def dead_links(page: Path) -> list[str]:
    """Relative links of a Markdown file that lead to no file of the tree."""
    text = re.sub(r"^```.*?^```[ ]*$|`[^`\n]+`", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    targets = re.findall(r"\[[^\]]*\]\((?![a-z]+:|#)([^)#\s]+)(?:#[^)\s]*)?\)", text)
    return [target for target in targets if not (page.parent / target).exists()]


def test_relative_links_lead_to_files_of_the_tree(tmp_path: Path) -> None:
    pages = tracked("*.md")
    assert len(pages) > 150
    assert not {page.relative_to(ROOT).as_posix(): dead for page in pages if (dead := dead_links(page))}
    (tmp_path / "a.md").write_text("[a](a.md#b) [b](b.md) [c](https://x.org/y) `[d](d.md)` [e](#f)")
    assert dead_links(tmp_path / "a.md") == ["b.md"]


def test_navigation_has_titles_for_people_and_every_page() -> None:
    nav = configuration()["nav"]
    titles = dict(entries(nav))
    assert titles["methods/alibi.md"] == "ALiBi: attention with linear biases"
    assert all(titles[f"methods/{file_of(entry)}"] == short_title(entry) for entry in CATALOGUE.values())
    assert not [title for title in titles.values() if title in CATALOGUE]
    written_pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").glob("*.md")}
    written_pages |= {
        f"{folder}/{path.name}" for folder in ("learn", "howto") for path in (ROOT / "docs" / folder).glob("*.md")
    }
    assert not written_pages - titles.keys(), "pages that no reader would find"


def entries(nav: object, title: str = "") -> list[tuple[str, str]]:
    """Pages of a navigation with their titles."""
    if isinstance(nav, str):
        return [(nav, title)]
    if isinstance(nav, dict):
        return [pair for name, part in nav.items() for pair in entries(part, name)]
    assert isinstance(nav, list)
    return [pair for part in nav for pair in entries(part)]
