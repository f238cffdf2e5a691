"""Where jobs run: processes of this machine (`local`), the ranks of torchrun (`distributed`), a cluster (`slurm`).

A runner brings every job folder to its ``result.json``; which one was chosen never changes what is computed in a job,
except that `distributed` shares each batch among its ranks.
"""
