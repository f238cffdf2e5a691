"""What the task `text` is made of: corpus, profiles, measuring, tables."""
