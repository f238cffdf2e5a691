"""A configuration's rotation: located, validated, parsed into `RopeConfig`, and written back.

text_config        where a configuration describes its text model; lengths, widths, overrides of single layers
block_schema       which keys a block of ``rope_parameters`` may have, which values, and what is wrong with one
rope_keys          which values a configuration gives, and where each of them stands, as `RopeBlock`
rotation           `RoPE` or `MRoPE`: compared, scaled by factors
parse              from checked blocks to rotations and back;  rope_config: `read_rope` and `RopeConfig`, for users
write              the one writer: values where the old ones stood, or keys of version 4 or 5;  convert: front doors
layers             the kind, window, rotation and scale of each layer;  facts: `ModelFacts`, each part read once
non_rotary         other encodings: of models without rotation, of posenc's own;  encoding_spec: lists of encodings
"""
