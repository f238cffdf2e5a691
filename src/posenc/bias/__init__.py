"""Place 3, scores: s_ij ← s_ij + b_h(p_i, p_j), a term of positions alone. One file, one encoding."""
