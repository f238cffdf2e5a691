"""The guide: a site of Markdown pages, written by hand and made from the catalogue, that opens from disk."""
