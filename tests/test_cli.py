"""The command line: what it shows, and a clear word with exit code 2 for whatever is wrong with its input."""

from __future__ import annotations

import io
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

import posenc
import posenc_cli
from posenc.catalogue import CATALOGUE
from posenc.cli import columns
from posenc.cli.encodings import facts_of, meanings_of, options_of
from posenc.lab import commands as lab_commands
from posenc_cli import installed
from posenc_cli.commands import COMMANDS, LAB, STANDALONE
from posenc_cli.printable import to_ascii
from tests.samples import mostly_slow

SOURCE = Path(posenc.__file__).parents[1]
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run a command line in this process: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            code = posenc_cli.run(list(arguments))
        except SystemExit as ended:  # the help of a command ends there
            code = int(ended.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let the output be a terminal of so many columns."""

    def width(wide: int) -> None:
        monkeypatch.setenv("COLUMNS", str(wide))
        monkeypatch.setattr(columns, "width_of", lambda stream: wide)
        monkeypatch.setattr("posenc.cli.encodings.width_of", lambda stream: wide)

    return width


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text("call me ishmael, some years ago " * 1000)
    return path


def _one_line(outcome: tuple[int, str, str], *words: str) -> None:
    code, _, err = outcome
    assert code == 2
    assert len(err.splitlines()) == 1, err
    assert err.startswith("error: ")
    assert "Traceback" not in err
    for word in words:
        assert word in err


def _process(*arguments: str, code: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, after ``code``."""
    program = f"import sys; {code}\nimport posenc_cli; sys.argv[1:] = {list(arguments)}; posenc_cli.main()"
    known = {**os.environ, "PYTHONPATH": str(SOURCE), **environment}
    return subprocess.run(
        [sys.executable, "-c", program], env=known, capture_output=True, text=True, timeout=120, encoding="utf-8"
    )


def _without(*packages: str) -> str:
    """Code after which these packages are not installed."""
    return f"sys.modules.update(dict.fromkeys({packages!r}))"


LAB_PACKAGES = ("rich", "numpy", "scipy", "pandas", "altair", "accelerate", "transformers")


def test_list_gives_each_encoding_a_line_where_nobody_looks_on(call: Call) -> None:
    code, out, err = call("list")
    assert (code, err) == (0, "")
    rows = [line.split("\t") for line in out.splitlines()]
    assert rows == [[e.name, e.hook_point, e.title, e.parameters] for e in CATALOGUE.values()]


@pytest.mark.parametrize("width", mostly_slow([40, 60, 80, 200], 40, 80))
def test_list_and_info_keep_to_the_width_of_a_terminal(call: Call, terminal: Callable[[int], None], width: int) -> None:
    terminal(width)
    for arguments in (["list"], ["info", "fox"], ["info", "dynamic_longrope"]):
        code, out, _ = call(*arguments)
        assert code == 0
        assert max(map(len, out.splitlines())) <= width
    assert all(name in call("list")[1] for name in CATALOGUE)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["weight"], [n for n, e in CATALOGUE.items() if "weight" in f"{n} {e.hook_point} {e.title}".lower()]),
        (["ntk"], [name for name, e in CATALOGUE.items() if "ntk" in f"{name} {e.title}".lower()]),
        (["RoPE", "larger"], ["ntk"]),
    ],
)
def test_list_shows_what_fits(call: Call, arguments: list[str], names: list[str]) -> None:
    code, out, _ = call("list", *arguments)
    assert code == 0
    assert [line.split("\t")[0] for line in out.splitlines()] == names
    code, out, _ = call("list", *arguments, "--json")
    assert [entry["name"] for entry in json.loads(out)] == names


def test_list_says_where_nothing_fits(call: Call) -> None:
    _one_line(call("list", "zzz"), "no encoding fits")
    assert json.loads(call("list", "zzz", "--json")[1]) == []


@pytest.mark.parametrize("name", CATALOGUE)
def test_info_tells_all_that_is_known(call: Call, name: str) -> None:
    entry, (code, out, _) = CATALOGUE[name], call("info", name)
    assert code == 0
    facts = (entry.title, entry.formula, entry.source, entry.parameters, entry.cost, entry.past_training)
    assert all(fact in out for fact in facts)
    for cls in filter(None, (entry.encoding, entry.scaling)):
        assert f"{cls.__module__}.{cls.__name__}" in out
        assert cls.__name__ in next(line for line in out.splitlines() if line.startswith("import"))
    for option in options_of(entry):
        assert f"  {option['name']}" in out
        assert option["meaning"], f"{option['name']} has no meaning"
        assert option["meaning"] in out
    assert "structure" in out


