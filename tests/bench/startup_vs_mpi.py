#!/usr/bin/env python3
"""Start-up of the default job compared with a bare MPI program with equally many ranks that only calls MPI_Init.

Both run in turn, several rounds, on this machine. Wall time: ours from the command to the beginning of the first step,
by the launcher's own clock; the bare program's from mpirun's start to its end, including MPI_Finalize.
Exit code 0 if start-up is quick enough, 1 if not or if something went wrong, 77 without mpicc.
"""
import argparse
import os
import pathlib
import shutil
import sys
import tempfile
import time

import emulated_job as job

LIMIT = 2.0
BARE_PROGRAM = """
#include <mpi.h>
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  return MPI_Finalize();
}
"""
# The launcher's own settings for mpirun, so that programs are compared and not settings.
SETTINGS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,vader,tcp",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
}


def build_bare_program(folder):
    source, program = folder / "bare.c", folder / "bare"
    source.write_text(BARE_PROGRAM)
    job.run(["mpicc", "-O2", "-o", program, source], 60)
    return program


def run_bare(program):
    begin = time.perf_counter()
    job.run(["mpirun", "-n", str(job.REPLICAS), program], 60, env={**os.environ, **SETTINGS})
    return time.perf_counter() - begin


def run_ours(bin_folder):
    profile, _ = job.run_job(bin_folder, job.ROOT / "train.cfg", steps=1, deadline_seconds=120)
    return profile["wall"]["startupSeconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=job.ROOT / "build/release/bin", help="folder of programs")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("needs at least 1 round")
    if not (shutil.which("mpicc") and shutil.which("mpirun")):
        job.skip("there is no mpicc or mpirun; Debian's packages are libopenmpi-dev and openmpi-bin")
    bin_folder = job.find_bin(options.bin)

    with tempfile.TemporaryDirectory() as folder:
        program = build_bare_program(pathlib.Path(folder))
        run_ours(bin_folder), run_bare(program)  # Brings the files into the page cache.
        rows = []
        for _ in range(options.rounds):
            ours, bare = run_ours(bin_folder), run_bare(program)
            rows.append((ours, bare, ours / bare))
    print(f"start-up of {job.REPLICAS} processes: seconds (wall)")
    medians = job.print_rounds(("poprun-emu s", "bare MPI s", "ratio"), rows)
    return job.verdict("start-up of poprun-emu to a bare MPI program, median of rounds", medians[2],
                       medians[2] <= LIMIT, f"at most {LIMIT} x wanted")


if __name__ == "__main__":
    sys.exit(main())
