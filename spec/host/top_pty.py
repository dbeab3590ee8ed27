# Runs a program on a terminal of its own, as a job of a shell, and drives it by steps.
#
# stdin: {"argv", "rows", "columns", "steps"}, a step being one of
#   ["expect", PATTERN]  waits until what the program wrote, behind what was seen so far, has it
#   ["send", TEXT]  ["size", ROWS, COLUMNS]  ["signal", "SIGTERM"]
#   ["say", WORD]   a line on stdout, for the spec;  ["file", PATH]  waits until the spec has made it
# The job's shell writes on the terminal "[stopped …]" and goes on at a line, and "[ended code=… signal=… same=…]";
# same: the terminal's modes are what they were. Exit code 1, with what was written last, where a step fails.
import fcntl
import json
import os
import pty
import re
import resource
import select
import signal
import struct
import sys
import termios
import time

LIMIT = 60


def shell(argv):
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    before = termios.tcgetattr(0)
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.execv(argv[0], argv)
    os.write(1, b"[pid %d]\n" % pid)
    while True:
        _, status = os.waitpid(pid, os.WUNTRACED)
        os.tcsetpgrp(0, os.getpgrp())
        same = termios.tcgetattr(0) == before
        if not os.WIFSTOPPED(status):
            break
        os.write(1, b"[stopped same=%s]\n" % str(same).encode())
        os.read(0, 100)
        os.tcsetpgrp(0, pid)
        os.kill(pid, signal.SIGCONT)
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -1
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    os.write(1, b"[ended code=%d signal=%d same=%s]\n" % (code, number, str(same).encode()))
    os._exit(0)


class Terminal:
    def __init__(self, master):
        self.master, self.seen, self.over = master, "", False

    def read(self):
        ready, _, _ = select.select([self.master], [], [], 0.2)
        if ready:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                data = b""
            self.over = not data
            self.seen += data.decode("utf-8", "replace")

    def expect(self, pattern):
        end = time.monotonic() + LIMIT
        while True:
            match = re.search(pattern, self.seen, re.S)
            if match:
                self.seen = self.seen[match.end():]
                return match
            if self.over or time.monotonic() > end:
                sys.stderr.write("no %r in:\n%s\n" % (pattern, repr(self.seen[-6000:])))
                sys.exit(1)
            self.read()

    def size(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def wait_file(path, terminal):
    end = time.monotonic() + LIMIT
    while not os.path.exists(path):
        if time.monotonic() > end:
            sys.exit("no " + path)
        terminal.read()


def main():
    job = json.load(sys.stdin)
    release, ready = os.pipe()
    leader, master = pty.fork()
    if leader == 0:
        os.read(release, 1)  # until the terminal has its size
        shell(job["argv"])
    terminal = Terminal(master)
    terminal.size(job["rows"], job["columns"])
    os.write(ready, b"x")
    pid = int(terminal.expect(r"\[pid (\d+)\]").group(1))
    try:
        for step in job["steps"]:
            what, args = step[0], step[1:]
            if what == "expect":
                terminal.expect(*args)
            elif what == "send":
                os.write(master, args[0].encode())
            elif what == "size":
                terminal.size(*args)
            elif what == "signal":
                os.kill(pid, getattr(signal, args[0]))
            elif what == "say":
                print(args[0], flush=True)
            elif what == "file":
                wait_file(args[0], terminal)
            else:
                sys.exit("no step " + what)
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise


main()
