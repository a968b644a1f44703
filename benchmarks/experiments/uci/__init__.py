"""The UCI tables of the paper."""
