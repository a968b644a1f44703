"""Recovery of every family beside tuned Adam."""
