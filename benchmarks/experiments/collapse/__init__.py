"""Does any training end at a constant? A grid of sets, activations, sizes and budgets."""
