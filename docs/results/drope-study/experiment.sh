#!/bin/sh
# The experiment of plan.md on one machine, packed into two files that can be brought back.
#
#     sh docs/results/drope-study/experiment.sh DEVICE MODEL DOCUMENTS OUT [OPTION…]
#
# DEVICE is cpu or cuda, MODEL the GGUF file or its parts (a folder with part.*, joined here), DOCUMENTS a folder with
# train, study and pilot, or a tar of one named documents. Options are experiment.py's. WORK (default
# /tmp/drope-study) gets the checkpoints, OUT readings.tar.gz and log.txt. After LIMIT seconds (default 100000) it stops,
# and packs what there is; the same command goes on where WORK still exists.
set -eu
device=$1 model=$2 documents=$3 out=$4
shift 4
here=$(cd "$(dirname "$0")" && pwd)
work=${WORK:-/tmp/drope-study}
mkdir -p "$work" "$out"
if [ -d "$model" ]; then
    [ -f "$work/model.gguf" ] || cat "$model"/part.* > "$work/model.gguf"
    model=$work/model.gguf
fi
if [ -f "$documents" ]; then
    [ -d "$work/documents" ] || tar -C "$work" -xf "$documents"
    documents=$work/documents
fi
export PYTHONPATH="$here/../../../src${PYTHONPATH:+:$PYTHONPATH}"
export OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1
status=0
timeout -k 5 "${LIMIT:-100000}" "${PYTHON:-python3}" "$here/experiment.py" --model "$model" --documents "$documents" \
    --work "$work/checkpoints" --out "$work/readings" --device "$device" "$@" > "$work/log.txt" 2>&1 || status=$?
tr '\r' '\n' < "$work/log.txt" | grep -v '%|' > "$out/log.txt" || true
tar -C "$work" -czf "$out/readings.tar.gz" readings
tail -n 5 "$out/log.txt"
exit $status
