"""An app that gives back what it is told over WebSocket, and prints the code with which each connection was closed; its first line is
its port, and it serves until standard input ends."""

import asyncio
import sys

from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed


async def echo(connection):
    try:
        while True:
            await connection.send(await connection.recv())
    except ConnectionClosed as closed:
        print("closed", closed.rcvd.code if closed.rcvd else 1006, flush=True)


async def main():
    async with serve(echo, "127.0.0.1", 0, ping_interval=None) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


asyncio.run(main())
