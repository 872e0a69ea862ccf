"""The viewer: a trained run, or one that trains, in a browser. Only page.py and server.py import viser."""
