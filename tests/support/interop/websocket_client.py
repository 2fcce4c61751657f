"""Opens a WebSocket at HOST:PORT, over TLS where the files of a CA, a certificate and its key follow; prints `open` once it has
had an echo of compressed and long messages, and then the code and reason with which it was closed."""

import asyncio
import ssl
import sys

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed


async def main(place, *files):
    context = None
    if files:
        context = ssl.create_default_context(cafile=files[0])
        context.load_cert_chain(files[1], files[2])
    scheme = "wss" if files else "ws"
    async with connect(f"{scheme}://{place}/chat", ssl=context, proxy=None, ping_interval=None, open_timeout=60) as connection:
        for message in ("hello", "x" * 100_000, b"\x88" * 70_000):
            await connection.send(message)
            assert await connection.recv() == message
        print("open", flush=True)
        try:
            await connection.recv()
        except ConnectionClosed as closed:
            code = closed.rcvd.code if closed.rcvd else 1006
            print(code, closed.rcvd.reason if closed.rcvd else "", flush=True)


asyncio.run(main(*sys.argv[1:]))
