"""How long the commands for a configuration take from the shell, next to starting Python, torch and transformers.

    python benchmarks/cold_start.py [--rounds 9] [--write cold_start]

Each row is a process of its own; rows alternate, and figures are medians over the rounds. The last column says which
of torch and transformers a command had imported at its end.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

CONFIG = {
    "model_type": "qwen3", "hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40960, "rope_theta": 1000000,
    "rope_scaling": None,
}  # fmt: skip
COMMANDS = {
    "posenc explain": ["explain", "CONFIG"],
    "posenc doctor": ["doctor", "CONFIG"],
    "posenc extend --config-only": ["extend", "CONFIG", "--length", "131072", "--config-only"],
    "posenc convert": ["convert", "CONFIG", "--spelling", "both"],
    "posenc serve": ["serve", "CONFIG"],
}
PEERS = {
    "python -c pass": "pass", "python -c 'import torch'": "import torch",
    "AutoConfig.from_pretrained": "from transformers import AutoConfig; AutoConfig.from_pretrained(FOLDER)",
}  # fmt: skip
_TELL = "import sys; print([m for m in ('torch', 'transformers') if m in sys.modules], file=sys.stderr)"


def processes(folder: Path) -> dict[str, list[str]]:
    """The command line of each row."""
    config = str(folder / "config.json")
    lines = {name: [sys.executable, "-c", code.replace("FOLDER", repr(str(folder)))] for name, code in PEERS.items()}
    for name, words in COMMANDS.items():
        arguments = [config if word == "CONFIG" else word for word in words]
        code = f"import sys; sys.argv = ['posenc', *{arguments!r}]\nfrom posenc_cli import main\n"
        lines[name] = [sys.executable, "-c", f"{code}try:\n    main()\nfinally:\n    {_TELL}"]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--write", metavar="NAME", help="file under benchmarks/results")
    options = parser.parse_args()
    seconds: dict[str, list[float]] = {}
    modules: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "config.json").write_text(json.dumps(CONFIG))
        rows = processes(folder)
        for number in range(options.rounds + 1):  # the first round fills the system's cache of files
            for name, line in rows.items():
                began = time.perf_counter()
                ran = subprocess.run(line, capture_output=True, text=True, check=False)
                taken = time.perf_counter() - began
                if ran.returncode != 0:
                    raise SystemExit(f"{name}: {ran.stderr}")
                modules[name] = ran.stderr.strip().splitlines()[-1] if name in COMMANDS else ""
                if number:
                    seconds.setdefault(name, []).append(taken)
    text = "\n".join(
        [
            "# Commands for a configuration, from the shell",
            "",
            f"- command: `python benchmarks/cold_start.py --rounds {options.rounds}`",
            f"- posenc {version('posenc')}, torch {version('torch')}, transformers {version('transformers')}, "
            f"Python {platform.python_version()}",
            f"- machine: {_processor()}, {os.cpu_count()} cores",
            "",
            "| process | seconds, median | least | most | of torch and transformers it imports |",
            "|---|---|---|---|---|",
            *(
                f"| `{name}` | {statistics.median(taken):.2f} | {min(taken):.2f} | {max(taken):.2f} | "
                f"{modules[name].strip('[]') or ('none' if name in COMMANDS else '')} |"
                for name, taken in seconds.items()
            ),
            "",
        ]
    )
    print(text)
    if options.write:
        Path(__file__).with_name("results").joinpath(f"{options.write}.md").write_text(text)


def _processor() -> str:
    cpu = Path("/proc/cpuinfo")
    names = [line.split(":")[1].strip() for line in cpu.read_text().splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor()


if __name__ == "__main__":
    main()
