"""Pages in HTML: the report, its explorer, and the page of one file of predictions."""
