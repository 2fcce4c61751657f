"""The web server of Python's own library over TLS. It speaks HTTP/1.1, and says so when hands are shaken if asked to.

    http1_server.py CERT KEY [PROTOCOL]    prints its port, and serves until it is ended
"""

import http.server
import ssl
import sys


class Echo(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.send_header("x-version", self.request_version)
        self.end_headers()
        self.wfile.write(body)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
if sys.argv[3:]:
    context.set_alpn_protocols(sys.argv[3:])
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
