#!/bin/sh
# A pilot: in which setting do models use their context? A setting can decide about length if reading T tokens of context
# instead of T/4 is worth 0.05 bits per byte, on the same scored bytes. Stop it any way you like; the same command goes
# on. A setting is begun only while the trainings before it took fewer than HOURS (10) together.
#
#     sh docs/results/reach.sh FOLDER [SETTING…]      settings: pairs_256 pairs_512 bytes_512 wide_256 bytes_1024; table
#                                                     prints what there is
set -eu
out=$1
shift
posenc=${POSENC:-posenc}
python=${PYTHON:-python}
rows=${ROWS:-rope}
common="--profile standard --data documents --seeds 1 --lengths 1 --windows 500"

setting() { # NAME OPTION…; MORE comes last and wins, as for a trial: MORE="--steps 4 --windows 8"
    name=$1
    shift
    code=0
    summary spent || code=$?
    case $code in
    0)
        echo "== $(date -u +%H:%M) $name: $*"
        nice -n 10 "$posenc" compare $rows $common "$@" ${MORE:-} --out "$out/$name"
        ;;
    3) echo "== $name: not begun, ${HOURS:-10} hours are spent" ;;
    *) exit $code ;;
    esac
}
pairs_256() { setting pairs-256 --tokens bpe:4096 --train-length 256 --batch-size 16 --steps 4000; }         # 16 million tokens
pairs_512() { setting pairs-512 --tokens bpe:4096 --train-length 512 --batch-size 8 --steps 6000; }          # 25 million
bytes_512() { setting bytes-512 --train-length 512 --batch-size 8 --steps 8000; }                            # 33 MB
bytes_1024() { setting bytes-1024 --train-length 1024 --batch-size 4 --steps 8000; }                       # 33 MB
wide_256() { setting wide-256 --tokens bpe:4096 --train-length 256 --batch-size 16 --steps 6000 --dim 256; } # 25 million
table() { summary table; }

summary() { # spent: whether another setting may begin;  table: what each setting shows
    "$python" - "$1" "$out" "${HOURS:-10}" <<'PYTHON'
import sys
from pathlib import Path

from posenc.lab.report.numbers import build_table
from posenc.lab.run.folder import read_run

what, out, hours = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
runs = [run for path in sorted(out.glob("*/run.json")) if len((run := read_run(path.parent)).records)]
seconds = [run.records[run.records["metric"] == "seconds"]["value"].sum() for run in runs]
if what == "spent":
    sys.exit(3 if sum(seconds) >= 3600 * hours else 0)
heads = "setting", "T", "bits per byte at T/16, T/8, T/4, T/2, T", "T/4 → T, 90 % interval", "worth 0.05", "hours"
print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
for run, spent in zip(runs, seconds, strict=True):
    for row in build_table(run).full_rows:
        if row.reach is None or row.reach.gain is None:
            continue
        losses, gain = ", ".join(f"{cell.mean:.3f}" for cell in row.reach.losses.values()), row.reach.gain
        worth = "yes" if gain.low >= 0.05 else "no" if gain.high < 0.05 else "inconclusive"
        name, interval = f"{run.path.name}, {row.spec}", f"{gain.mean:.3f} ({gain.low:.3f} to {gain.high:.3f})"
        print(f"| {name} | {run.trained} | {losses} | {interval} | {worth} | {spent / 3600:.2f} |")
PYTHON
}

for part in ${*:-pairs_256 pairs_512 bytes_512 wide_256 bytes_1024 table}; do
    $part
done
