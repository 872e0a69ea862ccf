"""The commands, one file each, and their shared code. Only this package imports Hydra."""
