"""From a plan to records: planning, jobs in their folders, training, checkpoints, and what a run folder holds."""
