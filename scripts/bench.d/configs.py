"""Has every server check the configuration that a benchmark gives it; nothing is started."""
import os
import subprocess

import servers

PORTS = (18080, 18081, 18082)  # nothing listens


def _commands(rig, binary):
    """(name, command and arguments, further environment); None in the place of a command: not installed."""
    port, origin, admin = PORTS
    nginx, haproxy, lua = servers.find("nginx"), servers.find("haproxy"), servers.lua_module()

    def check(config):
        return [nginx, "-t", "-q", "-p", rig.dir, "-e", "stderr", "-c", config]
    with open(rig.path("big"), "wb"):
        pass
    yield "tollgate", [binary, "check", "-c", rig.write("tollgate.lua", servers.gateway_config(
        rig, port, admin, origin, redis_port=1, keys=10))], {"TOLLGATE_HOME": servers.ROOT}
    yield "nginx", nginx and check(servers.nginx_config(rig, "nginx", servers.plain_http(port, origin))), {}
    yield "origin", nginx and check(servers.nginx_config(rig, "origin", servers.origin_http(rig, port))), {}
    if nginx and lua:
        modules, lua_path, libraries = lua
        config = servers.nginx_config(rig, "nginx-lua", servers.lua_http(port, origin, lua_path), modules=servers.lua_modules(modules),
                                      env="env REDIS_PORT;")
        yield "nginx+Lua", check(config), {"LD_LIBRARY_PATH": libraries, "REDIS_PORT": "1"}
    else:
        yield "nginx+Lua", None, {}
    yield "haproxy", haproxy and [haproxy, "-c", "-q", "-f", rig.write(
        "haproxy.cfg", servers.HAPROXY.format(port=port, origin=origin))], {}


def check(rig, binary):
    """{name: "accepted", "not installed", or what the server says}."""
    found = {}
    for name, command, env in _commands(rig, binary):
        if not command:
            found[name] = "not installed"
            continue
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **env}, check=False)
        found[name] = "accepted" if done.returncode == 0 else (done.stdout + done.stderr).strip()
    return found
