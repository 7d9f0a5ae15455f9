#!/usr/bin/env python3
"""report.html in Chromium, opened as a file and used with the keyboard alone (report_page.mjs)."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import unittest

from emulated_job import BIN, DEADLINE_SECONDS, ROOT, JobTest

COMPILED = ["summary", "memory", "liveness", "program", "operations", "execution"]
NEEDED = (pathlib.Path("/usr/bin/chromium"), ROOT / "launcher/report/page/node_modules/playwright-core",
          BIN.parent / "share/report.html")


class Page(JobTest):
    def look(self, *folders, **environment):
        """Returns what Chromium saw of a report about these jobs: for each job, its views by name."""
        self.run_job("report", *folders, "--output-dir", self.folder / "page", config=None)
        return self.see(self.folder / "page/report.html", **environment)

    def see(self, page, **environment):
        script = ROOT / "tests/e2e/report_page.mjs"
        done = subprocess.run(["node", script, page], capture_output=True, text=True, timeout=DEADLINE_SECONDS,
                              env={**os.environ, **environment})
        self.assertEqual(done.returncode, 0, done.stderr)
        seen = json.loads(done.stdout)
        self.assertEqual(seen["errors"], [])
        self.assertEqual(seen["requests"], [])
        for job in seen["jobs"]:
            for view in job:
                self.assertTrue(view["heading"], view["view"])
                wrong = [text for text in view["alerts"] if re.search("Warning|differ", text)]
                self.assertEqual(wrong, [], view["view"])
                self.assertEqual(view["empty"], 0, view["view"])
                self.assertFalse(view["wide"], f"{view['view']} is wider than the window")
                self.assertTrue(set(view["focused"]) & {"A", "BUTTON", "INPUT", "SELECT", "TR", "CANVAS", "SUMMARY"})
        return [{view["view"]: view for view in job} for job in seen["jobs"]]

    def kept(self, job, name):
        folder = self.folder / name
        shutil.copytree(job.output_dir, folder)
        return folder

    def test_shows_every_view_of_a_pipeline_and_of_a_job_that_does_not_fit(self):
        fits = self.kept(self.run_job("profile", "--no-run", "--ipus-per-replica", 2,
                                      "--training.gradient-accumulation", 4), "pipeline")
        small = self.run_job("profile", "--no-run", "--device.bytes-per-tile", 65536, code=86)
        jobs = self.look(fits, self.kept(small, "small"))
        self.assertEqual(list(jobs[0]), [*COMPILED, "compare"])
        self.assertEqual(list(jobs[1]), [*COMPILED, "why", "compare"])
        profile = json.loads((fits / "profile.json").read_text())
        self.assertIn(f"{profile['report']['ipus'][0]['peak']:,} B", jobs[0]["summary"]["words"])
        self.assertRegex(jobs[0]["summary"]["words"], "never compared")
        self.assertRegex(jobs[0]["execution"]["words"], r"T_?WU")
        remedy = json.loads((self.folder / "small/profile.json").read_text())["report"]["remedies"][0]
        self.assertIn(remedy["options"][0].lstrip("-"), jobs[1]["why"]["words"])

    def test_shows_how_a_job_scales(self):
        job = self.run_job("scale", "--report", "--replicas", "4,16,64,1024", "--what-if", "jitter=lognormal:2%")
        seen, = self.see(job.output_dir / "report.html")
        self.assertIn("scaling", seen)
        for part in ("Weak scaling", "Strong scaling", "1,024 replicas", "efficiency", "disturbed", "samples/s"):
            self.assertIn(part, seen["scaling"]["words"])

    def test_shows_a_run_whose_replica_was_killed_and_restarted(self):
        job = self.start("-n", 2, "--training.steps", 4000, "--restarts", 1, "--checkpoint-every", "200")
        job.wait_until(lambda: len(job.metrics()) > 1000, "1,000 steps", 60)
        victim = job.replica_pid(1)
        os.kill(victim, signal.SIGKILL)
        self.assertEqual(job.wait(), 0, job.stderr)
        seen = self.look(job.output_dir)[0]
        self.assertEqual(list(seen), ["summary", "training"])
        self.assertRegex(seen["training"]["words"], r"(?i)attempt")
        rows = (job.output_dir / "replicas.csv").read_text().splitlines()
        self.assertEqual(rows[0], "wall_seconds,attempt,replica,steps,compute_seconds")
        self.assertEqual({row.split(",")[1] for row in rows[1:]}, {"1", "2"})


if __name__ == "__main__":
    missing = [str(path) for path in NEEDED if not path.exists()] + ([] if shutil.which("node") else ["node"])
    if missing:
        print(f"skipped: {', '.join(missing)} missing; deploy/setup installs them")
        sys.exit(77)
    unittest.main()
