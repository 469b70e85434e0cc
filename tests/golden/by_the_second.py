"""An independent answer: reads a '|' dump and walks the window second by second. Shares no code.

python tests/golden/by_the_second.py CASE/in.sacct START END CAPACITY a=4,b=2,c=1
"""

import csv
import json
import re
import sys
from pathlib import Path


def gpus(tres):
    """GPUs of a TRES list that has the untyped total."""
    found = re.search(r"gres/gpu=(\d+)", tres)
    return int(found[1]) if found else 0


def split(capacity, demand, weights):
    """Weighted max-min by raising a water level until the next tenant is satisfied."""
    got = dict.fromkeys(demand, 0.0)
    hungry = {name for name in demand if demand[name] > 0}
    left = float(capacity)
    while hungry and left > 1e-12:
        total = sum(weights[name] for name in hungry)
        step = min([(demand[n] - got[n]) / weights[n] for n in hungry] + [left / total])
        for name in hungry:
            got[name] += step * weights[name]
        left -= step * total
        hungry = {n for n in hungry if demand[n] - got[n] > 1e-12}
    return got


def main(path, start, end, capacity, weights):
    """Attained, deserved, quota and entitled GPU-seconds by account."""
    with Path(path).open() as stream:
        rows = list(csv.DictReader(stream, delimiter="|"))
    jobs = []
    for row in rows:
        ran = row["Start"].isdecimal()
        jobs.append(
            {
                "account": row["Account"],
                "gpus": gpus(row["AllocTRES"] if ran else row["ReqTRES"]),
                "eligible": int(row["Eligible"]),
                "start": int(row["Start"]) if ran else None,
                "end": int(row["End"]) if row["End"].isdecimal() else end,
            }
        )
    total = sum(weights.values())
    result = {n: {"attained": 0, "deserved": 0.0, "quota": 0.0, "entitled": 0.0} for n in weights}
    for t in range(start, end):
        demand, held = dict.fromkeys(weights, 0), dict.fromkeys(weights, 0)
        for job in jobs:
            if job["eligible"] <= t < job["end"]:
                demand[job["account"]] += job["gpus"]
                if job["start"] is not None and job["start"] <= t:
                    held[job["account"]] += job["gpus"]
        entitled = split(capacity, demand, weights)
        for name, sums in result.items():
            quota = capacity * weights[name] / total
            sums["attained"] += held[name]
            sums["deserved"] += min(demand[name], quota)
            sums["quota"] += quota
            sums["entitled"] += entitled[name]
    return result


if __name__ == "__main__":
    _, file, first, last, size, shares = sys.argv
    given = {n: float(v) for n, v in (part.split("=") for part in shares.split(","))}
    print(json.dumps(main(file, int(first), int(last), float(size), given), indent=1))
