"""Fisher8 under several optimisers and the natural gradient at equal processor time; angles."""
