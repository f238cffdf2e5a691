"""The library against a definition of its own: random calls, and bad ones. Start with `test_attention`."""
