"""Where a configuration comes from: a file or object, other programs' formats, headers of weight files.

load            config.json, a folder, a mapping, a transformers configuration, a model of the Hugging Face Hub or a
                pipeline of diffusers, and any format as Hugging Face's keys:  other_programs: params.json, litgpt;
                gguf_metadata: llama.cpp's;  translated: what they give
config_files    the files next to a config, edited as text and written to a new folder or in place
gguf_file       metadata and frequency factors of a GGUF file;  tensor_files: headers of safetensors and torch files
presets         configurations of well-known checkpoints
"""
