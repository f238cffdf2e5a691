"""Executors, which run jobs: a file for each, found by the name that ``--executor`` takes.

executor           the interface, and what all executors share
local, slurm, ray  processes of this machine; SLURM through submitit; a Ray cluster
torchrun           the ranks of torchrun, which compute each job together
mapping            phases, failed jobs, and jobs whose process died
worker, ranks      the process of a job under local; which rank of torchrun this process is
"""