@pytest.mark.parametrize("name", [name for name in CATALOGUE if name != "nope"])
def test_what_info_says_to_type_works(name: str) -> None:
    facts, printed = facts_of(CATALOGUE[name]), dict[str, object]()
    exec(facts["import"], printed)
    entry = CATALOGUE[name]
    assert all(printed[cls.__name__] is cls for cls in (entry.encoding, entry.scaling) if cls)
    assert isinstance(eval(facts["example"], {"posenc": posenc}), posenc.Encoding)


@pytest.mark.parametrize(
    ("word", "near"), [("rop", "rope"), ("stickbraking", "stick-breaking"), ("yran", "yarn"), ("linaer", "pi")]
)
def test_info_proposes_what_is_near(call: Call, word: str, near: str) -> None:
    _one_line(call("info", word), f"no encoding is named '{word}'", "did you mean", f"'{near}'")


@pytest.mark.parametrize(("word", "near"), [("--lenght=8192", "--length"), ("--methd", "--method"), ("--zzz", "")])
def test_an_option_that_does_not_exist_is_named_before_those_that_are_missing(call: Call, word: str, near: str) -> None:
    said = [f"did you mean {near}?"] if near else []
    _one_line(call("extend", "folder", word), f"{word.partition('=')[0]} is no option", *said)


@pytest.mark.parametrize("word", ["mine:Gated", "nothing-like-this"])
def test_an_unknown_name_is_one_short_line(call: Call, word: str) -> None:
    for command in ("info", "figure"):
        code, out, err = call(command, word)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert word in err
        assert len(err) < 200


def test_meanings_are_those_of_the_docstring() -> None:
    text = "It.\n\nArgs:\n    a, b: sizes,\n        in tokens.\n\nReturns:\n    c: nothing."
    assert meanings_of(text) == {"a": "sizes, in tokens.", "b": "sizes, in tokens."}
    assert meanings_of("No arguments.") == {}


# Says at the end, where a test would see it, if any of posenc was loaded.
_TELL = "\nimport atexit; atexit.register(lambda: 'posenc' in sys.modules and print('posenc was loaded'))"


def test_version_needs_nothing_of_posenc_or_torch() -> None:
    done = _process("--version", code=_without("torch", *LAB_PACKAGES) + _TELL)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"posenc {posenc.__version__}\npython {platform.python_version()} ")
    assert f"\ntorch {version('torch')}\n" in done.stdout
    assert "posenc was loaded" not in done.stdout


def test_version_says_what_each_extra_has_and_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = ["mpmath>=1.3; extra == 'lab'", "mpmath>=1.4; extra == 'lab'"]
    known = ["torch>=2.6", *twice, 'no-such-package; python_version > "3" and extra == "lab"']
    monkeypatch.setattr(
        installed, "requires", lambda name: [*known, "ruff; extra == 'dev'", "gone>=1; extra == 'tune'"]
    )
    lines = installed.report().splitlines()
    assert lines[3:] == [
        f"[lab] mpmath {version('mpmath')}; not installed: no-such-package",
        "[tune] not installed: gone",
    ]


@pytest.mark.parametrize("arguments", [["--help"], [], ["-h"]])
def test_help_lists_all_commands_and_needs_nothing(arguments: list[str]) -> None:
    done = _process(*arguments, code=_without("torch", *LAB_PACKAGES) + _TELL, COLUMNS="40")
    assert (done.returncode, done.stderr) == (0, "")
    assert all(f"  {name}" in done.stdout for name in COMMANDS)
    assert all(line.isascii() and len(line) <= 40 for line in done.stdout.splitlines())


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help(call: Call, command: str) -> None:
    code, out, err = call(command, "--help")
    assert (code, err) == (0, "")
    assert f"posenc {command}" in out
    assert not re.search(r"extra\s*\.", out), "what is in brackets is no markup"
    assert "--help" in out


def test_the_laboratory_has_the_commands_that_the_help_lists() -> None:
    assert list(lab_commands.MODULES) == ["compare", "report", "tune", "cost", "export"]
    assert set(lab_commands.MODULES) == set(LAB)


def test_help_of_commands_outside_the_laboratory_needs_nothing() -> None:
    code = f"{_without('torch', *LAB_PACKAGES)}\nimport posenc_cli; codes = []"
    for command in STANDALONE:  # a command's help ends the program
        code += f"\ntry: codes.append(posenc_cli.run([{command!r}, '--help']))"
        code += "\nexcept SystemExit as end: codes.append(end.code)"
    done = _process("--version", code=f"{code}\nassert not any(codes), codes")
    assert (done.returncode, done.stderr) == (0, "")


