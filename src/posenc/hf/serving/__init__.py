"""Rotations handed to engines: flags and plugins of vLLM and SGLang, with exact angles.

lines            the one renderer, with overrides of a config; engines/ and trainers/ have a file for each program
table            what engines were measured to compute (engine_table.json)
plugin_block     the block of rope_parameters with rope type "posenc"
plugins          an engine's rotary class under it, and the entry points of vLLM and SGLang
"""
