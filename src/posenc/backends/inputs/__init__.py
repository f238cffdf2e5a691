"""What a backend receives: `attention_call` validates the arguments of `attention` and writes them down once."""
