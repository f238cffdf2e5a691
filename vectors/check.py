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
        for kind, told in case["kinds"].items():
            answer = read and told and read(case["config"], case["length"], kind)
            if answer:
                theta, gain = answer
                pairs = zip(told["inv_freq"], theta, strict=True)
                gaps = [abs(own - right) / (right or 1) for right, own in pairs] + [abs(gain / told["gain"] - 1)]
                off += [(case["name"], kind, max(gaps))] if max(gaps) > tolerance else []
            for row, position in enumerate(case["positions"] if told else ()):
                for column, pair in enumerate(told["pairs"]):
                    angle, gain = position * told["inv_freq"][pair], told["gain"]
                    right = gain * math.cos(angle), gain * math.sin(angle)
                    gap = max(abs(told["cos"][row][column] - right[0]), abs(told["sin"][row][column] - right[1]))
                    off += [(case["name"], kind, gap)] if gap > 1e-11 else []
    return off


if __name__ == "__main__":
    print(check() or "rope-v1.json is consistent")
