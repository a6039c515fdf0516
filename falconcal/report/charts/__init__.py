"""Charts of the report, one file per kind."""
