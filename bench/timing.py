# SPDX-License-Identifier: BSD-3-Clause
"""timing.py — how contenders take turns, and what is done when other programs get in the way."""

import statistics
import sys
import time

import machine

# After a parallel region the workers of PyTorch's OpenMP spin for some 7 ms, which would take a
# core from the one that runs next: each turn begins with a pause and, unless a call is long enough
# not to care, an untimed call.
PAUSE_S = 0.02
LONG_CALL_S = 0.5
TURN_S = 0.05  # calls of one turn add up to this at least
MAX_BUSY_ELSEWHERE = 0.1  # cores


class BusyMachine(Exception):
    """Other programs use the processor."""


def timed(call):
    """(what call returns, seconds)."""
    begin = time.perf_counter()
    result = call()
    return result, time.perf_counter() - begin


class Turn:
    """Times one contender, as many calls as fill TURN_S. cold_s: seconds of its first call."""

    def __init__(self, call, cold_s):
        self.call = call
        self.warm = cold_s < LONG_CALL_S
        self.calls = max(1, round(TURN_S / timed(call)[1])) if self.warm else 1

    def take(self):
        time.sleep(PAUSE_S)
        if self.warm:
            self.call()
        begin = time.perf_counter()
        for _ in range(self.calls):
            self.call()
        return (time.perf_counter() - begin) / self.calls


def time_pairs(turns, budget_s, min_pairs):
    """[(ours_s, peer_s)] of two Turns; who begins changes with every pair: no drift favours one."""
    pairs = []
    begin = time.perf_counter()
    while len(pairs) < min_pairs or time.perf_counter() - begin < budget_s:
        order = (0, 1) if len(pairs) % 2 == 0 else (1, 0)
        taken = {who: turns[who].take() for who in order}
        pairs.append((taken[0], taken[1]))
        if len(pairs) == 3 and sum(map(sum, pairs)) > 3 * 2.0:
            break  # over two seconds a pair: three are enough
    return pairs


def undisturbed(name, measure, strict):
    """(what measure returns, cores that others kept busy): up to three times, while others compute.

    Two threads that wait for each other at barriers, as PyTorch's do, lose far more than their
    share of a busy core: such a ratio would flatter fa3.
    """
    for _ in range(3):
        neighbours = machine.Neighbours()
        measured = measure()
        busy = neighbours.cores()
        if busy <= MAX_BUSY_ELSEWHERE:
            return measured, busy
        print(f"{name}: others kept {busy:.2f} cores busy", file=sys.stderr, flush=True)
        if not strict:
            return measured, busy
        time.sleep(5)
    raise BusyMachine(
        f"{name}: others kept {busy:.2f} cores busy in three measurements, need ≤ "
        f"{MAX_BUSY_ELSEWHERE}; stop them and run again, or name --out to record it all the same"
    )


def spread(values, scale=1e3):
    """Median, p10 and p90, by default seconds to milliseconds."""
    tenths = statistics.quantiles(values, n=10, method="inclusive")
    picked = {"median": statistics.median(values), "p10": tenths[0], "p90": tenths[8]}
    return {name: round(scale * value, 4) for name, value in picked.items()}
