"""Place 2, queries and keys: q, k ← R(p) q, R(p) k. ``_rotate`` is the only code that rotates."""
