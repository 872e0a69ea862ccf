"""The viewer: a trained run, or one that trains, in a browser. Only the server, the page and its parts import viser."""
