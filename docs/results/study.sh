#!/bin/sh
# The commands of the study, one folder a run. Stop it any way you like; the same command goes on. Left out for the time
# they take: CoPE, Transformer-XL, DAPE and PaTH at the larger budget and in prose. Larger: posenc compare --profile
# standard, and --profile full for a GPU.
#
#     sh docs/results/study.sh FOLDER [PART…]        parts: tune text methods large tasks prose extension
#                                                      images sizes
set -eu
out=$1
shift
posenc=${POSENC:-posenc}
eleven="nope sinusoidal rope rope+alibi xpos alibi t5 kerple fire fox stick-breaking"
eight="nope sinusoidal rope alibi t5 fire fox stick-breaking"
rest="learned resonance multiscale proportional sandwich log_cpb distance_mlp shaw data_alibi path transformer_xl dape
cope mixture rope+fox"
newest="clipped rope_pp fope pope tape grape_m selective_rope grape_context grape_a grape_ap kerple_weight
kerple+kerple_weight"
models="rope/nope:4 rope@16/nope:4 rope+sink rope+ssmax rope+log_n ssmax token_relative" # what production models have
small="--profile standard --dim 64 --train-length 64 --batch-size 16 --windows 1000 --lengths 1,4,16 --no-cost"
task="--profile standard --steps 800 --batch-size 16 --lengths 1,4,16"

run() {
    echo "== $(date -u +%H:%M) $*"
    "$posenc" "$@"
}

tune() {
    run tune $eleven $rest $models --profile standard ${small% --no-cost} --steps 400 --trials 5 --out "$out/python"
    for folder in python-long prose prose-long; do
        mkdir -p "$out/$folder" && cp -n "$out/python/tuned.json" "$out/$folder/"
    done
}
text() {
    run compare $eleven $rest $models $small --steps 400 --seeds 3 --out "$out/python"
    run compare $eleven $small --steps 400 --seeds 5 --out "$out/python"
}
methods() {
    run tune rope alibi fox $newest --profile standard ${small% --no-cost} --steps 400 --trials 7 --out "$out/methods"
    run compare rope alibi fox $newest $small --steps 400 --seeds 3 --out "$out/methods"
}
tasks() {
    for name in passkey recall flipflop counting copy; do
        run compare --task $name $task --seeds 10 --out "$out/$name"
        run compare $rest --task $name $task --seeds 3 --out "$out/$name"
    done
    run compare --task addition --profile standard --seeds 3 --out "$out/addition"
}
large() { run compare $eleven $small --steps 1600 --seeds 5 --out "$out/python-long"; }
prose() {
    run compare $eleven $small --data prose --steps 400 --seeds 5 --out "$out/prose"
    run compare $eleven $small --data prose --steps 1600 --seeds 5 --out "$out/prose-long"
}
extension() {
    run compare --task extension --profile standard --dim 64 --train-length 64 --batch-size 16 --steps 1600 \
        --windows 500 --lengths 1,2,4,8,16 --seeds 3 --out "$out/extension"
}
images() { run compare --task images --profile standard --epochs 30 --seeds 10 --out "$out/images"; }
sizes() {
    run compare $eight $small --dim 128 --steps 400 --seeds 3 --out "$out/python-1M"
    run compare $eight $small --dim 256 --layers 5 --steps 400 --windows 500 --seeds 2 --out "$out/python-4M"
}

for part in ${*:-tune text methods large tasks prose extension images sizes}; do
    $part
done
