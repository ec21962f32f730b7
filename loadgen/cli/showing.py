"""A page shown in the user's browser, from loopback."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LOOPBACK = "127.0.0.1"


def show(page: str, say: Callable[[str], None]) -> None:
    """Serve `page` at a free port, open it where there is a screen, and stay until Ctrl-C."""
    with server(page) as serving:
        url = f"http://{LOOPBACK}:{serving.server_address[1]}/"
        say(f"{url} shows the page until Ctrl-C")
        if _has_screen():
            webbrowser.open(url)
        with suppress(KeyboardInterrupt):
            serving.serve_forever()


def server(page: str) -> ThreadingHTTPServer:
    """Answers `/` with `page`, to whoever calls it by its own name: no other site may read it."""
    content = page.encode()

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host = self.headers.get("Host", "").rpartition(":")[0]
            if host not in (LOOPBACK, "localhost") or self.path != "/":
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Nothing to say of a page that was read."""

    return ThreadingHTTPServer((LOOPBACK, 0), Page)


def _has_screen() -> bool:
    """Whether a browser has somewhere to show itself; else one for terminals would take ours."""
    return sys.platform in ("darwin", "win32") or any(
        os.environ.get(d) for d in ("DISPLAY", "WAYLAND_DISPLAY")
    )
