"""Attention and every encoding that acts inside it, once more and apart from the library: float64, slow, from formulas.

Nothing here imports the library. An encoding is its name, the numbers that its constructor was given, and the values
of its parameters (`terms.Encoded`); a call is tensors and plain values (`attention.define`). Where the library has one
clever form for all lengths, this has the formula of the paper, key by key where that is clearest.

`terms`       what an encoding and a call are here, and how roundings are let in
`visibility`  which keys each query attends to
`angles`      exact angles, by integers of any size
`spectrum`    frequencies of every scaling
`rotary`, `polar`, `grid_rotary`, `bias`, `grid_bias`, `score`, `path`, `between`, `mixture`, `weight`
              the encodings by place; `path` and `between` are those that read the tokens between a key and its query
`attention`   all of it together
"""
