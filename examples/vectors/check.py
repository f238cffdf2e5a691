"""Compare a reader of RoPE settings with rope-v1.json, in Python's standard library.

python check.py                      the file against itself
check(read)                          your reader: read(config, length, kind) -> (inv_freq, gain), or None to skip
"""

import json
import math
from pathlib import Path

FILE = Path(__file__).with_name("rope-v1.json")


def check(read=None, tolerance=1e-6, path=FILE):
    """The names of cases that are off, each with its kind of layers and by how much."""
    off = []
    for case in json.loads(Path(path).read_text())["cases"]:
        for kind, truth in case["kinds"].items():
            answer = read and truth and read(case["config"], case["length"], kind)
            if answer:
                theta, gain = answer
                pairs = zip(truth["inv_freq"], theta, strict=True)
                gaps = [abs(actual - right) / (right or 1) for right, actual in pairs] + [abs(gain / truth["gain"] - 1)]
                off += [(case["name"], kind, max(gaps))] if max(gaps) > tolerance else []
            for row, position in enumerate(case["positions"] if truth else ()):
                for column, pair in enumerate(truth["pairs"]):
                    angle, gain = position * truth["inv_freq"][pair], truth["gain"]
                    right = gain * math.cos(angle), gain * math.sin(angle)
                    gap = max(abs(truth["cos"][row][column] - right[0]), abs(truth["sin"][row][column] - right[1]))
                    off += [(case["name"], kind, gap)] if gap > 1e-11 else []
    return off


if __name__ == "__main__":
    print(check() or "rope-v1.json is consistent")
