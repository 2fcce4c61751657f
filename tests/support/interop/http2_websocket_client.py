"""Opens a WebSocket over HTTP/2 (RFC 8441) at HOST:PORT, over TLS where the files of a CA, a certificate and its key follow; prints `open`
once it has had an echo of compressed and long messages, and then the code and reason with which it was closed. Before that it asks
for one at /refused, and expects to be."""

import socket
import ssl
import sys

import h2.config
import h2.connection
import h2.events
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, TextMessage
from wsproto.extensions import PerMessageDeflate


class Client:
    def __init__(self, place, *files):
        host, port = place.rsplit(":", 1)
        self.place, self.scheme = place, "https" if files else "http"
        self.socket = socket.create_connection((host, int(port)))
        if files:
            context = ssl.create_default_context(cafile=files[0])
            context.load_cert_chain(files[1], files[2])
            context.set_alpn_protocols(["h2"])
            self.socket = context.wrap_socket(self.socket, server_hostname=host)
        self.http = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.heard = []
        self.http.initiate_connection()
        self.flush()

    def flush(self):
        self.socket.sendall(self.http.data_to_send())

    def hear(self):
        data = self.socket.recv(65536)
        assert data, "the connection ended"
        for event in self.http.receive_data(data):
            if isinstance(event, h2.events.DataReceived):
                self.http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            self.heard.append(event)
        self.flush()

    def next(self, kinds, stream):
        """The next event of these kinds on the stream."""
        while True:
            for event in self.heard:
                if isinstance(event, kinds) and event.stream_id == stream:
                    self.heard.remove(event)
                    return event
            self.hear()

    def connect(self, path):
        """The stream, its status, and what is to read and write it."""
        stream = self.http.get_next_available_stream_id()
        fields = [(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", self.scheme), (":path", path), (":authority", self.place)]
        deflate = PerMessageDeflate()
        fields += [("sec-websocket-version", "13"), ("sec-websocket-extensions", "permessage-deflate; " + deflate.offer())]
        self.http.send_headers(stream, fields)
        self.flush()
        fields = dict(self.next(h2.events.ResponseReceived, stream).headers)
        if "sec-websocket-extensions" in fields:
            deflate.finalize(fields["sec-websocket-extensions"])
        return stream, fields[":status"], Connection(ConnectionType.CLIENT, [deflate] if deflate.enabled() else [])

    def send(self, stream, data):
        while data:
            room = min(self.http.local_flow_control_window(stream), self.http.max_outbound_frame_size)
            if room:
                self.http.send_data(stream, data[:room])
                self.flush()
                data = data[room:]
            else:
                self.hear()

    def data(self, stream):
        """Each piece until the end."""
        while isinstance(event := self.next((h2.events.DataReceived, h2.events.StreamEnded, h2.events.StreamReset), stream), h2.events.DataReceived):
            yield event.data


def messages(client, stream, websocket):
    """Each message whole, and the Close frame."""
    parts = []
    for data in client.data(stream):
        websocket.receive_data(data)
        for event in websocket.events():
            if isinstance(event, CloseConnection):
                yield event
                return
            parts.append(event.data)
            if event.message_finished:
                yield parts[0][:0].join(parts)
                parts = []


client = Client(*sys.argv[1:])
while not client.http.remote_settings.enable_connect_protocol:
    client.hear()
stream, status, _ = client.connect("/refused")
assert status == "403", status
assert b"".join(client.data(stream)) == b"not you"
stream, status, websocket = client.connect("/chat")
assert status == "200", status
heard = messages(client, stream, websocket)
for message in (TextMessage("hello"), TextMessage("x" * 60_000), BytesMessage(b"\x88" * 50_000)):
    client.send(stream, websocket.send(message))
    assert next(heard) == message.data
print("open", flush=True)
closed = next(heard)
client.send(stream, websocket.send(closed.response()))
print(closed.code, closed.reason, flush=True)
