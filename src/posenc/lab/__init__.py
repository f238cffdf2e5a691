"""posenc compare: small models, one for each encoding, trained alike and measured far past the trained length.

config    what is asked for, one dataclass a part; the command line is made from it
specs     encodings as they are typed, built for a model;  own: classes of one's own
tasks/    one file a task: data, batches, loss, evaluation;  corpora/: where texts come from
records   what was measured, one long table
model, train, job   from a configuration to records
execute/  jobs mapped over processes, SLURM, Ray, the ranks of torchrun
stats/    arrays in; intervals, contrasts, equivalence out
report/   records in; sentences, tables, charts, a page out
"""
