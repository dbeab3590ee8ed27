"""Processes of a benchmark: started pinned to a core, measured by /proc, and ended, whatever happens.

CPU time of a process is utime + stime of it and of all its descendants, in seconds. On a machine that others
use too it is what can be compared: time on the clock cannot. Each process runs in a directory of its own
under the rig's, with its output in a file there.
"""
import os
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request

TICK = os.sysconf("SC_CLK_TCK")
START_LIMIT = 60  # seconds


def raise_descriptors(wanted=65536):
    """Raises the limit of open files for what is started; returns what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for most in (max(wanted, hard), hard):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
            return most
        except (OSError, ValueError):
            continue
    return soft


def compiled(rig, source, *options):
    """Path of the program, or with -shared the library, made of a file of C."""
    out = rig.path(os.path.basename(source)[:-2])
    done = subprocess.run(["cc", "-O2", "-D_GNU_SOURCE", *options, "-o", out, source], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"cc failed:\n{done.stderr}")
    return out


class Failed(Exception):
    """Something that a person has to see: one sentence, without a trace."""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _stat(pid):
    """(parent, ticks) of a process, None once it is gone. The name in braces may hold blanks."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            fields = f.read().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[1]), int(fields[11]) + int(fields[12])


def tree(pid):
    """The process and its descendants."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            stat = _stat(name)
            if stat:
                parents.setdefault(stat[0], []).append(int(name))
    found, rest = [], [pid]
    while rest:
        found.append(rest.pop())
        rest += parents.get(found[-1], [])
    return found


def cpu_seconds(pid):
    return sum(stat[1] for stat in map(_stat, tree(pid)) if stat) / TICK


def resident_bytes(pid):
    total = 0
    for each in tree(pid):
        try:
            with open(f"/proc/{each}/statm") as f:
                total += int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            pass
    return total


class Rig:
    """Owns the directory and the processes; `with Rig() as rig` ends and removes all of it."""

    def __init__(self, keep=False):
        self.dir = tempfile.mkdtemp(prefix="tollgate-bench-")
        self.keep = keep
        self.descriptors = raise_descriptors()
        self.running = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        while self.running:
            self.stop(self.running[-1])
        if not self.keep:
            shutil.rmtree(self.dir, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, text):
        with open(self.path(name), "w") as f:
            f.write(text)
        return self.path(name)

    def start(self, name, argv, core, env=None):
        """Starts argv on a core ("0", or "0,1"); returns the process, whose pid is that of argv itself."""
        out = open(self.path(name + ".out"), "wb")
        try:
            process = subprocess.Popen(["taskset", "-c", core] + argv, cwd=self.dir, stdin=subprocess.DEVNULL,
                                       stdout=out, stderr=out, env={**os.environ, **(env or {})})
        finally:
            out.close()
        process.label = name
        self.running.append(process)
        return process

    def stop(self, process):
        self.running.remove(process)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            for pid in tree(process.pid):
                os.kill(pid, signal.SIGKILL)
            process.wait()

    def output(self, process):
        with open(self.path(process.label + ".out"), errors="replace") as f:
            return f.read()[-2000:]

    def wait(self, process, ready, what):
        end = time.monotonic() + START_LIMIT
        while not ready():
            if process.poll() is not None:
                raise Failed(f"{process.label} ended before {what}:\n{self.output(process)}")
            if time.monotonic() > end:
                raise Failed(f"{process.label}: no {what} within {START_LIMIT} s:\n{self.output(process)}")
            time.sleep(0.02)

    def wait_port(self, process, port):
        def ready():
            with socket.socket() as s:
                return s.connect_ex(("127.0.0.1", port)) == 0
        self.wait(process, ready, f"a listener on port {port}")

    def wait_url(self, process, url):
        def ready():
            try:
                return urllib.request.urlopen(url, timeout=5).status == 200
            except OSError:
                return False
        self.wait(process, ready, f"a 200 from {url}")
