"""Reading and writing files: the one place for each format."""
