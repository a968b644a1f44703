"""What is changed in each program: one file a program, so that its lines can be counted."""
