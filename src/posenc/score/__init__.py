"""Place 4, scores: s_i· ← f(s_i·; q, k, tokens), with sight of queries, keys and tokens. One file, one encoding."""
