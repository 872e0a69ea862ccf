"""One scene on several processes: each owns a part of the grid, and rays are put together from what the parts give."""
