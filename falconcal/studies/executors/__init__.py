"""Who does the runs of a study: this process, worker processes, or a Ray cluster."""
