"""An app for a page in a browser: see page.js, which asks for all of this.

    app.py FOLDER   prints its port, and then what the page says, one line each; serves until standard input ends
"""

import asyncio
import email
import gzip
import hashlib
import json
import pathlib
import socket
import sys

import uvicorn

FILES = {"/page": ("page.html", b"text/html; charset=utf-8"), "/page.js": ("page.js", b"text/javascript")}
PIECES = 4
TAG = b'"one"'


class Exchange:
    """One request and its answer."""

    def __init__(self, scope, receive, send):
        self.method, self.query = scope["method"], scope["query_string"]
        self.headers = dict(scope["headers"])
        self.receive, self.send = receive, send

    async def body(self):
        body, more = bytearray(), True
        while more:
            message = await self.receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        return bytes(body)

    async def begin(self, status=200, *headers):
        own = [(b"epoch", self.headers.get(b"bellwether-epoch", b"0"))]
        await self.send({"type": "http.response.start", "status": status, "headers": own + list(headers)})

    async def piece(self, piece, more=True):
        await self.send({"type": "http.response.body", "body": piece, "more_body": more})

    async def answer(self, body=b"", status=200, *headers):
        await self.begin(status, (b"content-length", b"%d" % len(body)), *headers)
        await self.piece(body, more=False)


class App:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        # What the page wants next of the stream that it reads.
        self.turns = asyncio.Queue()
        # How WebSockets were closed.
        self.closed = asyncio.Queue()
        self.checks = []

    async def __call__(self, scope, receive, send):
        if scope["type"] == "websocket":
            return await self.websocket(scope, receive, send)
        exchange = Exchange(scope, receive, send)
        if scope["path"] in FILES:
            name, kind = FILES[scope["path"]]
            return await exchange.answer((self.folder / name).read_bytes(), 200, (b"content-type", kind))
        act = getattr(self, "on" + scope["path"].replace("/", "_"), None)
        return await (act(exchange) if act else exchange.answer(status=404))

    async def on_say(self, exchange):
        print((await exchange.body()).decode(), flush=True)
        await exchange.answer()

    async def on_echo(self, exchange):
        about = [(b"x-method", exchange.method.encode()), (b"x-query", exchange.query)]
        await exchange.answer(await exchange.body(), 200, *about)

    async def on_form(self, exchange):
        head = b"Content-Type: " + exchange.headers[b"content-type"] + b"\r\n\r\n"
        form = {}
        for part in email.message_from_bytes(head + await exchange.body()).get_payload():
            content = part.get_payload(decode=True)
            name = part.get_param("name", header="content-disposition")
            form[name] = [part.get_filename(), len(content), hashlib.sha256(content).hexdigest()]
        await exchange.answer(json.dumps(form).encode(), 200, (b"content-type", b"application/json"))

    async def on_turn(self, exchange):
        await self.turns.put(exchange.query)
        await exchange.answer()

    async def on_stream(self, exchange):
        """Sends nothing before the page has all that came before."""
        self.turns = turns = asyncio.Queue()
        await exchange.begin(200, (b"content-type", b"application/octet-stream"))
        for number in range(PIECES):
            await exchange.piece(b"piece %d" % number)
            await turns.get()
        await exchange.piece(b"", more=False)

    async def on_packed(self, exchange):
        whole = b"sheep " * 1000
        if exchange.headers.get(b"range") == b"bytes=6-10":
            return await exchange.answer(whole[6:11], 206, (b"content-range", b"bytes 6-10/%d" % len(whole)))
        return await exchange.answer(gzip.compress(whole), 200, (b"content-encoding", b"gzip"))

    async def on_broken(self, exchange):
        """Ends the connection in the middle of the body, whose end is told by a length or by a last piece, when the page has its head."""
        self.turns = turns = asyncio.Queue()
        await exchange.begin(200, *([(b"content-length", b"1000")] if exchange.query == b"length" else []))
        await exchange.piece(b"half of")
        await turns.get()
        raise ConnectionAbortedError

    async def on_events(self, exchange):
        """Goes on behind the last event that the page has, at each turn by one, until a turn is the end."""
        self.turns = turns = asyncio.Queue()
        last = int(exchange.headers.get(b"last-event-id", b"0"))
        number, turn = last, b""
        await exchange.begin(200, (b"content-type", b"text/event-stream"), (b"cache-control", b"no-store"))
        while turn != b"end":
            number += 1
            about = json.dumps({"after": last, "epoch": int(exchange.headers[b"bellwether-epoch"])})
            await exchange.piece(f"retry: 50\nid: {number}\ndata: {about}\n\n".encode())
            turn = await turns.get()
        await exchange.piece(b"", more=False)

    async def on_cookies(self, exchange):
        cookies = [b"first=1; Path=/", b"second=2; Path=/; Expires=Fri, 01 Jan 2049 00:00:00 GMT", b"hidden=3; Path=/; HttpOnly"]
        await exchange.answer(b"", 200, *[(b"set-cookie", cookie) for cookie in cookies])

    async def on_crumbs(self, exchange):
        await exchange.answer(exchange.headers.get(b"cookie", b""))

    async def on_redirect(self, exchange):
        await exchange.body()
        await exchange.answer(b"", int(exchange.query), (b"location", b"/echo?landed"))

    async def on_cached(self, exchange):
        asked = exchange.headers.get(b"if-none-match", b"")
        self.checks.append(asked.decode())
        tagged = [(b"etag", TAG), (b"cache-control", b"no-cache")]
        if asked == TAG:
            await exchange.begin(304, *tagged)
            await exchange.piece(b"", more=False)
        else:
            await exchange.answer(b"worth keeping", 200, *tagged)

    async def on_checks(self, exchange):
        await exchange.answer(json.dumps(self.checks).encode())

    async def on_closed(self, exchange):
        await exchange.answer(b"%d" % await self.closed.get())

    async def websocket(self, scope, receive, send):
        await receive()
        headers = dict(scope["headers"])
        await send({"type": "websocket.accept", "subprotocol": (scope["subprotocols"] or [None])[0]})
        await send({"type": "websocket.send", "text": headers[b"bellwether-epoch"].decode()})
        while (message := await receive())["type"] == "websocket.receive":
            if message.get("text") == "close":
                await send({"type": "websocket.close", "code": 4001, "reason": "as asked"})
                return
            await send({"type": "websocket.send", "text": message.get("text"), "bytes": message.get("bytes")})
        await self.closed.put(message["code"])


async def main():
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(App(sys.argv[1]), lifespan="off", log_config=None, ws="websockets-sansio", ws_ping_interval=None)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    serving.cancel()


asyncio.run(main())
