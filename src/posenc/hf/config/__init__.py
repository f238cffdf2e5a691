"""A configuration's rotation: located, validated, read into `RopeConfig`, and written back.

text_config   where a configuration describes its text model; lengths, widths, single layers; other encodings
rope_keys     which keys a block may have, which values a configuration gives, where each stands, what is wrong
rotation      from checked blocks to `RoPE` or `MRoPE`; compared, built
layers        the kind, window, rotation, temperature and scale of each layer;  facts: `ModelFacts`, all of it
rope_config   `read_rope` and `RopeConfig`, for users
write         the one writer: values where the old ones stood, or keys of version 4 or 5;  convert: front doors
encoding_spec the encodings of a model of posenc
"""
