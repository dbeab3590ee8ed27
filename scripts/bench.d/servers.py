"""The servers of a benchmark and their configurations: the origin, Redis, the gateway, and its peers.

What is measured runs on core 0, all else on core 1. The peers are what is commonly set up for the same job:
nginx and HAProxy that only proxy, and nginx with Lua that decides the limits in Redis (quota.lua).
"""
import hashlib
import json
import os
import shutil

from rig import Failed, free_port

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PEERS = os.path.join(ROOT, "build/peers")  # scripts/setup --bench unpacks nginx's Lua module there
MODULES = "/usr/lib/nginx/modules"

ANSWER = json.dumps({
    "id": "chatcmpl-9x", "object": "chat.completion", "created": 1700000000, "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content":
                 "A gateway checks who calls, how much each caller may use, and passes the rest on unchanged."}}],
    "usage": {"prompt_tokens": 19, "completion_tokens": 24, "total_tokens": 43}}, separators=(",", ":"))

NGINX = """{modules}
user root; daemon off; worker_processes {workers}; pid {dir}/{name}.pid; error_log stderr error; {env}
worker_rlimit_nofile 60000;
events {{ worker_connections 30000; }}
http {{
  access_log off; keepalive_requests 1000000000; keepalive_timeout 600; server_tokens off;
  client_body_temp_path {dir}/{name}.body; proxy_temp_path {dir}/{name}.proxy; fastcgi_temp_path {dir}/{name}.fcgi;
  uwsgi_temp_path {dir}/{name}.uwsgi; scgi_temp_path {dir}/{name}.scgi;
  {http}
}}
"""

PROXY = 'proxy_http_version 1.1; proxy_set_header Connection "";'
UPSTREAM = "upstream {name} {{ server 127.0.0.1:{port}; keepalive 256; keepalive_requests 1000000000; }}"

HAPROXY = """global
  nbthread 1
  maxconn 4000
defaults
  mode http
  timeout client 60s
  timeout server 60s
  timeout connect 5s
  http-reuse always
  option http-no-delay
frontend f
  bind 127.0.0.1:{port}
  default_backend b
backend b
  server s 127.0.0.1:{origin}
"""


def find(program):
    for path in (shutil.which(program), f"/usr/sbin/{program}", f"/usr/bin/{program}"):
        if path and os.access(path, os.X_OK):
            return path
    return None


def lua_module():
    """(directory of modules, of Lua files, of LuaJIT) of nginx's Lua module, or None where it is not installed."""
    for root in ("", PEERS):
        modules = root + MODULES
        if os.path.exists(modules + "/ngx_http_lua_module.so"):
            return modules, root + "/usr/share/lua/5.1", root + "/usr/lib/x86_64-linux-gnu"
    return None


def nginx_config(rig, name, http, workers=1, modules="", env=""):
    return rig.write(name + ".conf", NGINX.format(dir=rig.dir, name=name, http=http, workers=workers,
                                                  modules=modules, env=env))


def nginx(rig, name, http, port, core="0", modules="", env=None, grind=()):
    names = "".join(f"env {key}; " for key in env or {})
    config = nginx_config(rig, name, http, modules=modules, env=names)
    process = rig.start(name, [*grind, need("nginx"), "-p", rig.dir, "-c", config, "-e", "stderr"], core, env)
    rig.wait_port(process, port)
    process.port = port
    return process


def need(program):
    return find(program) or _missing(program)


def _missing(program):
    raise Failed(f"{program} is not installed; run: scripts/setup --bench")


def origin_http(rig, port):
    return f"""server {{ listen 127.0.0.1:{port} backlog=16384;
      location = /big {{ alias {rig.dir}/big; }}
      location / {{ default_type application/json; return 200 '{ANSWER}'; }} }}"""


def origin(rig):
    """Answers everything with ANSWER, and /big with a megabyte."""
    port = free_port()
    with open(rig.path("big"), "wb") as f:
        f.write(b"x" * 1048576)
    return nginx(rig, "origin", origin_http(rig, port), port, "1")


def plain_http(port, origin_port, extra="", listen=""):
    return UPSTREAM.format(name="u", port=origin_port) + f"""
      server {{ listen 127.0.0.1:{port} {listen} backlog=16384; {extra}
        location / {{ proxy_pass http://u; {PROXY} }} }}"""


