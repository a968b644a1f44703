"""Fisher8 under several optimisers and the whole network at equal processor time; angles."""
