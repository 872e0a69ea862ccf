"""A trained field as flat Gaussians in the file format of 3D Gaussian Splatting."""
