"""Rotations handed to engines: flags and plugins of vLLM and SGLang, with exact angles.

flags            command-line arguments that make an engine serve a model under a rotation
engines          what engines were measured to compute wrong (engine_table.json)
plugin_rotation  the block of rope_parameters with rope type "posenc", and an engine's rotary class under it
vllm_plugin      entry point ``vllm.general_plugins``
sglang_plugin    entry point ``sglang.srt.plugins``
"""
