"""A WebSocket over HTTP/2 (RFC 8441), by h2 and by the framing of websockets: an extended CONNECT over mutual TLS, an echo of short and
long messages on two streams of one connection at once, and a clean close.

    h2_websocket.py HOST:PORT CA CERT KEY     one line for each thing that went well
"""

import socket
import ssl
import sys

import h2.config
import h2.connection
import h2.events
import h2.settings
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

MESSAGES = ["hello", "x" * 100_000]


class Connection:
    def __init__(self, place, ca, cert, key):
        self.host = place
        address, port = place.rsplit(":", 1)
        context = ssl.create_default_context(cafile=ca)
        context.load_cert_chain(cert, key)
        context.set_alpn_protocols(["h2"])
        self.socket = context.wrap_socket(socket.create_connection((address, int(port)), timeout=60), server_hostname=address)
        assert self.socket.selected_alpn_protocol() == "h2"
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.heads, self.data, self.ended = {}, {}, set()

    def flush(self):
        self.socket.sendall(self.h2.data_to_send())

    def turn(self):
        """Reads some, and notes what it was."""
        self.flush()
        for event in self.h2.receive_data(self.socket.recv(65_536)):
            if isinstance(event, h2.events.ResponseReceived):
                self.heads[event.stream_id] = dict(event.headers)
            elif isinstance(event, h2.events.DataReceived):
                self.data.setdefault(event.stream_id, bytearray()).extend(event.data)
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, (h2.events.StreamEnded, h2.events.StreamReset)):
                self.ended.add(event.stream_id)
        self.flush()

    def until(self, done):
        while not done():
            self.turn()

    def ask(self, method, path, *more, end):
        stream = self.h2.get_next_available_stream_id()
        head = [(":method", method), (":scheme", "https"), (":authority", self.host), (":path", path), *more]
        self.h2.send_headers(stream, head, end_stream=end)
        self.until(lambda: stream in self.heads)
        return stream

    def send(self, stream, data):
        while data:
            room = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size, len(data))
            if not room:
                self.turn()
                continue
            self.h2.send_data(stream, data[:room])
            data = data[room:]
        self.flush()


class WebSocket:
    def __init__(self, connection):
        self.connection = connection
        more = [(":protocol", "websocket"), ("sec-websocket-version", "13"), ("origin", "https://test")]
        self.stream = connection.ask("CONNECT", "/chat", *more, end=False)
        assert connection.heads[self.stream][":status"] == "200", connection.heads[self.stream]
        self.frames = ClientProtocol(parse_uri("wss://test/"), state=State.OPEN, max_size=None)

    def flush(self):
        self.connection.send(self.stream, b"".join(self.frames.data_to_send()))

    def frame(self):
        """The next frame."""
        while True:
            data = bytes(self.connection.data.pop(self.stream, b""))
            if data:
                self.frames.receive_data(data)
            if events := [event for event in self.frames.events_received() if isinstance(event, Frame)]:
                return events[0]
            self.connection.turn()


def main(place, *files):
    connection = Connection(place, *files)
    connection.until(lambda: connection.h2.remote_settings.get(h2.settings.SettingCodes.ENABLE_CONNECT_PROTOCOL) == 1)
    print("offered")
    sockets = [WebSocket(connection), WebSocket(connection)]
    print("opened")
    for message in MESSAGES:
        for websocket in sockets:
            websocket.frames.send_text(message.encode())
            websocket.flush()
        for websocket in sockets:
            frame = websocket.frame()
            assert (frame.opcode, bytes(frame.data)) == (Opcode.TEXT, message.encode()), frame.opcode
    print("echoed")
    for websocket in sockets:
        websocket.frames.send_close(1000, "done")
        websocket.flush()
        frame = websocket.frame()
        assert (frame.opcode, bytes(frame.data)) == (Opcode.CLOSE, b"\x03\xe8done"), frame
        connection.until(lambda: websocket.stream in connection.ended)
    print("closed")


main(*sys.argv[1:])