def test_torch_alone_serves_list_info_and_explain(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama", "head_dim": 128, "rope_theta": 500000.0}')
    commands = (["list"], ["info", "alibi"], ["explain", str(tmp_path)], ["report", "x"])
    runs = "; ".join(f"codes.append(posenc_cli.run({arguments}))" for arguments in commands)
    code = f"import torch; {_without(*LAB_PACKAGES)}; import posenc_cli; codes = []; {runs}; print(codes)"
    done = _process("--version", code=code)
    assert done.returncode == 0
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    for words in ("alibi\tbias", "from posenc import ALiBi", "base         500,000", "[0, 0, 0, 2]"):
        assert words in done.stdout


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "cp437"])
def test_every_encoding_of_the_output_gets_what_it_can_write(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2))
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    assert posenc_cli.run(["list"]) == 0
    assert [posenc_cli.run(["info", name]) for name in CATALOGUE] == [0] * len(CATALOGUE)
    assert posenc_cli.run(["info", "θ→"]) == 2
    out.flush(), err.flush()
    written = out.buffer.getvalue().decode(encoding)
    assert "<-" in written
    assert "?" not in written
    assert err.buffer.getvalue().decode(encoding).startswith("error: ")


def test_every_sign_that_posenc_uses_has_a_substitute() -> None:
    signs = {sign for path in (SOURCE / "posenc").rglob("*.py") for sign in path.read_text(encoding="utf-8")}
    assert {sign for sign in signs if "?" in to_ascii(sign)} == {"?"}
    assert to_ascii("Θ_j ← θ·√2 − ½, x² ≤ ∞ …") == "Theta_j <- theta*sqrt2 - 1/2, x^2 <= inf ..."


@pytest.mark.parametrize("command", mostly_slow(["--help", "list"], "--help"))
def test_who_reads_no_further_ends_the_command_quietly(command: str) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    known = {**os.environ, "PYTHONPATH": str(SOURCE)}
    program = [sys.executable, "-m", "posenc_cli", command]
    with os.fdopen(writes, "w") as out:
        done = subprocess.run(program, env=known, stdout=out, stderr=subprocess.PIPE, timeout=120)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(
    "where", mostly_slow(["torch", "posenc.catalogue", "typing_extensions", "posenc.lab.commands"], "posenc.catalogue")
)
def test_ctrl_c_while_the_command_starts_ends_it_quietly(where: str) -> None:
    hook = (
        "import os, signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\nclass Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {where!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())"
    )
    done = _process("compare" if "lab" in where else "list", code=hook)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_errors_keep_their_lines(call: Call, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "llama", "head_dim": 128, "rope_scaling": {"type": "yarm", "factor": 4.0}})
    )
    code, _, err = call("explain", str(tmp_path))
    with pytest.raises(ValueError) as raised:
        posenc.hf.read_rope(tmp_path)
    assert "\n" in str(raised.value), "the test needs an error of several lines"
    assert (code, err) == (2, f"error: {tmp_path}: {raised.value}\n")


