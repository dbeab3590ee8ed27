"""The command line of scripts/bench."""
import argparse

EPILOG = """Needs nginx, haproxy, redis-server and wrk: scripts/setup --bench installs them. What is measured runs on core 0,
all else on core 1. Exit code: 0, 1 where --check found a ratio that regressed by over 15 %, 2 where something is wrong."""


def parser(groups):
    p = argparse.ArgumentParser(prog="scripts/bench", description="Measures the gateway beside its peers.", epilog=EPILOG)
    p.add_argument("--quick", action="store_true", help="in about two minutes: fewer and shorter rounds, without the groups instructions and load")
    p.add_argument("--only", action="append", metavar="NAME", choices=sorted(groups),
                   help="this group alone, may be given several times: " + ", ".join(groups))
    p.add_argument("--rounds", type=positive, metavar="N", help="rounds of each measurement")
    p.add_argument("--seconds", type=positive, metavar="N", help="seconds of a subject in a round")
    p.add_argument("--bin", metavar="FILE", help="measure this tollgate instead of building one")
    agreeing = p.add_mutually_exclusive_group()
    agreeing.add_argument("--check", action="store_true", help="compare ratios with scripts/bench.d/agreed")
    agreeing.add_argument("--agree", action="store_true",
                          help="write what was measured to the file of agreed ratios; other groups' stay")
    p.add_argument("--agreed", metavar="FILE", help="another file of agreed ratios")
    p.add_argument("--rows", metavar="FILE", help="take what an earlier run measured (build/bench.json) instead of measuring")
    p.add_argument("--chart", metavar="FILE", help="draw cost against load, of the group load, as SVG into this file")
    p.add_argument("--configs", action="store_true", help="only have each server that is installed check its configuration")
    p.add_argument("--verbose", action="store_true", help="tell each run")
    return p


def positive(text):
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, not {text}")
    return int(text)
