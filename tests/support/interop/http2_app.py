"""An app by Hypercorn that gives back what it is told over WebSocket, and prints over which version of HTTP each came, and when it is
closed (Hypercorn does not say with which code); a request gets 200, and a WebSocket at /refused 403 with a body. Its first line is its port; with the files of a
certificate and its key it is behind TLS. It serves until standard input ends."""

import asyncio
import socket
import sys

from hypercorn.asyncio import serve
from hypercorn.config import Config


async def app(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"over HTTP/" + scope["http_version"].encode()})
    elif scope["type"] == "websocket":
        await receive()
        if scope["path"] == "/refused":
            await send({"type": "websocket.http.response.start", "status": 403, "headers": []})
            await send({"type": "websocket.http.response.body", "body": b"not you"})
            return
        names = [name.decode() for name, _ in scope["headers"]]
        print("opened", scope["http_version"], "sec-websocket-key" in names, "bellwether-epoch" in names, flush=True)
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message.get("text"), "bytes": message.get("bytes")})
        print("closed", flush=True)


async def main(*files):
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(listener.getsockname()[1], flush=True)
    config = Config()
    config.bind = [f"fd://{listener.detach()}"]
    config.errorlog = None
    if files:
        config.certfile, config.keyfile = files
    over = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await serve(app, config, shutdown_trigger=lambda: over, mode="asgi")


asyncio.run(main(*sys.argv[1:]))
