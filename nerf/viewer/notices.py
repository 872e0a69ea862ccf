"""Errors in words, in the page of the client whose request failed."""

import contextlib
from collections.abc import Iterator

import viser

from nerf.errors import UserError

SECONDS = 20.0  # for which a message stays


@contextlib.contextmanager
def errors_told(client: viser.ClientHandle) -> Iterator[None]:
    """Shows a UserError to the client, which ends what is inside."""
    try:
        yield
    except UserError as error:
        client.add_notification("not done", str(error), color="red", auto_close_seconds=SECONDS)
