"""Diagnostics: of the machine (`python -m nerf doctor`) and of a scene before training (`dry_run=true`)."""
