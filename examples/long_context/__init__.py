"""Trainings for a longer context: LongRoPE's and LongRoPE2's recipes, and DroPE."""
