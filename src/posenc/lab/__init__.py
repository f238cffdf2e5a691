"""The laboratory: train one small model per positional encoding, all alike, and evaluate beyond the training length.

config, specs       what a comparison consists of: settings, and encodings as users type them
plugins             a user's own classes, imported only where the command line names them
data/               where training and evaluation data come from
decoder             the language model that every encoding is tried in
tasks/              data, batches, loss and evaluation of each task; the image classifier
run/                plan → job → train → records, and the folder that holds them
execute/            jobs on local processes, SLURM, Ray, or the ranks of torchrun
stats               confidence intervals, paired contrasts, equivalence tests on arrays
report/             records → tables, figures, one page
tune, cost          learning rates per encoding; time and memory per encoding
"""
