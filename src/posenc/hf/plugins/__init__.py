"""Plug-ins that let vLLM and SGLang serve any fixed spectrum and layout, with exact angles.

rotation     the block of rope_parameters with rope type "posenc", and an engine's rotary class under it
vllm         entry point ``vllm.general_plugins``
sglang       entry point ``sglang.srt.plugins``
"""
