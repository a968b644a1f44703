"""Leave-one-out in closed form beside refits and cross-validation."""
