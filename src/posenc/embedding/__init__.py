"""Place 1, token embeddings: x_t ← x_t + e(p_t). One file, one encoding."""
