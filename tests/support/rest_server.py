"""A server for tests that answers requests with JSON and records their errors."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class RestServer(ThreadingHTTPServer):
    """A server with tables. ``answer``: response to all requests, as arguments of
    RestHandler.reply, or None.
    """

    def __init__(self, handler):
        super().__init__(("127.0.0.1", 0), handler)
        self.tables, self.problems, self.answer = {}, [], None
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self):
        self.shutdown()
        self.server_close()


class RestHandler(BaseHTTPRequestHandler):
    """Subclasses answer in ``handle_request``, which gets the body of a POST or None."""

    def log_message(self, *_):
        pass

    def reply(self, status, answer, **headers):
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.handle_or_answer(None)

    def do_POST(self):
        self.handle_or_answer(self.rfile.read(int(self.headers["Content-Length"])))

    def handle_or_answer(self, body):
        if self.server.answer is not None:
            status, answer, *headers = self.server.answer
            return self.reply(status, answer, **dict(headers))
        return self.handle_request(body)
