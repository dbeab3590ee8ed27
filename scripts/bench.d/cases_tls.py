"""TLS beside nginx: CPU of a megabyte, and of a request on a connection of its own (a handshake, no resumption)."""
import subprocess

import load
import servers
from measure import cpu
from report import Row
from rig import free_port


def certificate(rig):
    subprocess.run([servers.need("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "30", "-subj", "/CN=localhost", "-keyout", rig.path("tls.key"), "-out", rig.path("tls.crt")],
                   check=True, capture_output=True, timeout=60)


def nginx_tls(b):
    port = free_port()
    extra = (f"ssl_certificate {b.rig.dir}/tls.crt; ssl_certificate_key {b.rig.dir}/tls.key; ssl_protocols TLSv1.2 TLSv1.3;"
             "proxy_max_temp_file_size 0;")
    return servers.nginx(b.rig, "nginx", servers.plain_http(port, b.origin, extra, "ssl"), port)


def tls(b):
    certificate(b.rig)
    gateway = servers.gateway(b.rig, b.binary, b.origin, log=False, tls='{ cert = "tls.crt", key = "tls.key" }')
    nginx = nginx_tls(b)
    rows = []
    for name, script, connections in (("CPU a megabyte", load.script("/big"), 8),
                                      ("CPU a handshake", load.script("/", close=True), 16)):
        got = b.turns({who: ({"self": p}, f"https://127.0.0.1:{p.port}", script, connections)
                       for who, p in (("tollgate", gateway), ("nginx", nginx))})
        rows.append(Row("tls", name, cpu(got["tollgate"]), "us", cpu(got["nginx"]), "nginx"))
    b.stop(gateway, nginx)
    return rows
