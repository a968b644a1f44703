"""One changed line in programs of other authors, with and without it."""
