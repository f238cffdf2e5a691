"""Records in, pages out; it knows metrics and never the code of a task."""
