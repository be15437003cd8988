"""A web server for one page on this machine, and for nobody else.

It hands out the bytes it was given, by exact name: there is no folder behind it to break out of.
Only GET and HEAD, only on the loopback address, only for a browser that asked for this address by
its own name, so that no other site's page can read from it.
"""

from __future__ import annotations

import errno
import ipaddress
import mimetypes
import os
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from mgmem.errors import UsageError

HOST = "127.0.0.1"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'"
)
"""What the page may load and do; index.html says the same for hosts that send no headers."""

_HEADERS = {
    "Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}
# Said here, because the system's own table may lack them or have them wrong.
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}
_PORTS_TRIED = 50
_LAST_PORT = 65_535


class Server(ThreadingHTTPServer):
    """Serves ``files`` (name to content, such as "js/main.js") at http://127.0.0.1:port/."""

    daemon_threads = True
    # Windows would let two servers share a port; elsewhere this only speeds up a restart.
    allow_reuse_address = os.name != "nt"

    def __init__(self, files: Mapping[str, bytes], port: int, host: str = HOST) -> None:
        if not ipaddress.ip_address(host).is_loopback:
            raise UsageError(f"{host}: the page is served to this machine only, as {HOST}")
        self.files = dict(files)
        super().__init__((host, port), _Handler)
        own = self.server_port
        self.names = {f"{name}:{own}" for name in (HOST, "localhost", "[::1]")}

    @property
    def address(self) -> str:
        """What to open in a browser."""
        return f"http://{HOST}:{self.server_port}/"


def open_server(files: Mapping[str, bytes], port: int) -> Server:
    """A server on ``port``, or on the next one that is free."""
    if not 0 <= port <= _LAST_PORT:
        raise UsageError(f"port {port}: give one from 0 (any) to {_LAST_PORT}")
    last: OSError | None = None
    for candidate in range(port, min(port + _PORTS_TRIED, _LAST_PORT + 1)):
        try:
            return Server(files, candidate)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            last = error
    reason = last.strerror if last is not None else "none to try"
    raise UsageError(f"no free port from {port} on ({reason}): give another with --port")


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server
    server_version, sys_version = "mgmem", ""
    timeout = 10  # seconds for a request to arrive whole

    def do_GET(self) -> None:
        """Hand out a file."""
        self._reply(with_content=True)

    def do_HEAD(self) -> None:
        """Say what a GET would hand out."""
        self._reply(with_content=False)

    def _reply(self, with_content: bool) -> None:
        refusal = self._refusal()
        if refusal is not None:
            self.send_error(*refusal)
            return
        path = self.path.partition("?")[0]
        name = "index.html" if path == "/" else path.removeprefix("/")
        content = self.server.files.get(name) if path.startswith("/") else None
        if content is None:
            self.send_error(HTTPStatus.NOT_FOUND, "No such file")
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", content_type(name))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if with_content:
            self.wfile.write(content)

    def _refusal(self) -> tuple[HTTPStatus, str] | None:
        """Why not: a page of another site would come with its own Host or Origin."""
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or hosts[0].lower() not in self.server.names:
            return HTTPStatus.FORBIDDEN, "Another host"
        for origin in self.headers.get_all("Origin") or []:
            parts = urlsplit(origin)
            if parts.scheme != "http" or parts.netloc.lower() not in self.server.names:
                return HTTPStatus.FORBIDDEN, "Another origin"
        return None

    def end_headers(self) -> None:
        """Every reply, errors too, carries the same precautions."""
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing: what a visitor asks for is of no interest."""


def content_type(name: str) -> str:
    """The media type of a file."""
    suffix = os.path.splitext(name)[1]
    return _TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
