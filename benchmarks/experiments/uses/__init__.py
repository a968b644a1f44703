"""The estimator in use: intervals that are guaranteed, labels that it asks for, rows that come."""
