"""Where a configuration comes from: a file or object, other programs' formats, headers of weight files.

load            config.json, a folder, a mapping or a transformers configuration, copied and bounded, and any format as
                Hugging Face's keys:  params_json: Meta's and Mistral's;  litgpt: its model_config.yaml;  gguf_metadata:
                llama.cpp's
hub             models of the Hugging Face Hub by name: from its cache, else config files alone are downloaded
pipeline        pipelines of diffusers: the transformers that their index names
gguf_file       metadata and frequency factors of a GGUF file;  tensor_files: headers of safetensors and torch files
presets         configurations of well-known checkpoints
"""
