"""A gRPC service and a client for it, both the real ones, for calls of all four kinds through other things.

    grpc_calls.py serve [CERT KEY]   prints its port, and serves until standard input ends
    grpc_calls.py call HOST:PORT [CA CERT KEY]
                                     makes every call and compares; one line for each
"""

import concurrent.futures
import sys
import threading

import grpc

CALLS = 16
LARGE = 3 * 1024 * 1024


def raw(message):
    return message


class Service(grpc.GenericRpcHandler):
    def __init__(self):
        self.cancelled = threading.Event()

    def service(self, call):
        kinds = {
            "/test/Unary": grpc.unary_unary_rpc_method_handler(self.unary),
            "/test/Fails": grpc.unary_unary_rpc_method_handler(self.fails),
            "/test/FailsEarly": grpc.stream_unary_rpc_method_handler(self.fails_early),
            "/test/Counts": grpc.unary_stream_rpc_method_handler(self.counts),
            "/test/Sums": grpc.stream_unary_rpc_method_handler(self.sums),
            "/test/Chats": grpc.stream_stream_rpc_method_handler(self.chats),
            "/test/Hangs": grpc.unary_stream_rpc_method_handler(self.hangs),
            "/test/Cancelled": grpc.unary_unary_rpc_method_handler(self.was_cancelled),
        }
        return kinds.get(call.method)

    def unary(self, message, context):
        metadata = dict(context.invocation_metadata())
        context.send_initial_metadata((("epoch", metadata["bellwether-epoch"]),))
        context.set_trailing_metadata((("last", "word"), ("raw-bin", b"\x00\xff")))
        return message

    def fails(self, message, context):
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not today: ✗")

    def fails_early(self, messages, context):
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "enough")

    def counts(self, message, context):
        for n in range(int(message)):
            yield b"%d" % n

    def sums(self, messages, context):
        return b"%d" % sum(int(message) for message in messages)

    def chats(self, messages, context):
        for message in messages:
            yield message.upper()

    def hangs(self, message, context):
        self.cancelled.clear()
        context.add_callback(self.cancelled.set)
        yield b"begun"
        self.cancelled.wait(60)

    def was_cancelled(self, message, context):
        return b"yes" if self.cancelled.wait(30) else b"no"


def serve(files):
    service = Service()
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(64), handlers=[service], options=options)
    if files:
        cert, key = (open(file, "rb").read() for file in files)
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, cert)]))
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    sys.stdin.read()
    server.stop(0)


def expect(what, seen, wanted):
    if seen != wanted:
        sys.exit(f"{what}: {seen!r} and not {wanted!r}")
    print(what, flush=True)


def failure(call):
    try:
        call()
    except grpc.RpcError as error:
        return error.code(), error.details()
    return None


def conversation(channel, words):
    said = iter(words)
    heard = threading.Semaphore(1)

    def say():
        for word in said:
            heard.acquire()
            yield word

    answers = []
    for answer in channel.stream_stream("/test/Chats", raw, raw)(say(), timeout=30):
        answers.append(answer)
        heard.release()
    return answers


def call(place, secrets):
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    if secrets:
        ca, cert, key = (open(secret, "rb").read() for secret in secrets)
        channel = grpc.secure_channel(place, grpc.ssl_channel_credentials(ca, key, cert), options)
    else:
        channel = grpc.insecure_channel(place, options)
    unary = channel.unary_unary("/test/Unary", raw, raw)
    answer, about = unary.with_call(b"hello", timeout=30)
    expect("unary", answer, b"hello")
    expect("unary, its epoch", dict(about.initial_metadata())["epoch"].isdigit(), True)
    trailing = dict(about.trailing_metadata())
    expect("unary, its trailers", (trailing["last"], trailing["raw-bin"]), ("word", b"\x00\xff"))
    large = bytes(range(256)) * (LARGE // 256)
    expect("unary, large both ways", unary(large, timeout=60) == large, True)
    expect("unary, empty", unary(b"", timeout=30), b"")

    fails = channel.unary_unary("/test/Fails", raw, raw)
    wanted = (grpc.StatusCode.FAILED_PRECONDITION, "not today: ✗")
    expect("unary, error", failure(lambda: fails(b"", timeout=30)), wanted)
    unknown = channel.unary_unary("/test/Unknown", raw, raw)
    expect("unknown method", failure(lambda: unknown(b"", timeout=30))[0], grpc.StatusCode.UNIMPLEMENTED)

    counts = channel.unary_stream("/test/Counts", raw, raw)
    expect("server stream", [int(n) for n in counts(b"500", timeout=30)], list(range(500)))
    expect("server stream, empty", list(counts(b"0", timeout=30)), [])
    sums = channel.stream_unary("/test/Sums", raw, raw)
    expect("client stream", sums((b"%d" % n for n in range(500)), timeout=30), b"124750")
    early = channel.stream_unary("/test/FailsEarly", raw, raw)
    wanted = (grpc.StatusCode.RESOURCE_EXHAUSTED, "enough")
    expect("client stream, early error", failure(lambda: early((large for _ in range(20)), timeout=60)), wanted)
    expect("both ways, in turns", conversation(channel, [b"one", b"two", b"three"]), [b"ONE", b"TWO", b"THREE"])

    with concurrent.futures.ThreadPoolExecutor(CALLS) as many:
        words = [[b"%d-%d" % (n, turn) for turn in range(20)] for n in range(CALLS)]
        expect("many at once", list(many.map(lambda said: conversation(channel, said), words)), words)

    late = failure(lambda: list(channel.unary_stream("/test/Hangs", raw, raw)(b"", timeout=1)))
    expect("deadline", late[0], grpc.StatusCode.DEADLINE_EXCEEDED)
    expect("deadline, at the service", channel.unary_unary("/test/Cancelled", raw, raw)(b"", timeout=60), b"yes")


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2:])
    else:
        call(sys.argv[2], sys.argv[3:])
