"""Rotations handed to engines: flags and plugins of vLLM and SGLang, with exact angles.

flags            the words of a command line that make an engine serve a model under a rotation
engine_table     what engines were measured to compute wrong (engine_table.json)
plugin_rotation  the block of rope_parameters with rope type "posenc", and an engine's rotary class under it
vllm_plugin      entry point ``vllm.general_plugins``
sglang_plugin    entry point ``sglang.srt.plugins``
"""
