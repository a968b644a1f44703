"""Fixed damping of the whole network beside the Levenberg-Marquardt rule."""
