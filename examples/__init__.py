"""Short complete programs; the documentation shows them and the tests run them."""
