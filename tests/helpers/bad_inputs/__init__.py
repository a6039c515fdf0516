"""Bad inputs over the whole surface, generated from tables, each with its exit code and words."""