PLANTED = "x\n\x1b[2J\x1b]0;title\x07\x9b1m\u202e\u2066\u2028\r\x00\u200f\ud800PLANTED"


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": PLANTED, "head_dim": 64, "rope_theta": 1e4},
        {"model_type": "llama", "head_dim": 64, PLANTED: 1, f"rope_{PLANTED}": 2},
        {"model_type": "llama", "head_dim": PLANTED, "rope_theta": 1e4},
        {"model_type": "llama", "head_dim": 64, "rope_scaling": {"rope_type": PLANTED, "factor": 2.0}},
        {"model_type": "llama", "head_dim": 64, "rope_scaling": {"rope_type": "yarn", "factor": 2.0, PLANTED: 3}},
        {"model_type": "gemma3_text", "head_dim": 64, "num_hidden_layers": 2, "layer_types": [PLANTED, "x"]},
        {"model_type": "llama", "head_dim": 64, "rope_parameters": {PLANTED: {"rope_type": "default"}}},
        {"model_type": "llama", "head_dim": 64, "torch_dtype": PLANTED, "transformers_version": PLANTED},
        {"dim": 64, "n_heads": 2, "hidden_dim": 8, "yarn": {PLANTED: 2}},
    ],
    ids=["type", "keys", "value", "rope type", "key of the block", "kinds", "kind of a block", "others", "params"],
)
def test_no_sign_of_a_file_steers_the_terminal(call: Call, tmp_path: Path, config: dict[str, object]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / f"a{PLANTED[:-9].replace(chr(0), '')}.safetensors").write_bytes(b"")
    for command in (["explain"], ["explain", "--layers"], ["doctor"], ["serve-flags"]):
        for more in ([], ["--json"]):
            code, out, err = call(*command, str(tmp_path), *more)
            assert code in (0, 1, 2, 3)
            for line in (out + err).split("\n"):
                assert line.isprintable(), line
                assert not line.startswith("PLANTED")
            if more and code != 2:
                json.loads(out)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["info"], ["name", "posenc info --help"]),
        (["info", "rope", "alibi"], ["alibi"]),
        (["explain", "nowhere"], ["nowhere"]),
        (["explain", "--head-dim", "1000000000000000000"], ["--head-dim", "65536"]),
        (["explain", "x", "--head-dim", "0"], ["--head-dim"]),
        (["compair"], ["compair", "compare"]),
        (["--nonsense"], ["--nonsense"]),
        (["compare", "ropee"], ["ropee", "rope"]),
        (["compare", "rope+albi"], ["albi", "alibi"]),
        (["compare", "--profile", "quik"], ["quik", "quick"]),
        (["compare", "--lengths", "1,4,2"], ["--lengths", "grow"]),
        (["compare", "--lengths", "1,x"], ["--lengths"]),
        (["compare", "--train-length", "63"], ["--train-length", "even"]),
        (["compare", "--steps", "many"], ["--steps", "many"]),
        (["compare", "--nonsense", "1"], ["--nonsense"]),
        (["compare", "--data", "nowhere"], ["nowhere"]),
        (["compare", "--data", "empty.txt"], ["empty.txt", "empty"]),
        (["compare", "--data", "short.txt"], ["too short", "1025", "8100"]),
        (["compare", "--data", "binaries"], ["binaries", "no text"]),
        (["compare", "--task", "copy", "--out", "book.txt"], ["--out book.txt"]),
        (["compare", "--task", "copy", "--out", "/proc/no"], ["--out /proc/no"]),
        (["compare", "--task", "copy", "--out", "binaries"], ["binaries", "not empty"]),
        (["compare", "--task", "copy", "--device", "tpu"], ["--device tpu"]),
        (["compare", "--precision", "half"], ["--precision half", "float32 or bfloat16"]),
        (["compare", "--workers", "0"], ["--workers"]),
        (["compare", "--executor", "moon"], ["--executor moon", "ray"]),
        (["compare", "--executor", "slurm", "--slurm-cluster", "moon"], ["--slurm-cluster moon"]),
        (["compare", "rope", "--dim", "12", "--heads", "4"], ["rope: ", "even"]),
    ],
)
def test_bad_input_is_one_line(call: Call, text: Path, arguments: list[str], words: list[str]) -> None:
    folder = text.parent
    (folder / "empty.txt").write_text("")
    (folder / "short.txt").write_text("a" * 9000)
    (folder / "binaries").mkdir()
    (folder / "binaries" / "image.png").write_bytes(b"\x89PNG\xff")
    _one_line(call(*arguments), *words)
    assert not (folder / "posenc-compare").exists() or not list(folder.glob("posenc-compare/*/jobs/*"))


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_folder_that_cannot_be_written_is_refused(call: Call, text: Path) -> None:
    folder = text.parent / "locked"
    folder.mkdir(mode=0o500)
    _one_line(call("compare", "--task", "copy", "--out", str(folder)), "not writable")


def test_a_folder_without_permission_is_refused_for_root_too(
    call: Call, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    _one_line(call("compare", "--task", "copy", "--out", "x"), "--out x", "not writable")


def test_the_laboratory_starts_without_packages_of_other_extras() -> None:
    """In an environment with the extra ``lab`` alone, `posenc compare` is the README's command."""
    missing = ("transformers", "gguf", "ray", "lm_eval", "onnx", "onnxruntime")
    code = f"import sys\nfor name in {missing}: sys.modules[name] = None\n"
    code += "import posenc_cli; sys.argv[1:] = ['compare', '--help']; sys.exit(posenc_cli.main())"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "--task" in ran.stdout


def test_a_command_without_its_extra_names_the_line_to_type() -> None:
    code = "import sys\nsys.modules['pandas'] = None\n"
    code += "import posenc_cli; sys.argv[1:] = ['compare']; sys.exit(posenc_cli.main())"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 2
    assert "posenc[lab]" in ran.stderr
    assert "Traceback" not in ran.stderr
