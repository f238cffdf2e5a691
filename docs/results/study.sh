#!/bin/sh
# The commands of the study, one folder a run. Stop it any way you like; the same command goes on. Left out for the
# time they take: CoPE, Transformer-XL, DAPE, PaTH and the mixture at the larger budget, in prose and at larger sizes.
# Larger: posenc compare --profile standard, and --profile full for a GPU.
#
#     sh docs/results/study.sh FOLDER [PART…]        parts: tune own text methods more long prose extension tasks
#                                                      addition images sizes
set -eu
out=$1
shift
posenc=${POSENC:-posenc}
eleven="nope sinusoidal rope rope+alibi xpos alibi t5 kerple fire fox stick-breaking"
eight="nope sinusoidal rope alibi t5 fire fox stick-breaking"
rest="learned resonance multiscale proportional sandwich log_cpb distance_mlp shaw data_alibi rope+fox"
slow="cope path dape mixture transformer_xl" # to train
newest="clipped rope_pp fope pope tape grape_m selective_rope grape_context grape_a grape_ap kerple_weight
kerple+kerple_weight"
models="rope/nope:4 rope@16/nope:4 rope+sink rope+ssmax rope+log_n ssmax token_relative" # what production models have
some="learned shaw sandwich data_alibi rope+fox path transformer_xl dape"
small="--profile standard --dim 64 --train-length 64 --batch-size 16 --windows 1000 --lengths 1,4,16 --no-cost"
task="--profile standard --batch-size 16 --lengths 1,4,16 --no-cost"

run() {
    echo "== $(date -u +%H:%M) $*"
    "$posenc" "$@"
}
rates() { # those of the text, for a run beside it
    mkdir -p "$out/$1" && cp -n "$out/text/tuned.json" "$out/$1/"
}

tune() { run tune $eleven $rest $slow $models --profile standard ${small% --no-cost} --steps 400 --out "$out/text"; }
own() { # rates of encodings' own parameters
    run tune learned t5 kerple fire log_cpb distance_mlp shaw fox data_alibi path transformer_xl cope dape \
        --profile standard ${small% --no-cost} --steps 400 --out "$out/tuning"
}
text() { run compare $eleven $rest $models $small --steps 400 --seeds 3 --out "$out/text"; }
methods() {
    run tune rope alibi fox $newest --profile standard ${small% --no-cost} --steps 400 --out "$out/methods"
    run compare rope alibi fox $newest $small --steps 400 --seeds 3 --out "$out/methods"
}
more() {
    rates text-more
    run compare $slow rope $small --steps 400 --seeds 3 --out "$out/text-more"
}
long() {
    rates text-long
    run compare $eleven $small --steps 1600 --seeds 5 --out "$out/text-long"
}
prose() {
    rates prose
    rates prose-long
    run compare $eleven $small --data prose --steps 400 --seeds 5 --out "$out/prose"
    run compare $eleven $small --data prose --steps 1600 --seeds 5 --out "$out/prose-long"
}
extension() {
    run compare --task extension --profile standard --dim 64 --train-length 64 --batch-size 16 --steps 1600 \
        --windows 500 --lengths 1,2,4,8,16 --seeds 3 --out "$out/extension"
}
tasks() { # NAME:STEPS:SEEDS; steps from trials with RoPE, ALiBi and T5's bias, one seed each
    for one in recall:800:10 flipflop:400:10 copy:400:10 counting:1600:10 passkey:2400:5; do
        name=${one%%:*} steps=${one#*:}
        rates "$name"
        run compare $eleven cope --task "$name" $task --steps "${steps%:*}" --seeds "${one##*:}" --out "$out/$name"
        run compare $some --task "$name" $task --steps "${steps%:*}" --seeds 3 --out "$out/$name"
    done
    rates copy-long # what decays learns an exact distance slowly
    run compare nope rope alibi kerple fox stick-breaking --task copy $task --steps 1600 --seeds 3 --out "$out/copy-long"
}
addition() { run compare --task addition --profile standard --seeds 3 --out "$out/addition"; }
images() { run compare --task images --profile standard --epochs 30 --seeds 5 --out "$out/images"; }
sizes() { # rates fall with the width, as Yang et al. have it (arXiv 2203.03466)
    rates text-1M
    rates text-4M
    run compare $eight $small --dim 128 --lr 0.001 --steps 400 --windows 500 --seeds 3 --out "$out/text-1M"
    run compare $eight $small --dim 256 --lr 0.0005 --layers 5 --steps 400 --windows 500 --seeds 2 --out "$out/text-4M"
}

for part in ${*:-tune own text methods more long prose extension tasks addition images sizes}; do
    $part
done
