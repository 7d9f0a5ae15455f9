#!/usr/bin/env python3
"""poprun-emu profile, as a user runs it: where a job's memory and time go."""
import json
import re
import subprocess
import unittest

from emulated_job import BIN, DEADLINE_SECONDS, QUICK, JobTest

SMALL_DEVICE = ("--device.tiles", 24, "--device.bytes-per-tile", 1 << 20)


class Profile(JobTest):
    def assert_one_line(self, job, *parts):
        self.assert_first_line(job, *parts)
        self.assertEqual(len(job.stderr.splitlines()), 1, job.stderr)

    def test_shows_and_writes_what_was_compiled_and_run(self):
        job = self.run_job("profile", *SMALL_DEVICE, config=QUICK)
        for part in ("# profile of small-cnn on 1 IPU of mk2: fits", "# liveness of IPU 0",
                     "variables at the peak of IPU 0", "tiles, bytes", "executed       3 steps",
                     f"results in {job.output_dir}: ", "profile.pb and profile.json"):
            self.assertIn(part, job.stdout)
        self.assertTrue((job.output_dir / "profile.pb").exists())
        self.assertFalse((job.output_dir / "weights.safetensors").exists())
        profile = job.profile()
        self.assertEqual(profile["outcome"]["steps"], 3)
        self.assertGreater(profile["wall"]["trainingSeconds"], 0)
        self.assertGreater(profile["measuredPeakBytes"][0], 0)
        ipu = profile["report"]["ipus"][0]
        self.assertEqual(len(ipu["liveness"]["notAlwaysLive"]), profile["report"]["steps"])
        names = {variable["name"] for variable in profile["report"]["variables"]}
        self.assertIn("fc1.weight", names)
        self.assertTrue(any(row["name"] == "conv2" and row["plan"]
                            for row in profile["report"]["operators"]))
        self.assertTrue(any("Call(target: " in json.dumps(function)
                            for function in profile["report"]["functions"]))
        self.assert_gone(job)

    def test_shows_the_wall_time_of_each_kind_of_operator(self):
        job = self.run_job("profile", "-n", 2, "--profile-steps", 4, config=QUICK)
        table = job.stdout.split("# kinds of operators in a step")[1].split("\n\n")[0].splitlines()[2:]
        kinds = {line.split()[-1]: line for line in table}
        self.assertIn("conv2d_weight_gradient", kinds)
        self.assertNotIn("tensors", kinds, "copies and exchanges of different numbers of tensors are one kind")
        profile = job.profile()
        seconds = profile["wall"]["stepSeconds"]
        self.assertEqual(len(seconds), profile["report"]["steps"] + 1)
        self.assertGreater(sum(seconds), 0)
        # Each step is at least as long as its parts. (The first of the four is not measured.)
        self.assertLess(3 * sum(seconds), profile["wall"]["trainingSeconds"])
        planned = self.run_job("profile", "--no-run", config=QUICK)
        self.assertNotIn("# kinds of operators", planned.stdout)

    def test_cuts_names_at_the_width_of_the_page_only(self):
        written = self.run_job("profile", "--no-run", *SMALL_DEVICE, config=QUICK).stdout
        self.assertGreater(max(map(len, written.splitlines()[:-1])), 80)
        shown = self.run_job("profile", "--no-run", *SMALL_DEVICE, config=QUICK, environment={"COLUMNS": "80"}).stdout
        self.assertLessEqual(max(map(len, shown.splitlines()[:-1])), 80)

    def test_runs_as_the_job_does(self):
        job = self.run_job("profile", "-n", 2, "--memory.tiles", "exact", "--profile-steps", 2,
                           *SMALL_DEVICE, config=QUICK)
        self.assertIn("executed       2 steps", job.stdout)
        self.assertRegex(job.stdout, "IPU 0 +[0-9.]+ MiB used on its tiles, as planned")
        job = self.run_job("profile", "--model.mode", "inference", config=QUICK)
        self.assertIn("executed       12 items", job.stdout)
        self.assertRegex(job.stdout, "used by contiguous tensors, as planned")
        self.assertFalse((job.output_dir / "outputs.npy").exists())

    def test_agrees_with_a_dry_run(self):
        compiled = self.run_job("--dry-run", config=QUICK)
        tile, peak = re.search(r"tile (\d+) is the fullest, ([0-9,]+) of", compiled.stdout).groups()
        profiled = self.run_job("profile", "--no-run", config=QUICK)
        self.assertRegex(profiled.stdout, f"  tile {tile} .* {peak} of 638,976 B")

    def test_regions_of_all_tiles_add_up_to_the_planned_peak(self):
        job = self.run_job("profile", "--no-run", *SMALL_DEVICE, config=QUICK)
        profile = job.profile()
        ipu = profile["report"]["ipus"][0]
        total = 0
        for one in ipu["classes"]:
            self.assertEqual(one["peak"], one["alwaysLive"] + one["notAlwaysLive"] + one["gaps"])
            total += one["peak"] * sum(s["last"] - s["first"] + 1 for s in one["tiles"])
        self.assertEqual(total, profile["plannedMemory"][0]["peak"])
        self.assertNotIn("outcome", profile)
        self.assertIn("executed       nothing", job.stdout)

    def test_equal_jobs_have_equal_profiles(self):
        jobs = [self.run_job("profile", "--no-run", config=QUICK) for _ in range(2)]
        for name in ("profile.json", "profile.pb"):
            self.assertEqual(*[(job.output_dir / name).read_bytes() for job in jobs])

    def test_of_what_does_not_fit_ends_with_86_after_its_profile(self):
        job = self.run_job("profile", "--device.tiles", 24, "--device.bytes-per-tile", 100000,
                           config=QUICK, code=86)
        self.assertRegex(job.stdout, "# profile of small-cnn .*: does not fit, [0-9]+ tiles? over")
        self.assertIn("executed       nothing", job.stdout)
        self.assert_first_line(job, "out of memory: model small-cnn")
        self.assertTrue((job.output_dir / "profile.pb").exists())
        self.assertTrue(job.profile()["report"]["shortage"].startswith("out of memory"))
        self.assertFalse((job.output_dir / "metrics.csv").exists(), "nothing ran")

    def test_shows_the_liveness_of_a_tile(self):
        job = self.run_job("profile", "--no-run", "--tile", 7, "--ipus-per-replica", 2, *SMALL_DEVICE,
                           config=QUICK)
        self.assertIn("# liveness of tile 7 of IPU 0", job.stdout)
        self.assertIn("# liveness of tile 7 of IPU 1", job.stdout)
        job = self.run_job("profile", "--no-run", "--tile", "1:7", "--ipus-per-replica", 2,
                           *SMALL_DEVICE, config=QUICK)
        self.assertNotIn("of tile 7 of IPU 0", job.stdout)
        self.assertIn("# liveness of tile 7 of IPU 1", job.stdout)

    def test_compares_two_files_of_either_form(self):
        jobs = [self.run_job("profile", "--no-run", "--data.micro-batch-size", size, config=QUICK)
                for size in (4, 8)]
        files = [jobs[0].output_dir / "profile.pb", jobs[1].output_dir / "profile.json"]
        compared = self.compare(*files)
        self.assertIn(f"# source {files[0]}: small-cnn on 1 IPU", compared.stdout)
        row = re.search(r"^not always live +(\S+ \S+) +(\S+ \S+) +\+(\S+ \S+)$", compared.stdout, re.M)
        self.assertTrue(row, compared.stdout)
        self.assertIn("cycles of operators in a step, by difference", compared.stdout)
        same = self.compare(files[0], files[0])
        self.assertIn("  no difference\n", same.stdout)

    def compare(self, *files, code=0):
        """Compares profiles without running a job."""
        compared = subprocess.run([BIN / "poprun-emu", "profile", "--compare", *files], text=True,
                                  capture_output=True, timeout=DEADLINE_SECONDS)
        self.assertEqual(compared.returncode, code, compared.stdout + compared.stderr)
        return compared

    def test_refuses_bad_input_in_a_line(self):
        for arguments, *parts in (
                (["--tile", 1472, "--no-run"], "--tile 1472", "tiles 0 to 1471"),
                (["--tile", "1:0", "--no-run"], "--tile 1:0", "IPUs 0 to 0"),
                (["--tile", "a"], "--tile = a", "IPU:TILE"),
                (["--profile-steps", 0], "--profile-steps = 0", "1"),
                (["--dry-run"], "--dry-run", "--no-run")):
            job = self.run_job("profile", *arguments, config=QUICK, code=64)
            self.assert_one_line(job, *parts)
            self.assertEqual(job.stdout, "")
        self.assert_one_line(self.compare("a.pb", code=64), "--compare needs two profiles")
        self.assert_one_line(self.compare("a.pb", "b.pb", code=65), "a.pb", "cannot be read")
        run = self.run_job("--training.steps", 1, config=QUICK)
        file = run.output_dir / "profile.json"
        self.assert_one_line(self.compare(file, file, code=65), "contains no report of the compiled job")

    def test_leaves_earlier_results_alone_unless_told(self):
        job = self.run_job("profile", "--no-run", config=QUICK)
        again = self.run_job("profile", "--no-run", "--output-dir", job.output_dir, config=QUICK,
                             code=64)
        self.assert_one_line(again, "--overwrite")
        self.run_job("profile", "--no-run", "--overwrite", "--output-dir", job.output_dir,
                     config=QUICK)


if __name__ == "__main__":
    unittest.main()
