"""Frequencies: a `Spectrum`, the exact angles (`phase`), and scalings from a spectrum to a spectrum, one a file."""
