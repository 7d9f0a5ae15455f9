#!/usr/bin/env python3
"""--real and --what-if, as a user runs them: device clocks of Pods that are larger than the job, or disturbed."""
import json
import unittest

from emulated_job import QUICK, JobTest


class VirtualPod(JobTest):
    def device_seconds(self, *words, steps=6):
        job = self.run_job("--training.steps", steps, "--training.evaluate", "false", "--overwrite", *words, config=QUICK)
        rows = job.metrics()
        return [float(row["device_seconds"]) for row in rows], [row["loss"] for row in rows], job

    def dry_run(self, *words):
        return json.loads(self.run_job("--dry-run", "--format", "json", *words, config=QUICK).stdout)

    def test_a_few_real_replicas_have_the_clock_of_all(self):
        of_all, _, _ = self.device_seconds("-n", 8)
        of_two, losses_of_two, _ = self.device_seconds("-n", 2)
        clock, losses, job = self.device_seconds("-n", 8, "--real", 2)
        self.assertEqual(clock, of_all)
        self.assertNotEqual(clock, of_two)
        self.assertEqual(losses, losses_of_two, "the numerics are those of the replicas that compute")
        self.assertIn("2 of 8 replicas compute (--real)", job.stderr)
        profile = json.loads((job.output_dir / "profile.json").read_text())
        self.assertEqual(profile["device"]["timedReplicas"], 8)
        self.assertTrue(any("2 of 8 replicas" in note["text"] for note in profile["notes"]), profile["notes"])

    def test_the_clock_of_evaluations_is_that_of_all_replicas(self):
        words = ("--training.steps", 4, "--training.evaluate", "true", "--overwrite")
        clocks = []
        for replicas in (("-n", 8), ("-n", 8, "--real", 2)):
            rows = self.run_job(*words, *replicas, config=QUICK).metrics()
            self.assertEqual(rows[-1]["split"], "test")
            clocks.append([row["device_seconds"] for row in rows])
        self.assertEqual(*clocks)

    def test_a_disturbed_job_resumes_without_the_disturbance(self):
        plain, _, _ = self.device_seconds("-n", 2, steps=4)
        slow, _, job = self.device_seconds("-n", 2, "--checkpoint-every", 2, "--what-if", "slow=1:2x", steps=4)
        resumed, _, _ = self.device_seconds("-n", 2, "--resume", job.output_dir / "checkpoints/step-2", steps=4)
        self.assertGreater(slow[1], 1.2 * plain[1])
        self.assertAlmostEqual(resumed[-1], slow[1] + plain[3] - plain[1], places=9)

    def test_the_clock_of_1024_replicas_is_that_of_a_plan_of_1024(self):
        planned = self.dry_run("-n", 1024)
        self.assertEqual(self.dry_run("-n", 1024, "--real", 2)["device_step_seconds"], planned["device_step_seconds"])
        clock, _, _ = self.device_seconds("-n", 1024, "--real", 2, steps=4)
        self.assertAlmostEqual(clock[3], 4 * planned["device_step_seconds"], places=11)

    def test_a_straggler_slows_the_steps_in_which_it_is_slow(self):
        plain, losses, _ = self.device_seconds("-n", 4)
        slow = ("--what-if", "slow=3:1.5x@step3-4")
        slowed, losses_slowed, _ = self.device_seconds("-n", 4, *slow)
        real, _, _ = self.device_seconds("-n", 4, "--real", 4, *slow)
        ghosts, _, _ = self.device_seconds("-n", 4, "--real", 2, *slow)
        self.assertEqual(real, slowed)
        self.assertEqual(ghosts, slowed)
        self.assertEqual(losses_slowed, losses)
        steps = [after - before for before, after in zip([0] + slowed, slowed)]
        usual = plain[0]
        for number, seconds in enumerate(steps, 1):
            if number in (3, 4):
                self.assertGreater(seconds, 1.05 * usual)
                self.assertLess(seconds, 1.5 * usual)
            else:
                self.assertAlmostEqual(seconds, usual, places=12)

    def test_a_disturbance_after_the_last_step_gets_a_note(self):
        late = ("-n", 4, "--training.steps", 6, "--what-if", "slow=3:1.5x@step3", "--what-if")
        for disturbance, step in (("dead=replica2@step7,restart", 7), ("slow=1:2x@step8", 8)):
            notes = [note["text"] for note in self.dry_run(*late, disturbance)["notes"]]
            self.assertEqual(sum(f"at step {step} changes nothing, because the job ends at step 6" in note
                                 for note in notes), 1, notes)
        notes = [note["text"] for note in self.dry_run(*late, "dead=replica2@step6,restart")["notes"]]
        self.assertFalse(any("changes nothing" in note for note in notes), notes)

    def test_a_run_loses_the_time_that_its_plan_says(self):
        words = ("-n", 4, "--what-if", "jitter=lognormal:2%", "--what-if", "dead=replica2@step5,restart:60s",
                 "--checkpoint-every", 2)
        clock, _, job = self.device_seconds(*words)
        disturbed = json.loads((job.output_dir / "profile.json").read_text())["device"]["disturbed"]
        self.assertAlmostEqual(clock[-1], disturbed["totalSeconds"], places=6)
        self.assertEqual((disturbed["losses"], disturbed["repeatedSteps"]), (1, 0))
        self.assertGreater(clock[4] - clock[3], 90, "detection and restart")
        self.assertLess(clock[5] - clock[4], 1)
        self.assertIn("a loss costs 90.00 s of it and repeats 0 steps", job.stdout)

    def test_scale_shows_distributions_for_65536_replicas(self):
        words = ("scale", "--replicas", "16,65536", "--training.steps", 50, "--what-if", "jitter=lognormal:2%",
                 "--what-if", "slow=37:1.3x@step10-10", "--what-if", "dead=host5@step20,restart:60s")
        text = self.run_job(*words, config=QUICK).stdout
        self.assertIn("with --what-if", text)
        self.assertLessEqual(max(map(len, text.splitlines())), 80)
        few, many = (job["disturbed"] for job in json.loads(self.run_job(
            *words, "--format", "json", config=QUICK).stdout)["jobs"] if job["scaling"] == "weak")
        for times in (few, many):
            self.assertLess(times["median_step_seconds"], times["step_seconds_90"])
            self.assertLessEqual(times["step_seconds_99"], times["slowest_step_seconds"])
        self.assertGreater(many["median_step_seconds"], few["median_step_seconds"], "a maximum of more replicas")
        self.assertEqual((few["losses"], many["losses"]), (0, 1), "only the large Pod has host 5")


if __name__ == "__main__":
    unittest.main()
