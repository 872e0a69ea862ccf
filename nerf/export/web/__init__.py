"""A trained run as one HTML file: bytes, a small network, and a WebGL 2 program that marches rays through them."""
