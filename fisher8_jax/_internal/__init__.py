"""Shared by several subpackages, imported by no user: checks, numerics, trees, files."""
