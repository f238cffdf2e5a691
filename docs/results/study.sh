#!/bin/sh
# The commands of the recorded comparisons of small models, one folder a run. Stop it any way you like; the same command
# goes on. Larger: posenc compare --profile standard, and --profile full for a GPU. The runs extension and extension-drope
# were recorded by a task of posenc compare that is gone; their commands are in their run.json.
#
#     sh docs/results/study.sh FOLDER [PART…]        parts: text designs tasks addition images
set -eu
out=$1
shift
posenc=${POSENC:-posenc}
here=$(dirname "$0")
eleven="nope sinusoidal rope rope+alibi xpos alibi t5 kerple fire fox stick-breaking"
some="learned shaw sandwich data_alibi rope+fox path transformer_xl dape"
small="--profile standard --dim 64 --train-length 64 --batch-size 16"
task="--profile standard --batch-size 16 --lengths 1,4,16"

run() {
    echo "== $(date -u +%H:%M) $*"
    "$posenc" "$@"
}
# Rates from trials of 200 steps on one grid; the comparison has eight times as many.
text() {
    run tune rope alibi $small --windows 500 --lengths 1,4,16 --steps 200 --out "$out/tuning"
    mkdir -p "$out/text" && cp "$out/tuning/tuned.json" "$out/tuning/trials.csv" "$out/text/"
    run compare rope alibi $small --windows 250 --lengths 1,4,16 --steps 1600 --seeds 3 --out "$out/text"
}
# Designs of papers, as classes in designs.py or lists; in each run one rate for all.
designs() {
    set -- $task --classes-from "$here"
    run compare sinusoidal designs:ConcatenatedSinusoidal --task copy "$@" --lr 0.008 --steps 400 --seeds 5 --out "$out/copy-sinusoids"
    run compare cope rope rope+cope --task flipflop "$@" --lr 0.004 --steps 400 --seeds 5 --out "$out/flipflop-cope-rope"
    run compare fox rope+fox designs:FoXProGate rope+designs:FoXProGate --task recall "$@" --lr 0.004 --steps 800 --seeds 5 \
        --out "$out/recall-fox-pro"
    run compare axial designs:ImageMRoPE designs:ImageInterleavedMRoPE --task images --profile standard --epochs 30 --seeds 3 \
        --classes-from "$here" --out "$out/images-m-rope"
}
# The rates of these runs were given: twice the profile's, four times for what table.md lists.
tasks() { # NAME:STEPS:SEEDS; steps from trials with RoPE, ALiBi and T5's bias, one seed each
    for one in recall:800:10 flipflop:400:10 copy:400:10 counting:1600:10 passkey:2400:5; do
        name=${one%%:*} steps=${one#*:}
        mkdir -p "$out/$name" && cp "$here/given-rates.json" "$out/$name/tuned.json"
        run compare $eleven cope --task "$name" $task --steps "${steps%:*}" --seeds "${one##*:}" --out "$out/$name"
        run compare $some --task "$name" $task --steps "${steps%:*}" --seeds 3 --out "$out/$name"
    done
}
addition() { run compare --task addition --profile standard --seeds 3 --out "$out/addition"; }
images() { run compare --task images --profile standard --epochs 30 --seeds 5 --out "$out/images"; }

for part in ${*:-text designs tasks addition images}; do
    $part
done
