#!/usr/bin/env python3
"""poprun-emu check: every way to run a small job is bit-identical to the plain one."""
import hashlib
import json
import signal
import unittest

import safetensors_file
from emulated_job import QUICK, ROOT, JobTest
from proto_schema import check_message

CNN = QUICK.replace("steps = 5", "steps = 5\ngradient-accumulation = 4")

BERT = f"""
[model]
name = bert-base
layers = 2
hidden = 32
heads = 2
vocabulary = 257
sequence-length = 16
dropout = 0.1
[data]
source = text:{ROOT}/ARCHITECTURE.md
sequence-length = 16
micro-batch-size = 2
task = masked-lm
masks = 3
[training]
steps = 100
gradient-accumulation = 3
optimizer = lamb
clip-norm = 1
learning-rate = 0.001
schedule = linear
"""

GPT2 = BERT.replace("bert-base", "gpt2").replace("task = masked-lm\nmasks = 3\n", "")

FAMILIES = {
    "unet": "hidden = 4\nlayers = 2\n[data]\nsource = synthetic:images=3x16x16,labels=pixels",
    "lstm": f"hidden = 8\nvocabulary = 257\nsequence-length = 6\ndropout = 0.1\n[data]\n"
            f"source = text:{ROOT}/ARCHITECTURE.md\nsequence-length = 6",
    "dlrm-mini": "hidden = 4\nvocabulary = 10\n[data]\nsource = synthetic:clicks,sparse=4,vocabulary=10",
    "moe-mini": f"layers = 1\nhidden = 8\nintermediate = 12\nheads = 2\nkv-heads = 1\n[data]\n"
                f"source = text:{ROOT}/ARCHITECTURE.md\nsequence-length = 6",
    "t5-mini": f"layers = 1\ndecoder-layers = 1\nhidden = 8\nintermediate = 12\nheads = 2\nhead-features = 4\n[data]\n"
               f"source = text:{ROOT}/ARCHITECTURE.md\nsequence-length = 6",
    "vae": "hidden = 16\nlatent = 3\n[data]\nsource = synthetic:images=1x8x8",
}
FAMILY = """
[model]
name = {}
{}
micro-batch-size = 2
[training]
steps = 5
gradient-accumulation = 3
optimizer = {}
learning-rate = 0.001
"""

SCHEDULES = 3
RECOMPUTATIONS = 5
OUTLINED = 2  # On 1 IPU, and with schedule grouped on several.
PLACED = 3 * 2  # Off-chip, sharded and both, for the plain job and for one pipeline.
PHASES = 7 + 3 * 2  # On 1 IPU with every recomputation, on 2 with two; 3 placements on each.


