"""All groups of measurements, by name, in the order in which they run."""
from cases import latency, plain, quota
from cases_growth import growth, load_curve
from cases_inside import allocations, instructions
from cases_streams import streams
from cases_tls import tls

GROUPS = {"plain": plain, "quota": quota, "latency": latency, "streams": streams, "growth": growth, "tls": tls,
          "allocations": allocations, "instructions": instructions, "load": load_curve}
