"""Where jobs run: this machine, Ray, SLURM, or the ranks of torchrun; see `posenc.lab.execute.executor`."""
