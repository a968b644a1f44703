"""How each program is trained and evaluated, in an environment of its own."""
