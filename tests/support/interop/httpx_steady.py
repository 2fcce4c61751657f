"""httpx over HTTP/2 with requests that go on and on, whatever happens to the node that they go to.

    httpx_steady.py URL         a line for every 20 answers, until standard input ends; then how many requests failed

It takes a GOAWAY for the end of all that it has on the connection. Some clients are idle most of the time, some never.
"""

import asyncio
import sys

import httpx

PAUSES = [0.3, 0.05, 0.0]
NEWS = 20


class Tally:
    def __init__(self):
        self.answered = 0
        self.failures = []
        self.goes_on = True


async def requests(url, pause, tally):
    async with httpx.AsyncClient(http1=False, http2=True, timeout=60) as client:
        while tally.goes_on:
            try:
                answer = await client.post(url, content=b"hello")
                assert (answer.status_code, answer.http_version) == (200, "HTTP/2"), answer
            except httpx.HTTPError as error:
                tally.failures.append(repr(error))
            tally.answered += 1
            if tally.answered % NEWS == 0:
                print("answered", flush=True)
            await asyncio.sleep(pause)


async def main(url):
    tally = Tally()
    clients = [asyncio.create_task(requests(url, pause, tally)) for pause in PAUSES]
    await asyncio.to_thread(sys.stdin.read)
    tally.goes_on = False
    await asyncio.gather(*clients)
    print("failed", len(tally.failures), *set(tally.failures), flush=True)


asyncio.run(main(sys.argv[1]))
