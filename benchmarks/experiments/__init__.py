"""One folder an experiment: plan (which cells), data, jobs (what a worker does), report."""
