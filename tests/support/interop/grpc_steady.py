"""Calls to the service of grpc_calls.py that go on and on, whatever happens to whoever passes them on.

    grpc_steady.py HOST:PORT         a line for every 100 answers, until standard input ends; then how many calls failed
"""

import asyncio
import sys

import grpc

CALLERS = 16
NEWS = 100


def raw(message):
    return message


class Tally:
    def __init__(self):
        self.answered = 0
        self.failures = []
        self.goes_on = True


async def calls(channel, tally):
    unary = channel.unary_unary("/test/Unary", raw, raw)
    while tally.goes_on:
        try:
            answer = await unary(b"hello", timeout=60)
            assert answer == b"hello", answer
        except grpc.RpcError as error:
            tally.failures.append(error.details())
        tally.answered += 1
        if tally.answered % NEWS == 0:
            print("answered", flush=True)


async def main(place):
    tally = Tally()
    async with grpc.aio.insecure_channel(place) as channel:
        callers = [asyncio.create_task(calls(channel, tally)) for _ in range(CALLERS)]
        await asyncio.to_thread(sys.stdin.read)
        tally.goes_on = False
        await asyncio.gather(*callers)
    print("failed", len(tally.failures), *set(tally.failures), flush=True)


asyncio.run(main(sys.argv[1]))
