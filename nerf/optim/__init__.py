"""Adam on grids and weights, and the clock of a run, from which every schedule reads."""
