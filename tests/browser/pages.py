# SPDX-License-Identifier: MIT
"""The servers of the suite browser: pages.py PERMITD_PORT DIRECTORY.

pages   serves the page, and writes the report of each page to DIRECTORY/report.NAME.
relay   passes requests on to permitd as they are, and writes a line of JSON for each to DIRECTORY/requests.
rebind  127.0.0.2 at the port of permitd: serves the page, and is a relay from the request for /rebound to the report, as if
        the name of the page then had the address of permitd.

DIRECTORY/gullible: if this file exists, both relays hide from permitd which page sends the request, and under which host
name. Prints the ports of pages and of the relay.
"""
import http.server
import json
import os
import socket
import sys
import threading
import urllib.parse

HIDDEN = ("host", "origin", "sec-fetch-site")
HERE = os.path.dirname(os.path.abspath(__file__))
PERMITD, DIRECTORY = int(sys.argv[1]), sys.argv[2]
writing = threading.Lock()


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    rebound = False


class Handler(http.server.BaseHTTPRequestHandler):
    """HTTP/1.0: every connection has one request."""

    def log_message(self, *_):
        pass

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def __getattr__(self, name):
        if name.startswith("do_"):  # every method
            return self.handle_request
        raise AttributeError(name)


class Relay(Handler):
    def handle_request(self):
        gullible = os.path.exists(os.path.join(DIRECTORY, "gullible"))
        head = [self.requestline, "Connection: close"]
        for name, value in self.headers.items():
            if name.lower() != "connection" and not (gullible and name.lower() in HIDDEN):
                head.append("%s: %s" % (name, value))
        if gullible:
            head.append("Host: 127.0.0.1:%d" % PERMITD)
        answer = self.ask_permitd("\r\n".join(head + ["", ""]).encode("latin-1") + self.body())
        line = {"method": self.command, "path": self.path, "status": int(answer[9:12] or 0),
                "shared": b"access-control-" in answer.split(b"\r\n\r\n")[0].lower()}
        for name in ("Host", "Origin", "Sec-Fetch-Site", "Sec-Fetch-Mode", "Sec-Fetch-Dest", "Content-Type"):
            line[name.lower()] = self.headers.get(name)
        with writing, open(os.path.join(DIRECTORY, "requests"), "a") as file:
            file.write(json.dumps(line) + "\n")
        self.wfile.write(answer)

    def ask_permitd(self, request):
        answer = b""
        with socket.create_connection(("127.0.0.1", PERMITD)) as permitd:
            permitd.sendall(request)
            while part := permitd.recv(65536):
                answer += part
        return answer


class Pages(Handler):
    def handle_request(self):
        url = urllib.parse.urlsplit(self.path)
        content = self.body()
        if url.path == "/redirect":
            return self.answer(307, location=url.query)
        if url.path == "/report":
            name = os.path.join(DIRECTORY, "report." + os.path.basename(url.query))
            with open(name + ".new", "wb") as file:
                file.write(content)
            os.rename(name + ".new", name)
            servers[-1].rebound = False
            return self.answer(204)
        if url.path in ("/page.html", "/page.js"):
            with open(HERE + url.path, "rb") as file:
                return self.answer(200, file.read(), "text/html" if url.path.endswith("html") else "text/javascript")
        if url.path == "/targets":
            with open(os.path.join(DIRECTORY, "targets"), "rb") as file:
                return self.answer(200, file.read(), "application/json")
        self.answer(404)

    def answer(self, status, content=b"", kind=None, location=None):
        self.send_response(status)
        if location:
            self.send_header("Location", location)
        if kind:
            self.send_header("Content-Type", kind)
        self.send_header("Access-Control-Allow-Origin", "*")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class Rebind(Pages, Relay):
    def handle_request(self):
        if self.server.rebound:
            return Relay.handle_request(self)
        if self.path == "/rebound":
            self.server.rebound = True
            return self.answer(204)
        return Pages.handle_request(self)


servers = [Server(("127.0.0.1", 0), Pages), Server(("127.0.0.1", 0), Relay), Server(("127.0.0.2", PERMITD), Rebind)]
for server in servers:
    threading.Thread(target=server.serve_forever).start()
print(servers[0].server_port, servers[1].server_port, flush=True)
