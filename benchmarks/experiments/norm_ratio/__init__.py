"""How long the log-variance's part of a Fisher8 gradient should be beside the mean's."""
