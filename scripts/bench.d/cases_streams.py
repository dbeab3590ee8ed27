"""Streams of server-sent events: CPU of a relayed event, memory of a stream that stands, time to the first byte."""
import selectors
import socket
import statistics
import struct
import time

import load
import servers
from measure import CONNECTIONS, url
from report import Row
from rig import Failed, compiled, cpu_seconds, free_port, resident_bytes

HELD = 5000
FIRST_BYTES = 100  # streams of a subject
LIMIT = 120  # seconds for all streams to stand
# Usage is read where quota charges it, so the streams have the full job.
ROUTE = ('{ name = "%s", path = "/%s/*", api = "openai-chat", targets = { { url = "http://127.0.0.1:%d" } }, '
         'plugins = { auth = { keys = "%s" }, quota = ' + servers.LIMITS + " } },")
PROXY = "proxy_buffering off;"


def request(port, path):
    body = load.CHAT % ',"stream":true,"stream_options":{"include_usage":true}'
    return (f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nX-Api-Key: k1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}").encode()


def count_of(path):
    with open(path, "rb") as f:
        return struct.unpack("Q", f.read(8))[0]


def event_cpu(b, subjects, counter):
    """{name: microseconds of CPU an event}."""
    script = load.script("/stream/x", chat=True, stream=True)
    got = {name: [] for name in subjects}
    for turn in range(b.rounds + 1):  # the first one warms up
        for name, process in subjects.items():
            events, cpu = count_of(counter), cpu_seconds(process.pid)
            load.run(b.rig, url(process), script, CONNECTIONS, max(b.seconds, 2))
            if turn:
                got[name].append((cpu_seconds(process.pid) - cpu) * 1e6 / (count_of(counter) - events))
                b.say(f"{name}: {got[name][-1]:.2f} us an event")
    return {name: statistics.median(values) for name, values in got.items()}


def hold(port, count):
    """Opens streams and returns their sockets once each of them has had its first event."""
    pick, text, opened = selectors.DefaultSelector(), request(port, "/hold/x"), []
    end = time.monotonic() + LIMIT
    while len(opened) < count or pick.get_map():
        if len(opened) < count:
            s = socket.create_connection(("127.0.0.1", port), 30)
            s.sendall(text)
            pick.register(s, selectors.EVENT_READ)
            opened.append(s)
        for key, _ in pick.select(0 if len(opened) < count else 1):
            got = key.fileobj.recv(65536)
            if b"data:" in got:
                pick.unregister(key.fileobj)
            elif not got or b" 200 " not in got[:16] and got.startswith(b"HTTP"):
                raise Failed(f"a held stream was refused: {got[:200]!r}")
        if time.monotonic() > end:
            raise Failed(f"{len(pick.get_map())} of {count} streams had no event within {LIMIT} s")
    return opened


def held_bytes(process, count):
    """Resident bytes that each of the streams adds."""
    for s in hold(process.port, 20):
        s.close()
    before = resident_bytes(process.pid)
    opened = hold(process.port, count)
    after = resident_bytes(process.pid)
    for s in opened:
        s.close()
    return (after - before) / count


def first_byte(port):
    """Median microseconds from a request to the first byte of its stream's first event."""
    times, text = [], request(port, "/hold/x")
    for _ in range(FIRST_BYTES):
        with socket.create_connection(("127.0.0.1", port), 30) as s:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            began, got = time.perf_counter(), b""
            s.sendall(text)
            while b"data:" not in got:
                more = s.recv(65536)
                if not more:
                    raise Failed("a stream ended before its first event")
                got += more
            times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e6


def streams(b):
    program, port, counter = compiled(b.rig, servers.HERE + "/events.c"), free_port(), b.rig.path("events.count")
    origin = b.rig.start("events", [program, str(port), counter], "1")
    b.rig.wait_port(origin, port)
    origin.port = port
    redis = servers.redis(b.rig)
    routes = "".join(ROUTE % (name, name, port, servers.keys_file(b.rig, 64)) for name in ("stream", "hold"))
    gateway = servers.gateway(b.rig, b.binary, port, redis_port=redis.port, routes=routes)
    nginx = servers.nginx_plain(b.rig, port, PROXY)
    subjects = {"tollgate": gateway, "nginx": nginx}
    cpu = event_cpu(b, subjects, counter)
    count = min(HELD, (b.rig.descriptors - 1000) // 2)
    first = {name: [] for name in ("direct", *subjects)}
    for _ in range(b.rounds):
        for name, process in {"direct": origin, **subjects}.items():
            first[name].append(first_byte(process.port))
    added = {name: max(statistics.median(first[name]) - statistics.median(first["direct"]), 1) for name in subjects}
    held = {name: held_bytes(process, count) for name, process in subjects.items()}
    b.stop(gateway, nginx, origin, redis)
    return [Row("streams", "CPU an event", cpu["tollgate"], "us", cpu["nginx"], "nginx", 1.0),
            Row("streams", f"memory of each of {count} streams", held["tollgate"] / 1024, "KiB", goal=12),
            Row("streams", "memory of a stream", held["tollgate"] / 1024, "KiB", held["nginx"] / 1024, "nginx"),
            Row("streams", "first byte added", added["tollgate"], "us", added["nginx"], "nginx", 1.3)]
