"""Place 5, weights: a_i· ← w(s_i·), in the place of softmax. One file, one encoding."""
