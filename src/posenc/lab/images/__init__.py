"""Parts of the task images: settings, pictures, coordinates, model, tests, table, words, report."""