class Check(JobTest):
    def assert_all_equal(self, job):
        """Checks that each way, on 1 IPU and on 2, has a row on the screen and in check.json."""
        found = json.loads((job.output_dir / "check.json").read_text())
        verdicts = [run["verdict"] for run in found["runs"]]
        ways = RECOMPUTATIONS * (1 + SCHEDULES) + PLACED + PHASES + 2 * OUTLINED
        self.assertEqual(verdicts, ["REFERENCE"] + ["EQUAL"] * (ways - 1), job.stdout)
        same = [run for run in found["runs"] if run.get("sameAs")]
        compared = ways - 1 - len(same)
        self.assertIn(f"\n{compared} of {compared} runs bit-identical to the reference, over 2 steps; {len(same)} more",
                      job.stdout)
        self.assertEqual(len([line for line in job.stdout.splitlines() if "  equal" in line]), ways - 1, job.stdout)
        return found

    def test_of_a_convolutional_network_in_processes(self):
        job = self.run_job("check", "-n", 2, "--check-ipus", 2, "--check-steps", 2, config=CNN)
        found = self.assert_all_equal(job)
        self.assertEqual({run["ipus"] for run in found["runs"]}, {1, 2})
        self.assertTrue(all(run["peakBytes"] > 0 and 0 < run["utilisation"] <= 1 for run in found["runs"]))
        standard = [run for run in found["runs"] if run["recomputation"] == "standard"]
        self.assertEqual([run for run in standard if "recomputation none" in run.get("sameAs", "")], [])

    def test_of_a_transformer_in_threads(self):
        self.assert_all_equal(self.run_job("check", "-n", 2, "--num-instances", 1, "--check-ipus", 2, "--check-steps", 2,
                                           config=BERT))

    def test_of_a_tied_embedding_in_slices(self):
        job = self.run_job("check", "-n", 2, "--num-instances", 1, "--check-ipus", 2, "--check-steps", 2,
                           "--model.embedding-serialisation-factor", 4, "--model.serialised-matmuls", "c_fc=3", config=GPT2)
        self.assert_all_equal(job)

    def test_of_families_and_optimisers_in_threads(self):
        for (name, rest), optimizer in zip(FAMILIES.items(), ("muon", "lion", "adafactor", "adam", "lamb", "adamw"),
                                              strict=True):
            with self.subTest(name=name, optimizer=optimizer):
                self.assert_all_equal(self.run_job("check", "-n", 2, "--num-instances", 1, "--check-ipus", 2, "--check-steps",
                                                   2, config=FAMILY.format(name, rest, optimizer)))

    def test_writes_a_certificate_that_a_referee_can_repeat(self):
        file = self.folder / "certificate.json"
        options = ["-n", 2, "--training.optimizer", "sgd", "--training.gradient-accumulation", 1]
        job = self.run_job("check", *options, "--check-ipus", 2, "--check-steps", 5, "--certificate", file, config=CNN)
        self.assertIn(f"certificate in {file}\n", job.stdout)
        certificate = json.loads(file.read_text())
        check_message(certificate, "CheckCertificate")
        self.assertTrue(certificate["equal"])
        self.assertTrue(certificate["arithmetic"]["cpu_isas"])
        self.assertIn("--check-steps 5", certificate["command"])
        reference, *others = certificate["runs"]
        # Weights of a plain run of the same steps. Nothing else is in the state of SGD.
        plain = self.run_job(*options, "--training.steps", 5, config=CNN)
        tensors = safetensors_file.read(plain.output_dir / "weights.safetensors")
        state = b"".join(name.encode() + b"\0" + bytes(tensors[name][2]) for name in sorted(tensors))
        self.assertEqual(reference["state_sha256"], hashlib.sha256(state).hexdigest())
        self.assertEqual({run["values_compared"] for run in others if not run["same_as"]}, {5 * (len(tensors) + 2)})
        self.assertEqual({run["verdict"] for run in others}, {"EQUAL"})
        programs = [run["program_sha256"] for run in certificate["runs"] if not run["same_as"]]
        self.assertEqual(len(set(programs)), len(programs))
        self.assertTrue(all(len(program) == 64 for program in programs))
        again = self.folder / "again.json"
        self.run_job("check", *options, "--check-ipus", 2, "--check-steps", 5, "--certificate", again, config=CNN)
        repeated = json.loads(again.read_text())
        for one in (certificate, repeated):
            one.pop("command")
        self.assertEqual(repeated, certificate)
        job = self.run_job("check", "--certificate", self.folder / "missing/certificate.json", config=CNN, code=64)
        self.assert_first_line(job, "--certificate", "missing does not exist; create it")

    def test_that_is_interrupted_sums_up_its_runs_and_leaves_other_results_alone(self):
        job = self.start("check", "-n", 2, "--check-ipus", 2, "--check-steps", 30, config=CNN)
        others = [job.output_dir / name for name in
                  ("weights.safetensors", "check.json", "failure.txt", "logs/replica-00.log")]
        for file in others:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("mine")
        job.wait_until(lambda: "equal\n" in job.stdout, "first comparison", 60)
        job.process.send_signal(signal.SIGINT)
        self.assertEqual(job.wait(20), 130, job.stderr)
        self.assertEqual([file.read_text() for file in others], ["mine"] * len(others))
        self.assertRegex(job.stdout, r"\n(\d+) of \1 runs? bit-identical to the reference, over 30 steps")
        self.assertRegex(job.stdout, r"the check ended early: \d+ of 43 runs are missing, from .* to 2 IPUs, grouped, "
                                     r"recomputation all, outlined")
        self.assert_gone(job)

    def test_that_compares_nothing_does_not_pass(self):
        job = self.run_job("check", "-n", 1, "--check-ipus", 2, "--check-steps", 1, "--data.micro-batch-size", 4096,
                           config=CNN, code=86)
        self.assertIn("\nnothing was compared; ", job.stdout)

    def test_of_a_wrong_request_says_so_and_no_more(self):
        job = self.run_job("check", "--ipus-per-replica", 2, "--pipeline.split", "fc9", config=CNN, code=64)
        self.assert_first_line(job, "pipeline.split", "fc9")
        self.assertNotIn("what each replica did", job.stderr)
        self.assertFalse((job.output_dir / "check-failure.txt").exists())

    def test_that_takes_too_long_says_how_far_it_came(self):
        job = self.run_job("check", "--check-steps", 1000, "--timeout", 3, config=CNN, code=75)
        self.assert_first_line(job, "the limit of --timeout; it had ")
        self.assertRegex(job.stderr, r"it had (not finished planning|finished \d+ of 85 runs)")


if __name__ == "__main__":
    unittest.main()
