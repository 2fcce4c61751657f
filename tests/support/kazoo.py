"""What an operator, and rivals of another make, do in ZooKeeper: one command in JSON on each line, one answer on each."""

import json
import sys
import threading

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.security import make_digest_acl

CONNECT = 30


def connect(**settings):
    client = KazooClient(hosts=sys.argv[1], timeout=30.0, **settings)
    client.start(timeout=CONNECT)
    return client


def password(session):
    """The password of a session, which the server draws by Java's random numbers from the session's own."""
    seed = ((session ^ 0xB3415C00) ^ 0x5DEECE66D) & ((1 << 48) - 1)
    drawn = b""
    for _ in range(4):
        seed = (seed * 0x5DEECE66D + 0xB) & ((1 << 48) - 1)
        drawn += (seed >> 16).to_bytes(4, "little")
    return drawn


class Hand:
    def __init__(self):
        self.client = connect(auth_data=[("digest", "super:root")])
        self.rivals = {}

    def line(self, folder):
        nodes = []
        for name in self.children(folder):
            try:
                data, stat = self.client.get(f"{folder}/{name}")
            except NoNodeError:
                continue
            nodes.append(
                {"name": name, "data": data.decode(errors="replace"), "session": stat.ephemeralOwner,
                 "created": stat.czxid, "version": stat.version}
            )
        return sorted(nodes, key=lambda node: node["name"][-10:])

    def children(self, folder):
        try:
            return self.client.get_children(folder)
        except NoNodeError:
            return []

    def create(self, path, data, ephemeral, sequence):
        self.client.ensure_path(path.rsplit("/", 1)[0])
        return self.client.create(path, data.encode(), ephemeral=ephemeral, sequence=sequence)

    def delete(self, path):
        self.client.delete(path, recursive=True)

    def set(self, path, data):
        self.client.set(path, data.encode())

    def guard(self, path, user, secret, rights):
        """Makes a folder that is this user's alone, with these of the letters cdrwa."""
        letters = {"c": "create", "d": "delete", "r": "read", "w": "write", "a": "admin"}
        acl = make_digest_acl(user, secret, **{name: letter in rights for letter, name in letters.items()})
        self.client.ensure_path(path)
        self.client.set_acls(path, [acl])

    def acls(self, path):
        return [[acl.id.scheme, acl.id.id.split(":")[0], acl.perms] for acl in self.client.get_acls(path)[0]]

    def expire(self, session):
        """Takes a session over and ends it, as its owner would."""
        session &= (1 << 64) - 1
        signed = session - (1 << 64) if session >> 63 else session
        connect(client_id=(signed, password(session))).stop()

    def zxid(self):
        path = self.client.create("/probe-", b"", ephemeral=True, sequence=True)
        created = self.client.exists(path).czxid
        self.client.delete(path)
        return created

    def campaign(self, rival, kind, folder, address):
        """Starts a candidate of Kazoo's own make, which knows the names of others."""
        client = connect()
        lock = client.Lock(folder, address, extra_lock_patterns=["-latch-"])
        leads, go = threading.Event(), threading.Event()

        def serve():
            leads.set()
            go.wait()

        if kind == "election":
            election = client.Election(folder, address)
            election.lock = lock
            body = lambda: election.run(serve)
        else:
            def body():
                with lock:
                    serve()

        thread = threading.Thread(target=body, daemon=True)
        thread.start()
        self.rivals[rival] = (client, lock, leads, go, thread)

    def leads(self, rival):
        return self.rivals[rival][2].is_set()

    def contenders(self, rival):
        """Who stands in line, as Kazoo tells it."""
        return self.rivals[rival][1].contenders()

    def resign(self, rival):
        client, _, _, go, thread = self.rivals.pop(rival)
        go.set()
        thread.join(CONNECT)
        client.stop()


def main():
    hand = Hand()
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        try:
            answer = {"ok": getattr(hand, name)(*arguments)}
        except Exception as error:
            answer = {"error": repr(error)}
        print(json.dumps(answer), flush=True)


main()
