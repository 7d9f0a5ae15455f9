#!/usr/bin/env python3
"""Compares our collectives with Open MPI's own, on this host and between hosts: a table, and JSON lines.

    POPRUN_EMU_BUILD=build/release python3 tests/bench/collectives.py [--json FILE] [--ranks 2,16]
    POPRUN_EMU_BUILD=build/release python3 tests/bench/collectives.py --hosts 4 --ranks 16 --rate 1gbit
    POPRUN_EMU_BUILD=build/release python3 tests/bench/collectives.py --ranks 12+4 --rate 1gbit

With --hosts, or with ranks given per host, hosts are network namespaces (tests/multihost) that send at
`--rate` each. Columns:

    x MPI      Open MPI's time / ours, medians of 5 alternating rounds, both with mpi_yield_when_idle
    x its CPU  our processor time / Open MPI's: the comparison that counts on a busy machine
    x memcpy   our time / time for all ranks to copy their vector once (each byte read and written once)
    algbw      bytes of the vector / our time
    busbw      algbw x 2 (R - 1) / R for R ranks, for an all-reduce; half of that for the others (nccl-tests)
    wire       bytes sent by the host that sent most, counted by its interface, / the minimum, which is
               (H - 1) / H of the vector on H hosts, and twice that for an all-reduce
    of limit   time for that minimum at the link's full rate / our time. Headers of TCP, IP and Ethernet take
               66 of a packet's 1514 B, so 96 % is the maximum.

Results are checked before anything is timed.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "multihost"))
import cluster

SETTINGS = {"OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
            "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,vader,tcp",
            "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
UNITS = {"gbit": 1e9, "mbit": 1e6}


def rows_of(command, environment):
    done = subprocess.run(command, env={**os.environ, **SETTINGS, **environment}, stdout=subprocess.PIPE,
                          text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def on_one_host(program, ranks):
    return rows_of(["mpirun", "-n", str(ranks), *program], {})


def between_hosts(program, ranks, rate):
    hosts = len(ranks)
    with cluster.Cluster(hosts, rate) as nodes:
        placed = ",".join(f"{name}:{count}" for name, count in zip(nodes.names, ranks))
        command = ["mpirun", "-n", str(sum(ranks)), "--host", placed, *program, "eth0"]
        rows = rows_of(nodes.command_on("node0", *command), nodes.environment())
    bits_per_second = float(rate[:-4]) * UNITS[rate[-4:]]
    for row in rows:
        phases = 2 if row["collective"] == "all-reduce" else 1
        least = phases * (hosts - 1) / hosts * row["bytes"]
        row.update(hosts=hosts, rate=rate, wire_over_least=row["wire_bytes_a_host"] / least,
                   of_wire_limit=least * 8 / bits_per_second * 1e6 / row["us"])
    return rows


def print_table(rows):
    print(f"{'collective':<15}{'hosts':>6}{'ranks':>6}{'KiB':>8}{'ours us':>11}{'Open MPI us':>13}{'x MPI':>7}"
          f"{'x its CPU':>11}{'x memcpy':>10}{'algbw GB/s':>12}{'busbw GB/s':>12}{'wire':>7}{'of limit':>10}")
    for row in rows:
        wire = f"{row['wire_over_least']:>7.3f}{row['of_wire_limit']:>9.0%}" if "rate" in row else ""
        print(f"{row['collective']:<15}{row.get('hosts', 1):>6}{row['ranks']:>6}{row['bytes'] // 1024:>8}"
              f"{row['us']:>11.1f}{row['openmpi_us']:>13.1f}{row['openmpi_us'] / row['us']:>7.2f}"
              f"{row['cpu_us'] / row['openmpi_cpu_us']:>11.2f}{row['us'] / row['memcpy_us']:>10.2f}{row['algbw_gb_s']:>12.3f}{row['busbw_gb_s']:>12.3f}{wire}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--ranks", default="2,16")
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--smallest", type=int, default=4, help="KiB; sizes grow by 4")
    parser.add_argument("--largest", type=int, default=65536)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    program = [str(pathlib.Path(os.environ["POPRUN_EMU_BUILD"]).resolve() / "tests/bench/collectives_bench"),
               str(options.smallest * 1024), str(options.largest * 1024)]
    if options.hosts > 1 or "+" in options.ranks:
        cluster.enter_sandbox()
    rows = []
    for ranks in options.ranks.split(","):
        counts = [int(count) for count in ranks.split("+")]
        if options.hosts > 1 and len(counts) == 1:
            counts = [counts[0] // options.hosts] * options.hosts
        rows += between_hosts(program, counts, options.rate) if len(counts) > 1 else on_one_host(program, counts[0])
    print_table(rows)
    if options.json:
        options.json.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
