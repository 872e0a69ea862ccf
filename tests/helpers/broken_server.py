"""A local HTTP server that breaks off, forgets ranges, lies and refuses, for test_download.py."""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server(ThreadingHTTPServer):
    """Serves files; how badly is set by its attributes."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.etags: dict[str, str] = {}
        self.ranges = True  # whether it knows ranges
        self.lengths = True  # whether it says how long a file is
        self.break_after: int | None = None  # bytes of an answer
        self.breaks = 10**9  # how many answers break off
        self.requests: list[str] = []  # the ranges that were asked for
        self.status: int | None = None
        self.stated: dict[str, str] = {}  # checksums that a redirect to the file states, by path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: object) -> None:
        """Nothing: the test's output is its own."""

    def do_GET(self) -> None:
        server, path = self.server, self.path
        if path in server.stated:
            self.send_response(302)
            self.send_header("Location", f"/moved{path}")
            self.send_header("X-Linked-Etag", f'"{server.stated[path]}"')
            self.end_headers()
            return
        path = path.removeprefix("/moved")
        server.requests.append(self.headers.get("Range", ""))
        if server.status or path not in server.files:
            self.send_error(server.status or 404)
            return
        data, etag, start = server.files[path], server.etags.get(path), 0
        asked = self.headers.get("Range")
        if asked and server.ranges and self.headers.get("If-Range") in (None, etag):
            start = int(asked.removeprefix("bytes=").rstrip("-"))
            if start >= len(data):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        else:
            self.send_response(200)
        if server.lengths:
            self.send_header("Content-Length", str(len(data) - start))
        if etag:
            self.send_header("ETag", etag)
        self.end_headers()
        body = data[start:]
        if server.break_after is not None and server.breaks > 0:
            server.breaks -= 1
            body = body[: server.break_after]
        self.wfile.write(body)
