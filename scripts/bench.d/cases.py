"""A request's price: without plugins, with the full job, and in time. Each function takes a Bench and returns rows."""
import statistics
import subprocess

import load
import servers
from measure import CONNECTIONS, cpu, p50, url
from report import Row


def plain(b):
    """CPU of a proxied request without plugins."""
    get = load.script("/")
    running = {"tollgate": servers.gateway(b.rig, b.binary, b.origin, log=False), "nginx": servers.nginx_plain(b.rig, b.origin),
               "haproxy": servers.haproxy(b.rig, b.origin)}
    running = {name: p for name, p in running.items() if p}
    got = b.turns({name: ({"self": p}, url(p), get, CONNECTIONS) for name, p in running.items()})
    b.stop(*running.values())
    goals = {"nginx": 0.85}
    return [Row("plain", "CPU a request", cpu(got["tollgate"]), "us", cpu(got[peer]), peer, goals.get(peer))
            for peer in running if peer != "tollgate"]


def quota(b):
    """CPU of the full job: key, all limits, metrics, access log; of the gateway and of Redis."""
    redis = servers.redis(b.rig)
    gateway = servers.gateway(b.rig, b.binary, b.origin, redis_port=redis.port)
    nginx, lua = servers.nginx_plain(b.rig, b.origin), servers.nginx_lua(b.rig, b.origin, redis.port)
    path = "/v1/chat/completions"
    one, many = load.script(path, 1, chat=True), load.script(path, 64, chat=True)
    both = {"self": gateway, "redis": redis}
    subjects = {"tollgate": (both, url(gateway), one, CONNECTIONS), "64 keys": (both, url(gateway), many, CONNECTIONS),
                "nginx": ({"self": nginx}, url(nginx), one, CONNECTIONS)}
    if lua:
        subjects["nginx+Lua"] = ({"self": lua, "redis": redis}, url(lua), one, CONNECTIONS)
    got = b.turns(subjects)
    b.stop(gateway, nginx, lua, redis)
    rows = [Row("quota", "CPU a request", cpu(got["tollgate"]), "us", cpu(got["nginx"]), "nginx", 1.0),
            Row("quota", "CPU a request, 64 keys", cpu(got["64 keys"]), "us", cpu(got["nginx"]), "nginx", 1.0),
            Row("quota", "Redis's CPU a request", cpu(got["tollgate"], "redis"), "us", goal=10),
            Row("quota", "Redis's CPU a request, 64 keys", cpu(got["64 keys"], "redis"), "us", goal=16)]
    if lua:
        rows += [Row("quota", "CPU a request", cpu(got["tollgate"]), "us", cpu(got["nginx+Lua"]), "nginx+Lua", 1 / 3),
                 Row("quota", "Redis's CPU a request", cpu(got["tollgate"], "redis"), "us",
                     cpu(got["nginx+Lua"], "redis"), "nginx+Lua"),
                 Row("quota", "Redis's CPU a request, 64 keys", cpu(got["64 keys"], "redis"), "us",
                     cpu(got["nginx+Lua"], "redis"), "nginx+Lua")]
    return rows


def round_trip(b, redis):
    """Microseconds that a lone command takes, there and back."""
    done = subprocess.run(["taskset", "-c", "0", servers.need("redis-benchmark"), "-p", str(redis.port), "-c", "1", "-n", "5000",
                           "-t", "get", "--csv"], capture_output=True, text=True, timeout=60, check=True)
    head, values = [line.replace('"', "").split(",") for line in done.stdout.strip().splitlines()[-2:]]
    return float(values[head.index("p50_latency_ms")]) * 1000


def latency(b):
    """What stands between a client and the origin costs one connection in time: p50, above the origin's own."""
    redis = servers.redis(b.rig)
    gateway = servers.gateway(b.rig, b.binary, b.origin, redis_port=redis.port)
    nginx = servers.nginx_plain(b.rig, b.origin)
    path = "/v1/chat/completions"
    get, chat = load.script("/"), load.script(path, 1, chat=True)
    direct = f"http://127.0.0.1:{b.origin}"
    got = b.turns({"direct": ({}, direct, get, 1), "nginx": ({}, url(nginx), get, 1), "tollgate": ({}, url(gateway), get, 1),
                   "quota": ({}, url(gateway), chat, 1), "chat": ({}, direct, chat, 1)})
    trip = statistics.median(round_trip(b, redis) for _ in range(b.rounds))
    b.stop(gateway, nginx, redis)
    base, nginx_adds = p50(got["direct"]), max(p50(got["nginx"]) - p50(got["direct"]), 1)
    return [Row("latency", "p50 added, plain", p50(got["tollgate"]) - base, "us", nginx_adds, "nginx", 1.3),
            Row("latency", "p50 added, full job", p50(got["quota"]) - p50(got["chat"]), "us", 1.3 * nginx_adds + trip,
                "1.3 × nginx and a round trip", 1.0)]
