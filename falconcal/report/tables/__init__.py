"""Tables of the report, in the terminal, Markdown, HTML, CSV, JSON and LaTeX."""
