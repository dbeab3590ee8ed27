"""Load by wrk, on core 1, and what it counted. Every answer must be a 2xx, else the figures mean nothing."""
import re
import subprocess

from rig import Failed, cpu_seconds

UNITS = {"us": 1, "ms": 1e3, "s": 1e6, "m": 6e7}

CHAT = ('{"model":"m","messages":[{"role":"user","content":"Say in one sentence what a gateway does for programs '
        'that call a service, please."}],"max_tokens":100%s}')

# wrk's script: the same request each time, by one of a number of keys in turn.
SCRIPT = """
local body, path, keys, n = %s, %s, %d, 0
local made = {}
function init()
  for i = 1, keys do
    local headers = { ["x-api-key"] = "k" .. i, ["content-type"] = body and "application/json" or nil, %s }
    made[i] = wrk.format(body and "POST" or "GET", path, headers, body)
  end
end
function request() n = n %% keys + 1; return made[n] end
"""


def script(path, keys=1, chat=False, stream=False, close=False):
    body = "[[%s]]" % (CHAT % (',"stream":true,"stream_options":{"include_usage":true}' if stream else "")) if chat else "nil"
    return SCRIPT % (body, "[[%s]]" % path, keys, '["Connection"] = "close"' if close else "")


def parse(text):
    """Requests and the median latency in microseconds out of wrk's report; raises where an answer was no 2xx."""
    requests = re.search(r"(\d+) requests in", text)
    p50 = re.search(r"50%\s+([\d.]+)(us|ms|s|m)\b", text)
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    failed = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
    if not requests or int(requests[1]) == 0:
        raise Failed("wrk counted no request:\n" + text)
    if bad:
        raise Failed(f"{bad[1]} of {requests[1]} answers were no 2xx")
    if failed and (int(failed[1]) or int(failed[3])):
        raise Failed("wrk could not connect or write: " + failed[0])
    return {"requests": int(requests[1]), "p50": float(p50[1]) * UNITS[p50[2]] if p50 else None}


def run(rig, url, lua, connections, seconds):
    """One run of wrk; returns what `parse` does."""
    name = rig.write("request.lua", lua)
    done = subprocess.run(["taskset", "-c", "1", "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency",
                           "--timeout", "30s", "-s", name, url], capture_output=True, text=True, timeout=seconds + 90)
    if done.returncode != 0:
        raise Failed("wrk failed: " + done.stdout + done.stderr)
    return parse(done.stdout)


def cost(rig, processes, url, lua, connections, seconds):
    """The run, with "cpu": for each process, by its name, microseconds of CPU per request."""
    before = {name: cpu_seconds(p.pid) for name, p in processes.items()}
    counted = run(rig, url, lua, connections, seconds)
    counted["cpu"] = {name: (cpu_seconds(p.pid) - before[name]) * 1e6 / counted["requests"]
                      for name, p in processes.items()}
    return counted