def nginx_plain(rig, origin_port, extra="", grind=()):
    port = free_port()
    return nginx(rig, "nginx", plain_http(port, origin_port, extra), port, grind=grind)


def lua_http(port, origin_port, lua_path):
    return f"""lua_package_path "{HERE}/?.lua;{lua_path}/?.lua;;";
      init_by_lua_block {{ quota = require "quota" }} {UPSTREAM.format(name="u", port=origin_port)}
      server {{ listen 127.0.0.1:{port}; location / {{
        access_by_lua_block {{ quota.access() }} log_by_lua_block {{ quota.log() }}
        proxy_pass http://u; {PROXY} }} }}"""


def lua_modules(modules):
    return f"load_module {modules}/ndk_http_module.so; load_module {modules}/ngx_http_lua_module.so;"


def nginx_lua(rig, origin_port, redis_port):
    found = lua_module()
    if not found:
        return None
    modules, lua_path, libraries = found
    port = free_port()
    return nginx(rig, "nginx-lua", lua_http(port, origin_port, lua_path), port, modules=lua_modules(modules),
                 env={"REDIS_PORT": str(redis_port), "LD_LIBRARY_PATH": libraries})


def haproxy(rig, origin_port):
    if not find("haproxy"):
        return None
    port = free_port()
    config = rig.write("haproxy.cfg", HAPROXY.format(port=port, origin=origin_port))
    process = rig.start("haproxy", [need("haproxy"), "-db", "-f", config], "0")
    rig.wait_port(process, port)
    process.port = port
    return process


def redis(rig):
    port = free_port()
    process = rig.start("redis", [need("redis-server"), "--port", str(port), "--save", "", "--appendonly", "no"], "1")
    rig.wait_port(process, port)
    process.port = port
    return process


LIMITS = "{ rps = 1000000, burst = 1000000, monthly_tokens = 1000000000000000, concurrency = 100000 }"


def keys_file(rig, count):
    """A file of key records; the secret of the nth is "kN"."""
    name = f"keys-{count}.jsonl"
    if not os.path.exists(rig.path(name)):
        rig.write(name, "".join('{"id":"k%d","tenant":"t","secret_sha256":"%s"}\n' %
                                (n, hashlib.sha256(b"k%d" % n).hexdigest()) for n in range(1, count + 1)))
    return name


def gateway_config(rig, port, admin, origin_port, data="data", redis_port=None, workers=1, keys=64, routes="", tls="", log=True):
    """The routes /plain, /auth and /v1/chat/completions (the full job), and those that are given."""
    target = 'targets = { { url = "http://127.0.0.1:%d" } }' % origin_port
    auth = 'auth = { keys = "%s" }' % keys_file(rig, keys)
    full = (f'{{ name = "chat", path = "/v1/chat/completions", {target}, plugins = {{ {auth}, quota = {LIMITS} }} }},'
            if redis_port else "")
    redis_line = f'redis = {{ url = "redis://127.0.0.1:{redis_port}", timeout = 10 }},' if redis_port else ""
    listen = f'{{ "127.0.0.1:{port}", tls = {tls} }}' if tls else f'"127.0.0.1:{port}"'
    access = '"file:access.log"' if log else "false"
    return f"""return {{
  listen = {{ {listen} }}, admin = "127.0.0.1:{admin}", data_dir = "{data}", workers = {workers}, {redis_line}
  limits = {{ connections = 50000 }}, upstream = {{ connections = 0, keepalive = 256 }},
  watchdog = 60, timeouts = {{ drain = 5 }}, log = {{ level = "warn", access = {access} }},
  routes = {{
    {full}
    {{ name = "auth", path = "/auth", {target}, plugins = {{ {auth} }} }},
    {routes}
    {{ name = "plain", path = "/*", {target} }},
  }},
}}
"""


def gateway(rig, binary, origin_port, name="tollgate", core="0", env=None, **settings):
    port, admin = free_port(), free_port()
    config = rig.write(name + ".lua", gateway_config(rig, port, admin, origin_port, name + ".data", **settings))
    process = rig.start(name, [binary, "run", "-c", config], core, {"TOLLGATE_HOME": ROOT, **(env or {})})
    rig.wait_url(process, f"http://127.0.0.1:{admin}/readyz")
    process.port = port
    return process
