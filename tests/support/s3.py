"""A mock of S3 on the loopback, and servers that fail in the ways of real ones."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

BUCKET = "trips-bucket"
KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMIsecret"

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
}
"""Variables that, together with the endpoint, open a table there without storage_options."""


@contextmanager
def mock_server() -> Iterator[str]:
    """Run moto's S3, with one bucket, and yield its endpoint."""
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # otherwise, it prints every request
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        endpoint = "http://{}:{}".format(*server.get_host_and_port())
        client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
        )
        client.create_bucket(Bucket=BUCKET)
        client.close()
        yield endpoint
    finally:
        server.stop()


@contextmanager
def answering(status: int, body: str) -> Iterator[str]:
    """Run a server that gives the same response to every request, and yield its endpoint."""

    class Handler(BaseHTTPRequestHandler):
        answer: ClassVar[bytes] = body.encode()

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(status)
            self.send_header("content-length", str(len(self.answer)))
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else self.answer)

        do_PUT = do_HEAD = do_POST = do_DELETE = do_GET

        def log_message(self, *_: Any) -> None:
            return

    with _served(Handler) as address:
        yield address


@contextmanager
def losing_replies(
    endpoint: str,
    method: str,
    part: str,
    status: int = 500,
    told: str = "",
    *,
    is_made: bool = True,
) -> Iterator[tuple[str, list[str]]]:
    """Run a server before ``endpoint``. Yield its own endpoint, and the paths of the requests with
    ``method`` and ``part`` whose first reply was ``status`` and ``told``.

    ``is_made``: whether such a request reaches ``endpoint`` nevertheless.
    """
    host, lost = endpoint.removeprefix("http://"), list[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            is_lost = self.command == method and part in self.path and self.path not in lost
            if is_made or not is_lost:
                upstream = HTTPConnection(host)
                upstream.request(self.command, self.path, body, dict(self.headers))
                with upstream.getresponse() as answer:
                    data = answer.read()
                upstream.close()
            if is_lost:
                lost.append(self.path)
                self.send_response(status)
                self.send_header("content-length", str(len(body := told.encode())))
                self.end_headers()
                self.wfile.write(body)
                return
            self.send_response(answer.status)
            for name in (
                "content-type",
                "etag",
                "last-modified",
                "content-range",
                "content-length",
            ):
                if name in answer.headers:
                    self.send_header(name, answer.headers[name])
            self.end_headers()
            self.wfile.write(data)

        do_PUT = do_HEAD = do_POST = do_DELETE = do_GET

        def log_message(self, *_: Any) -> None:
            return

    with _served(Handler) as address:
        yield address, lost


@contextmanager
def _served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def silent() -> Iterator[str]:
    """Yield the endpoint of a server that accepts connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def closed_endpoint() -> str:
    """Return an endpoint at which no server listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def fault(code: str, message: str) -> str:
    """Return the body of an error as S3, Azure and GCS write it."""
    return (
        '<?xml version="1.0"'
        f' encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>'
    )
