"""Who may open a socket of the viewer: its own pages, and programs that are no browsers.

A browser lets any page of any site open a socket to this machine, and says which site it is (Origin, RFC 6455 10.2).
Without a look at that, a site that somebody visits could steer a run, and save files in its folder.
"""

import contextlib
import http
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import websockets.asyncio.server

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def allowed(origin: str | None, host: str | None, loopback: bool) -> bool:
    """Whether a socket may be opened by a page of origin, which asked for it under the name host.

    origin, host: the headers; a program that is no browser sends no origin. loopback: the server listens to this
    machine alone, and has to be asked for by a name of this machine: a site may give it its own name (DNS rebinding).
    """
    if origin is None:
        return True
    page, asked = urlsplit(origin), urlsplit(f"//{host or ''}")
    return bool(host) and page.netloc == asked.netloc and (not loopback or asked.hostname in LOOPBACK)


@contextlib.contextmanager
def own_pages_only(host: str) -> Iterator[None]:
    """A viser server that is started here refuses the sockets of other sites; viser has no setting for it."""
    serve, loopback = websockets.asyncio.server.serve, host in LOOPBACK

    def guarded(*arguments: Any, process_request: Callable | None = None, **settings: Any) -> Any:
        def look(connection: Any, request: Any) -> Any:
            headers = request.headers
            opens = headers.get("Upgrade", "").lower() == "websocket"
            if opens and not allowed(headers.get("Origin"), headers.get("Host"), loopback):
                return connection.respond(http.HTTPStatus.FORBIDDEN, "only pages of this viewer may connect\n")
            return None if process_request is None else process_request(connection, request)

        return serve(*arguments, process_request=look, **settings)

    websockets.asyncio.server.serve = guarded
    try:
        yield
    finally:
        websockets.asyncio.server.serve = serve
