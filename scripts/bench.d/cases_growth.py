"""What grows with routes, keys, connections and workers, and what a request costs at each load (for the chart)."""
import statistics
import subprocess
import time

import load
import servers
from measure import cpu, url
from report import Row
from rig import Failed, compiled, cpu_seconds

FLAT = 1.1  # "flat": at most so many times the small one
LOADS = (1, 4, 16, 64, 256)  # connections
ROUTE = '{ name = "r%d", path = "/r%d/*", targets = { { url = "http://127.0.0.1:%d" } } },'


def pair(b, small, large, subjects):
    got = b.turns(subjects)
    return Row("growth", f"CPU a request, {large}", cpu(got[large]), "us", cpu(got[small]), small, FLAT)


def grown_routes(b):
    few = servers.gateway(b.rig, b.binary, b.origin, "few", routes=ROUTE % (1, 1, b.origin), log=False)
    many = servers.gateway(b.rig, b.binary, b.origin, "many", log=False,
                           routes="".join(ROUTE % (n, n, b.origin) for n in range(1, 1001)))
    row = pair(b, "1 route", "1,000 routes", {
        "1 route": ({"self": few}, url(few), load.script("/r1/x"), 64),
        "1,000 routes": ({"self": many}, url(many), load.script("/r1000/x"), 64)})
    b.stop(few, many)
    return [row]


def started(b, name, keys):
    began = time.monotonic()
    process = servers.gateway(b.rig, b.binary, b.origin, name, keys=keys, log=False)
    return process, time.monotonic() - began


def grown_keys(b):
    for count in (10, 100000):
        servers.keys_file(b.rig, count)  # written before anything is timed
    few, short = started(b, "few", 10)
    many, long = started(b, "many", 100000)
    row = pair(b, "10 keys", "100,000 keys", {
        "10 keys": ({"self": few}, url(few), load.script("/auth", 10), 64),
        "100,000 keys": ({"self": many}, url(many), load.script("/auth", 1000), 64)})
    b.stop(few, many)
    return [row, Row("growth", "loading 100,000 keys", max(long - short, 0), "s", goal=1)]


def rotated(b, program, process, connections):
    """Microseconds of CPU of a request where so many connections are open and 10 requests are under way."""
    with subprocess.Popen(["taskset", "-c", "1", program, str(process.port), str(connections), "10", str(b.seconds)],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        if client.stdout.readline() != "ready\n":
            raise Failed(f"could not open {connections} connections to {process.label}")
        before = cpu_seconds(process.pid)
        requests = int(client.communicate("go\n", timeout=b.seconds + 60)[0].split()[0])
        return (cpu_seconds(process.pid) - before) * 1e6 / requests


def grown_connections(b):
    most = min(10000, b.rig.descriptors - 2000)
    program = compiled(b.rig, servers.HERE + "/rotate.c")
    gateway = servers.gateway(b.rig, b.binary, b.origin, log=False)
    got = {count: [] for count in (10, most)}
    for _ in range(b.rounds):
        for count, values in got.items():
            values.append(rotated(b, program, gateway, count))
    b.stop(gateway)
    few, many = (statistics.median(values) for values in got.values())
    return [Row("growth", f"CPU a request, {most:,} connections", many, "us", few, "10 connections", FLAT)]


def grown_workers(b):
    """Both on both cores, beside the load, with 64 connections a worker: what a turn of the loop shares is the same."""
    one = servers.gateway(b.rig, b.binary, b.origin, "one", core="0,1", log=False)
    two = servers.gateway(b.rig, b.binary, b.origin, "two", core="0,1", workers=2, log=False)
    row = pair(b, "one worker", "two workers", {
        "one worker": ({"self": one}, url(one), load.script("/"), 64),
        "two workers": ({"self": two}, url(two), load.script("/"), 128)})
    b.stop(one, two)
    return [row]


def growth(b):
    return grown_routes(b) + grown_keys(b) + grown_connections(b) + grown_workers(b)


def load_curve(b):
    """Rows "SERIES at N connections" without goals: what the chart shows."""
    redis = servers.redis(b.rig)
    gateway = servers.gateway(b.rig, b.binary, b.origin, redis_port=redis.port)
    bare = servers.gateway(b.rig, b.binary, b.origin, "bare", log=False)
    nginx, haproxy = servers.nginx_plain(b.rig, b.origin), servers.haproxy(b.rig, b.origin)
    lua = servers.nginx_lua(b.rig, b.origin, redis.port)
    get, chat = load.script("/"), load.script("/v1/chat/completions", 1, chat=True)
    series = {"nginx": (nginx, get), "HAProxy": (haproxy, get), "Tollgate": (bare, get), "Tollgate, full job": (gateway, chat),
              "nginx with Lua, full job": (lua, chat)}
    rows = []
    for n in LOADS:
        got = b.turns({name: ({"self": p}, url(p), script, n) for name, (p, script) in series.items() if p})
        rows += [Row("load", f"{name} at {n} connections", cpu(runs), "us") for name, runs in got.items()]
    b.stop(gateway, bare, nginx, haproxy, lua, redis)
    return rows
