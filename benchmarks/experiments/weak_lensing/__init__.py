"""Two cosmological parameters from maps of weak lensing."""
