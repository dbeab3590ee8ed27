"""Runs a command on a terminal of its own: on_pty.py COLUMNS STREAMS COMMAND [ARGUMENTS...]

STREAMS is "all", or "stderr", where stdout stays what it is. What the command writes to the terminal comes out of our
stdout, or of our stderr where only its stderr is the terminal. The exit code is the command's.
"""
import fcntl
import os
import pty
import struct
import sys
import termios


def run(columns, streams, command):
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    modes = termios.tcgetattr(slave)
    modes[1] &= ~termios.OPOST  # line breaks as they are written
    termios.tcsetattr(slave, termios.TCSANOW, modes)
    child = os.fork()
    if child == 0:
        os.close(master)
        for fd in (1, 2) if streams == "all" else (2,):
            os.dup2(slave, fd)
        os.close(slave)
        os.execv(command[0], command)
    os.close(slave)
    out = 1 if streams == "all" else 2
    while True:
        try:
            data = os.read(master, 65536)
        except OSError:  # how a terminal's end shows on Linux
            break
        if not data:
            break
        while data:
            data = data[os.write(out, data):]
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


sys.exit(run(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
