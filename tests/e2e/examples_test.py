#!/usr/bin/env python3
"""Every job in deploy/examples takes its first steps."""
import json
import re
import unittest

from emulated_job import ROOT, JobTest

EXAMPLES = sorted((ROOT / "deploy/examples").glob("*.cfg"))
PODS = sorted((ROOT / "deploy/examples/pods").glob("*.cfg"))  # Too large to be executed here.
# What the plans of some of them must contain; the numbers of parameters are those of Hugging Face.
CONTENTS = {
    "llama-1b.cfg": [r"\nparameters +1,235,814,400\n"],
    "llama-8b.cfg": [r"\nparameters +8,030,261,248\n", r" stage 15 on IPU 15: ", r" tensors sharded over 4 replicas",
                     r" weights off-chip: ", r" optimiser state off-chip: ", r" accumulators off-chip: ",
                     r" activations in stashes off-chip: "],
}


class Examples(JobTest):
    def test_there_are_some(self):
        self.assertGreaterEqual(len(EXAMPLES), 6)

    def test_take_their_first_steps(self):
        for path in EXAMPLES:
            with self.subTest(path.name):
                job = self.run_job("-n", 2, "--training.steps", 2, "--training.evaluate", "false",
                                   config=path.read_text())
                self.assertEqual(job.profile()["outcome"]["steps"], 2)

    def test_say_how_they_are_started(self):
        for path in EXAMPLES:
            command = rf"#   poprun-emu -n \d+ deploy/examples/{re.escape(path.name)}\n"
            self.assertRegex(path.read_text(), command)

    def test_those_for_pods_fit(self):
        self.assertGreaterEqual(len(PODS), 2)
        for path in PODS:
            with self.subTest(path.name):
                command = re.search(r"#   poprun-emu (.*--dry-run) deploy/examples/pods/(.*)\n", path.read_text())
                self.assertEqual(command[2], path.name)
                job = self.run_job(*command[1].split(), config=path.read_text())
                self.assertRegex(job.stdout, r"device step .* samples/s")
                for text in CONTENTS.get(path.name, []):
                    self.assertRegex(job.stdout, text)

    def test_bert_large_of_a_pod_needs_its_recomputation(self):
        config = (ROOT / "deploy/examples/pods/bert-large.cfg").read_text()
        fits = {}
        for recomputation in ("layer", "none"):
            job = self.start("estimate", "--compile", "--format", "json", "--pipeline.recomputation", recomputation,
                             config=config)
            self.assertEqual(job.wait(), 0, job.stderr)
            fits[recomputation] = json.loads(job.stdout)["jobs"][0]["compiled"]["fits"]
        self.assertEqual(fits, {"layer": True, "none": False})


if __name__ == "__main__":
    unittest.main()
