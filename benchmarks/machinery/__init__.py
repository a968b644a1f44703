"""What all experiments share; knows none of them."""
