#!/usr/bin/env python3
"""Files of initial weights with the names in Hugging Face's own files."""
import json
import struct
import unittest

import safetensors_file
from emulated_job import JobTest

SIZES = ("--model.layers", 1, "--model.hidden", 8, "--model.heads", 2, "--model.vocabulary", 60)
# The smallest learning rate: the weights do not change.
STILL = ("--training.steps", 1, "--training.learning-rate", "1e-30")
CONFIG = """
[model]
name = {name}
sequence-length = 16
[data]
source = synthetic:tokens,vocabulary=60,items=200
sequence-length = 16
{more}
micro-batch-size = 2
[training]
steps = 2
evaluate = false
"""


def ones(count):
    return struct.pack(f"<{count}f", *([1.0] * count))


def floats(data):
    return struct.unpack(f"<{len(data) // 4}f", data)


class HuggingFace(JobTest):
    def weights_of(self, job):
        return {name: (dtype, shape, bytes(data)) for name, (dtype, shape, data)
                in safetensors_file.read(job.output_dir / "weights.safetensors").items()}

    def notes(self, job):
        lines = (job.stdout + job.stderr).splitlines()
        return sorted(line[line.index("model.initial-weights: "):] for line in lines
                      if "model.initial-weights: " in line)

    def begin(self, name, more, tensors, *arguments, code=0):
        """Runs a job from these tensors and its dry run, and checks that both print the same notes."""
        file = self.folder / f"{name}.safetensors"
        safetensors_file.write(file, tensors)
        config = CONFIG.format(name=name, more=more)
        arguments = (*SIZES, *STILL, "--model.initial-weights", file, *arguments)
        dry = self.run_job("-n", 1, "--dry-run", *arguments, config=config, code=code)
        job = self.run_job("-n", 2, *arguments, config=config, code=code)
        self.assertEqual(self.notes(job), self.notes(dry))
        return job

    def test_gpt2s_file_is_read_as_it_is(self):
        trained = self.run_job("-n", 2, *SIZES, config=CONFIG.format(name="gpt2", more=""))
        weights = self.weights_of(trained)
        file = {name.removeprefix("transformer."): tensor for name, tensor in weights.items()}
        file["h.0.attn.bias"] = ("F32", [1, 1, 16, 16], ones(256))
        file["h.0.attn.masked_bias"] = ("F32", [], ones(1))
        job = self.begin("gpt2", "", file)
        self.assertEqual(self.weights_of(job), weights)
        notes = self.notes(job)
        self.assertEqual(len(notes), 2, job.stderr)
        self.assertIn("prefix 'transformer.' added to 16 names", notes[1])
        self.assertIn("ignored 2 buffers", notes[0])

        with_head = dict(weights, **{"lm_head.weight": weights["transformer.wte.weight"]})
        self.assertIn("equals 'transformer.wte.weight'",
                      self.notes(self.begin("gpt2", "", with_head))[0])
        dtype, shape, data = weights["transformer.wte.weight"]
        other = dict(weights, **{"lm_head.weight": (dtype, shape, data[4:] + data[:4])})
        refused = self.begin("gpt2", "", other, code=65)
        self.assert_first_line(refused, "'lm_head.weight' and 'transformer.wte.weight' differ")

    def test_a_llama_is_read_from_its_config_and_several_files(self):
        (self.folder / "config.json").write_text(json.dumps({
            "model_type": "llama", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "intermediate_size": 24, "vocab_size": 60, "max_position_embeddings": 16,
            "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True, "hidden_act": "silu"}))
        config = CONFIG.format(name="", more="").replace(
            "name = \n", f"config = {self.folder}/config.json\n")
        trained = self.run_job("-n", 2, config=config)
        weights = self.weights_of(trained)
        self.assertEqual(weights["model.layers.1.self_attn.k_proj.weight"][1], [8, 16])
        self.assertEqual(len(weights), 2 + 2 * 9)
        names = sorted(weights)
        parts = {"one.safetensors": names[:7], "two.safetensors": names[7:]}
        for file, part in parts.items():
            safetensors_file.write(self.folder / file, {name: weights[name] for name in part})
        (self.folder / "model.safetensors.index.json").write_text(json.dumps({
            "metadata": {"total_size": 0}, "weight_map": {name: file for file, part in parts.items() for name in part}}))
        again = self.run_job("-n", 2, *STILL, "--model.initial-weights", self.folder / "model.safetensors.index.json",
                             config=config)
        self.assertEqual(self.weights_of(again), weights)
        self.assertEqual(self.notes(again), [])
        (self.folder / "config.json").write_text("[]")
        wrong = self.run_job("-n", 2, config=config, code=64)
        self.assert_first_line(wrong, "config.json: not a JSON object")

    def test_the_experts_of_mixtrals_file_are_stacked(self):
        more = ("--model.kv-heads", 1, "--model.experts", 3)
        trained = self.run_job("-n", 2, *SIZES, *more, config=CONFIG.format(name="moe-mini", more=""))
        weights = self.weights_of(trained)  # One tensor for each expert, as in Mixtral's files.
        self.assertEqual(len(weights["model.layers.0.block_sparse_moe.experts.2.w1.weight"][1]), 2)
        file = dict(weights)
        job = self.begin("moe-mini", "", file, *more)
        self.assertEqual(self.weights_of(job), weights)
        self.assertEqual(self.notes(job), ["model.initial-weights: 9 tensors of single experts stacked, for example to "
                                           "'model.layers.0.block_sparse_moe.experts.w1.weight'"])
        del file["model.layers.0.block_sparse_moe.experts.1.w2.weight"]
        refused = self.begin("moe-mini", "", file, *more, code=65)
        self.assert_first_line(refused, "experts.2.w2.weight', but not that tensor of expert 1")

    def test_berts_encoder_begins_a_model_whose_head_is_new(self):
        more = "task = masked-lm"
        trained = self.run_job("-n", 2, *SIZES, config=CONFIG.format(name="bert-base", more=more))
        weights = self.weights_of(trained)
        encoder = {}
        for name, tensor in weights.items():
            if name.startswith("bert."):
                old = name.removeprefix("bert.")
                if "LayerNorm" in old:
                    old = old.replace(".weight", ".gamma").replace(".bias", ".beta")
                encoder[old] = tensor
        encoder["embeddings.position_ids"] = ("I64", [1, 16], bytes(128))
        refused = self.begin("bert-base", more, encoder, code=65)
        self.assert_first_line(refused, "'cls.predictions.bias'", "model.initial-weights-partial")

        job = self.begin("bert-base", more, encoder, "--model.initial-weights-partial", "true")
        after = self.weights_of(job)
        for name, tensor in weights.items():
            if name.startswith("bert."):
                self.assertEqual(after[name], tensor, name)
        fresh = self.weights_of(self.run_job(
            "-n", 2, *SIZES, *STILL, config=CONFIG.format(name="bert-base", more=more)))
        for name in weights:
            if name.startswith("cls."):
                for a, b in zip(floats(after[name][2]), floats(fresh[name][2])):
                    self.assertAlmostEqual(a, b, delta=1e-20, msg=name)
        text = "\n".join(self.notes(job))
        for part in ("gamma and beta are read as weight and bias in", "prefix 'bert.' added to",
                     "ignored 1 buffer", "initialisation kept for"):
            self.assertIn(part, text)


if __name__ == "__main__":
    unittest.main()
