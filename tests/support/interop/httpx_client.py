"""httpx over HTTP/2: many requests side by side on one connection, bodies both ways, and none over HTTP/1.1.

    httpx_client.py URL [CA CERT KEY]     one line for each thing that went well
"""

import asyncio
import ssl
import sys

import httpx

LARGE = bytes(range(256)) * 8192


def expect(what, seen, wanted):
    if seen != wanted:
        sys.exit(f"{what}: {seen!r} and not {wanted!r}")
    print(what, flush=True)


async def pieces():
    for start in range(0, len(LARGE), 50_000):
        yield LARGE[start : start + 50_000]


async def main(url, secrets):
    verify = True
    if secrets:
        ca, cert, key = secrets
        verify = ssl.create_default_context(cafile=ca)
        verify.load_cert_chain(cert, key)
    # In the clear there is nobody to ask: prior knowledge.
    async with httpx.AsyncClient(http1=bool(secrets), http2=True, verify=verify, base_url=url, timeout=60) as client:
        answer = await client.get("/who")
        expect("version", (answer.http_version, answer.status_code), ("HTTP/2", 200))
        many = await asyncio.gather(*(client.get(f"/echo?n={n}") for n in range(300)))
        expect("many at once", [answer.json()["target"] for answer in many], [f"/echo?n={n}" for n in range(300)])
        answer = await client.post("/echo", content=pieces())
        expect("a body of unknown length", answer.json()["length"], len(LARGE))
        answer = await client.put("/echo", content=LARGE)
        expect("a body of known length", answer.json()["length"], len(LARGE))
        async with client.stream("GET", "/big?mb=8") as answer:
            length = sum([len(piece) async for piece in answer.aiter_bytes()])
        expect("a large answer", length, 8 << 20)
        async with client.stream("GET", "/big?mb=64") as answer:
            async for _ in answer.aiter_bytes():
                break
        expect("one that is left", (await client.get("/who")).status_code, 200)
        cookies = httpx.Cookies({"a": "1", "b": "2"})
        seen = (await client.get("/echo", headers=[("x-twice", "1"), ("x-twice", "2")], cookies=cookies)).json()["headers"]
        expect("fields", ([v for n, v in seen if n == "x-twice"], [v for n, v in seen if n == "cookie"]), (["1", "2"], ["a=1; b=2"]))
        expect("no content", (await client.get("/status?code=204")).status_code, 204)
        answer = await client.head("/who")
        expect("head", (answer.status_code, answer.content), (200, b""))


asyncio.run(main(sys.argv[1], sys.argv[2:]))
