"""A gRPC service whose calls last, and a client that has many of them at once.

    grpc_many.py serve               prints its port, and serves until it is ended
    grpc_many.py call HOST:PORT N    has N calls under way at once, lets them go on, and sees each to its end
"""

import asyncio
import sys

import grpc

# What a connection takes; the rest would wait in the client.
EACH = 100


def raw(message):
    return message


class Service(grpc.GenericRpcHandler):
    def __init__(self):
        self.go = asyncio.Event()

    def service(self, call):
        kinds = {
            "/test/Lasts": grpc.unary_stream_rpc_method_handler(self.lasts),
            "/test/Go": grpc.unary_unary_rpc_method_handler(self.goes),
        }
        return kinds.get(call.method)

    async def lasts(self, message, context):
        yield b"begun"
        await self.go.wait()
        yield message

    async def goes(self, message, context):
        self.go.set()
        return message


async def serve():
    server = grpc.aio.server(handlers=[Service()])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


async def call(place, count):
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(place, options) for _ in range(-(-count // EACH))]
    calls = [channels[n // EACH].unary_stream("/test/Lasts", raw, raw)(b"%d" % n, timeout=120) for n in range(count)]
    begun = await asyncio.gather(*(call.read() for call in calls))
    print("begun", begun.count(b"begun"), flush=True)
    async with grpc.aio.insecure_channel(place, options) as another:
        await another.unary_unary("/test/Go", raw, raw)(b"", timeout=60)
    ended = await asyncio.gather(*(call.read() for call in calls))
    print("ended", sum(said == b"%d" % n for n, said in enumerate(ended)), flush=True)
    codes = await asyncio.gather(*(call.code() for call in calls))
    print("well", codes.count(grpc.StatusCode.OK), flush=True)


if __name__ == "__main__":
    asyncio.run(serve() if sys.argv[1] == "serve" else call(sys.argv[2], int(sys.argv[3])))
