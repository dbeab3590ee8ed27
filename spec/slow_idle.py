"""Keeps idle connections: slow_idle.py PORT N [CA]. Sends one request on each, says "ready", and waits to be ended."""
import signal
import socket
import ssl
import sys

port, n = int(sys.argv[1]), int(sys.argv[2])
context = ssl.create_default_context(cafile=sys.argv[3]) if len(sys.argv) > 3 else None
kept = []
for i in range(n):
    # Another address for each 20,000: the ports of one do not suffice for more.
    s = socket.create_connection(("127.0.0.1", port), 60, ("127.0.0.%d" % (2 + i // 20000), 0))
    if context:
        s = context.wrap_socket(s, server_hostname="a.test")
    s.sendall(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
    got = b""
    while not got.endswith(b"hello"):
        part = s.recv(4096)
        if not part:
            sys.exit("connection %d was closed" % i)
        got += part
    kept.append(s)
print("ready", flush=True)
signal.pause()
