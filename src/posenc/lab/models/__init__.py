"""The models that encodings are compared in."""
