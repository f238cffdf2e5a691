"""Tuning of learning rates, so that no encoding loses for its hyper-parameters."""
