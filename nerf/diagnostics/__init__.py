"""What is wrong with a machine or a capture: `python -m nerf doctor`, and `dry_run=true` of a training."""
