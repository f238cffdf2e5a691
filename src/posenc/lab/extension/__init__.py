"""Parts of the task extension: settings, methods, rows, model, search, measurement, table, words, report."""
