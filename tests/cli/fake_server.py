# SPDX-License-Identifier: MIT
"""A server that checks credentials, for the suite access: fake_server.py LOG [--unix PATH] [--tls CERT [CLIENT_CA]].

Prints its URL. Writes a line for each request to LOG: method, path, and the Authorization; and a line for each
connection to LOG.connections. It knows the token of
DIRECTORY_OF_LOG/token (all rights), the token "look" (GET only), every certificate that CLIENT_CA has signed, and the
user of a Unix socket.
"""
import http.server
import json
import os
import socket
import ssl
import struct
import sys

PROBLEMS = {401: "unauthenticated", 403: "forbidden", 404: "unknown_path"}
GRANT = {"state": "ACQUIRED", "yours": True, "ttl_ms": 60000, "expires_in_ms": 60000}
PERMIT = {"count": 1, "token": 57, "slots": [1]}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def principal(self):
        """Returns name and rights; no name: no valid credential."""
        given = self.headers.get("Authorization", "")
        if given:
            with open(os.path.join(os.path.dirname(log.name), "token")) as file:
                if given == "Bearer " + file.read().strip():
                    return "shop-checkout", ["look", "use"]
            return ("reader", ["look"]) if given == "Bearer look" else (None, [])
        certificate = self.connection.getpeercert() if hasattr(self.connection, "getpeercert") else None
        if certificate:
            return dict(pair[0] for pair in certificate["subject"])["commonName"], ["look"]
        if self.connection.family == socket.AF_UNIX:
            peer = self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            return "user-%d" % struct.unpack("3i", peer)[1], ["look"]
        return None, []

    def answer(self, status, body):
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def refuse(self, status, detail):
        word = PROBLEMS[status]
        self.answer(status, {"type": "/problems/" + word, "title": word, "status": status, "detail": detail})

    def grant(self, body):
        """The grant of an acquire; a wrong one for the semaphores "another-key" and "no-token"."""
        semaphore = body["permits"][0]["semaphore"]
        permit = dict(PERMIT, semaphore=semaphore)
        if semaphore == "no-token":
            del permit["token"]
        key = "somebody-else" if semaphore == "another-key" else body["external_id"]
        return dict(GRANT, external_id=key, permits=[permit])

    def handle_request(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        log.write("%s %s %s\n" % (self.command, self.path, self.headers.get("Authorization", "-")))
        log.flush()
        name, rights = self.principal()
        if self.path == "/open/v1/whoami":
            self.answer(200, {"principal": None, "rights": ["look", "use"], "semaphores": ["*"], "until": None})
        elif not name:
            self.refuse(401, "no valid credential")
        elif self.command != "GET" and "use" not in rights:
            self.refuse(403, "needs the right use on s")
        elif self.path == "/v1/whoami":
            self.answer(200, {"principal": name, "rights": rights, "semaphores": ["shop:*", "hall"],
                              "quotas": {}, "until": "2027-01-31" if "use" in rights else None})
        elif self.path == "/v1/requests":
            self.answer(200, self.grant(json.loads(body)))
        elif self.path.startswith("/v1/requests/"):
            key = self.path.split("/")[3].split("?")[0]
            self.answer(200, dict(GRANT, external_id=key, state="RELEASED", permits=[dict(PERMIT, semaphore="s")]))
        elif self.path.startswith("/v1/semaphores?"):
            self.answer(200, {"semaphores": [{"name": "s"}], "next": "s"})  # the same page for ever
        else:
            self.refuse(404, "unknown")

    do_GET = do_PUT = do_POST = do_DELETE = handle_request

    def log_message(self, *arguments):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, path):
        self.address_family = socket.AF_UNIX if path else socket.AF_INET
        super().__init__(path or ("127.0.0.1", 0), Handler)

    def server_bind(self):
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def get_request(self):
        connection, address = self.socket.accept()
        connections.write("%s\n" % (address or unix,))
        connections.flush()
        return connection, address or ("unix", 0)

    def handle_error(self, request, client_address):
        pass  # a client that refuses the certificate

    def shutdown_request(self, request):
        """Reads to the client's end: unread input would reset the connection, and an alert of TLS would be lost."""
        with socket.socket(fileno=os.dup(request.fileno())) as plain:
            try:
                plain.settimeout(10)
                plain.shutdown(socket.SHUT_WR)
                while plain.recv(65536):
                    pass
            except OSError:
                pass  # the client has reset the connection
        self.close_request(request)


arguments = sys.argv[1:]
log = open(arguments.pop(0), "a")
connections = open(log.name + ".connections", "a")
unix = arguments[1] if arguments[:1] == ["--unix"] else None
server = Server(unix)
scheme = "http"
if arguments[:1] == ["--tls"]:
    scheme = "https"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(arguments[1])
    if arguments[2:]:
        context.load_verify_locations(arguments[2])
        context.verify_mode = ssl.CERT_OPTIONAL
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
print("unix:" + unix if unix else "%s://localhost:%d" % (scheme, server.server_address[1]), flush=True)
server.serve_forever()
