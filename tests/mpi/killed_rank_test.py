#!/usr/bin/env python3
"""A rank is killed in the middle of a collective: all others report in time which one."""
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile
import unittest

MPIEXEC, KILLED_RANK = sys.argv.pop(1), sys.argv.pop(1)

RANKS = 4
DEADLINE = 2.0  # The deadline of killed_rank.
BUSY = 10.0  # Extra time for a busy machine.
CALLS = ["all-reduce", "reduce-scatter", "all-gather", "broadcast", "barrier", "allocate"]


def survivors(call, hosts, victim):
    """Returns the reports of the surviving ranks: {rank: (seconds, message)}."""
    # In a shared folder, two mpiruns may fail to create their sessions.
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [MPIEXEC, "--oversubscribe", "--bind-to", "none", "--mca", "orte_enable_recovery", "1",
             "-n", str(RANKS), KILLED_RANK, call, str(hosts), str(victim)], env={**os.environ, "TMPDIR": folder},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    found = {int(rank): (float(seconds), message) for rank, seconds, message in
             re.findall(r"^rank (\d+) after ([0-9.]+) s: (.*)$", done.stdout, re.MULTILINE)}
    if not found:
        raise AssertionError(done.stdout + done.stderr)
    return found


class KilledRank(unittest.TestCase):
    def check(self, hosts, victim):
        with concurrent.futures.ThreadPoolExecutor(3) as pool:  # Most of the time is spent waiting for the deadline.
            all_found = list(pool.map(lambda call: survivors(call, hosts, victim), CALLS))
        for call, found in zip(CALLS, all_found):
            with self.subTest(call=call, hosts=hosts, victim=victim):
                self.assertEqual(sorted(found), [r for r in range(RANKS) if r != victim])
                messages = {message for _, message in found.values()}
                self.assertEqual(len(messages), 1, found)
                self.assertRegex(messages.pop(),
                                 rf"^{call} \d+: replica {victim} did not arrive within [0-9]+ m?s$")
                # Hosts wait another half of the deadline for one another's reasons.
                self.assertLess(max(seconds for seconds, _ in found.values()), 1.5 * DEADLINE + BUSY)

    def test_before_the_first_call_is_named_by_who_starts(self):
        for hosts in 1, 2:
            for rank, (seconds, message) in survivors("start", hosts, 2).items():
                self.assertRegex(message, r"^start of the exchange: replica 2 did not arrive within 2 s; ", rank)
                self.assertLess(seconds, DEADLINE + BUSY)

    def test_of_one_host_is_named_by_its_peers(self):
        self.check(hosts=1, victim=2)

    def test_that_speaks_for_its_host_is_named_everywhere(self):
        self.check(hosts=2, victim=2)

    def test_that_shares_its_hosts_work_is_named_everywhere(self):
        self.check(hosts=2, victim=3)

    def test_alone_on_its_host_is_named_by_the_others(self):
        self.check(hosts=4, victim=2)


if __name__ == "__main__":
    os.environ.update({"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                       "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_pml": "ob1",
                       "OMPI_MCA_btl": "self,vader,tcp",
                       "OMPI_MCA_btl_vader_single_copy_mechanism": "none"})
    unittest.main()
