"""Between the data: networks, posteriors and others on splits whose middle is missing."""
