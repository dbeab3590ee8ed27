"""What a request does inside, whatever else the machine does: allocations, and instructions by callgrind."""
import os
import re
import shutil
import subprocess

import load
import servers
from measure import CONNECTIONS, url
from report import Row
from rig import Failed, compiled, tree

JOBS = (("plain", "/", False), ("full job", "/v1/chat/completions", True))


def _count(path):
    with open(path, "rb") as f:
        return int.from_bytes(f.read(8), "little")


def allocations(b):
    """Calls of malloc, calloc and realloc a request, of all the gateway's processes."""
    library, counter = compiled(b.rig, servers.HERE + "/count.c", "-shared", "-fPIC"), b.rig.path("allocations")
    redis = servers.redis(b.rig)
    gateway = servers.gateway(b.rig, b.binary, b.origin, redis_port=redis.port,
                              env={"LD_PRELOAD": library, "BENCH_COUNT": counter})
    rows = []
    for name, path, chat in JOBS:
        script = load.script(path, chat=chat)
        load.run(b.rig, url(gateway), script, CONNECTIONS, 2)
        before = _count(counter)
        requests = load.run(b.rig, url(gateway), script, CONNECTIONS, 2)["requests"]
        rows.append(Row("allocations", name, (_count(counter) - before) / requests, "a request"))
    b.stop(gateway, redis)
    return rows


def _of_callgrind(rig, process, run):
    """Instructions a request that the busiest process of a tree executes while `run` sends its requests."""
    def control(option, pid):
        subprocess.run(["callgrind_control", option, str(pid)], capture_output=True, timeout=120, check=True)
    counts = {}
    pids = [pid for pid in tree(process.pid) if os.path.exists(f"/proc/{pid}/exe")
            and "callgrind" in os.readlink(f"/proc/{pid}/exe")]
    for pid in pids:
        control("-z", pid)
    requests = run()
    for pid in pids:
        control("-d", pid)
        dumps = [name for name in os.listdir(rig.dir) if re.fullmatch(rf"callgrind\.{pid}\.\d+", name)]
        newest = max(dumps, key=lambda name: int(name.rpartition(".")[2]), default=None)
        if newest:
            with open(rig.path(newest)) as f:
                counts[pid] = int(re.search(r"^(?:summary|totals): (\d+)", f.read(), re.M)[1])
    if not counts:
        raise Failed("callgrind counted nothing")
    return max(counts.values()) / requests


def instructions(b):
    """Instructions of user space a request, by callgrind; nothing where valgrind is not installed."""
    if not shutil.which("valgrind"):
        return []
    grind = ["valgrind", "-q", "--tool=callgrind", "--trace-children=yes", f"--callgrind-out-file={b.rig.dir}/callgrind.%p"]
    redis = servers.redis(b.rig)
    wrapper = b.rig.write("tollgate.sh", "#!/bin/sh\nexec " + " ".join(grind) + f' {b.binary} "$@"\n')
    os.chmod(wrapper, 0o755)
    rows, got = [], {}
    gateway = servers.gateway(b.rig, wrapper, b.origin, redis_port=redis.port, env={"TOLLGATE_IMAGE": b.binary})
    nginx = servers.nginx_plain(b.rig, b.origin, grind=grind)
    for name, path, chat, process in [(*job, gateway) for job in JOBS] + [("nginx", "/", False, nginx)]:
        script = load.script(path, chat=chat)
        load.run(b.rig, url(process), script, 16, 3)
        got[name] = _of_callgrind(b.rig, process, lambda: load.run(b.rig, url(process), script, 16, 2)["requests"])
    b.stop(gateway, nginx, redis)
    for name, _, _ in JOBS:
        rows.append(Row("instructions", name, got[name], "a request", got["nginx"], "nginx"))
    return rows
