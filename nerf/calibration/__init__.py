"""Camera calibration: learned poses, learned exposure, alignment of poses."""
