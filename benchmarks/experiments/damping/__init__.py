"""Fixed damping of the natural gradient beside the Levenberg-Marquardt rule."""
