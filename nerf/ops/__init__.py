"""The seam between the pipeline and the code that computes: the same operations twice, chosen once (backend.py)."""
