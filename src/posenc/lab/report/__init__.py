"""What a run leaves for its readers: pages, tables, ranks and claims; and runs read again and merged."""
