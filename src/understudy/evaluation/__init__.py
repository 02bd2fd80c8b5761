"""How good synthetic rows are, and what their claim means: scores and a report."""
