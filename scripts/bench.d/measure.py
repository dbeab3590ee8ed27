"""How it is measured: subjects take turns. In every round each of them runs once, in the same order, so that what
else the machine does meets all of them. A figure is the median over the rounds.
"""
import statistics

import load
import servers

CONNECTIONS = 64


class Bench:
    """What a run shares: the rig, the binary under test, and how long and how often is measured."""

    def __init__(self, rig, binary, seconds, rounds, say=lambda text: None):
        self.rig, self.binary, self.seconds, self.rounds, self.say = rig, binary, seconds, rounds, say
        self._origin = None

    @property
    def origin(self):
        if not self._origin:
            self._origin = servers.origin(self.rig)
        return self._origin.port

    def stop(self, *processes):
        for process in processes:
            if process:
                self.rig.stop(process)

    def turns(self, subjects):
        """{name: [what load.cost returned, a round each]} of {name: (processes, url, script, connections)}."""
        for processes, url, script, connections in subjects.values():
            load.run(self.rig, url, script, connections, 1)  # warm: connections, traces, scripts
        got = {name: [] for name in subjects}
        for _ in range(self.rounds):
            for name, (processes, url, script, connections) in subjects.items():
                got[name].append(load.cost(self.rig, processes, url, script, connections, self.seconds))
                self.say(f"{name}: " + ", ".join(f"{who} {us:.1f} us" for who, us in got[name][-1]["cpu"].items()))
        return got


def cpu(runs, who="self"):
    return statistics.median(run["cpu"][who] for run in runs)


def p50(runs):
    return statistics.median(run["p50"] for run in runs)


def url(process, path=""):
    return f"http://127.0.0.1:{process.port}{path}"
