"""Meshes of a trained field, and their files."""
