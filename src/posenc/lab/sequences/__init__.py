"""Generated sequences: tasks with a right answer, asked at the trained length and at many times that."""
