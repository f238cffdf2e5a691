"""Frequencies: a `Spectrum`, the exact angles (`phase`), and scalings that map a spectrum to a spectrum. One file, one scaling."""
