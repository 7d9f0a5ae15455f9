#!/usr/bin/env python3
"""Start-up of the default job compared with a bare MPI program with as many ranks that only calls MPI_Init.

Both run alternately, for several rounds, on this machine. Times are wall times: ours from the command to the beginning
of the first step, by the launcher's own clock; the bare program's from mpirun's start to its end, including
MPI_Finalize. If openssl is installed, a third column shows the same job with TLS on every connection (--tls-cert),
which a job on one host does not use by default. Exit code 0 if start-up is quick enough, 1 if not or if something went
wrong, 77 if mpicc is missing.
"""
import argparse
import os
import pathlib
import shutil
import sys
import tempfile
import time

import emulated_job as job

LIMIT = 1.5
BARE_PROGRAM = """
#include <mpi.h>
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  return MPI_Finalize();
}
"""
# What is needed to run 16 ranks on few cores without spinning, as the launcher does.
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


def make_certificate(folder):
    """Returns the options for a self-signed certificate."""
    certificate, key = folder / "job.pem", folder / "job.key"
    job.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
             "-subj", "/CN=job.example", "-keyout", key, "-out", certificate], 60)
    return ["--tls-cert", certificate, "--tls-key", key, "--tls-ca", certificate]


def run_ours(bin_folder, options=()):
    profile, _ = job.run_job(bin_folder, job.ROOT / "train.cfg", steps=1, deadline_seconds=120, options=options)
    return profile["wall"]["startupSeconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=job.ROOT / "build/release/bin", help="folder with programs")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("needs at least 1 round")
    if not (shutil.which("mpicc") and shutil.which("mpirun")):
        job.skip("mpicc or mpirun is missing; Debian's packages are libopenmpi-dev and openmpi-bin")
    bin_folder = job.find_bin(options.bin)

    with tempfile.TemporaryDirectory() as folder:
        program = build_bare_program(pathlib.Path(folder))
        tls = make_certificate(pathlib.Path(folder)) if shutil.which("openssl") else None
        run_ours(bin_folder), run_bare(program)  # Brings the files into the page cache.
        rows = []
        for _ in range(options.rounds):
            ours, bare = run_ours(bin_folder), run_bare(program)
            rows.append((ours, bare, ours / bare, *([run_ours(bin_folder, tls)] if tls else [])))
    print(f"start-up of {job.REPLICAS} processes: seconds (wall)")
    names = ("poprun-emu s", "bare MPI s", "ratio", "poprun-emu, TLS s")
    medians = job.print_rounds(names[:len(rows[0])], rows)
    if tls:
        more = medians[3] - medians[0]
        print(f"TLS: {1000 * more:+.0f} ms, {100 * more / medians[3]:.1f} % of start-up with it (medians)")
    return job.verdict("start-up of poprun-emu to a bare MPI program, median of rounds", medians[2],
                       medians[2] <= LIMIT, f"at most {LIMIT} x required")


if __name__ == "__main__":
    sys.exit(main())
