"""Where a scene is: its box and parameterization, its occupied cells, and what the cameras say of both."""
