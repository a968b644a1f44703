"""The disparity of every pixel of a stereo pair."""
