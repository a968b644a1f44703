"""The programs of other code bases with one new line, with and without it."""
