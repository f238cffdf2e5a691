"""posenc export: models that the lab has trained, as folders that transformers reads."""
