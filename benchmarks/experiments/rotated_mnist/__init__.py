"""The angle of a rotated digit."""
