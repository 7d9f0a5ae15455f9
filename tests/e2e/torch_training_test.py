#!/usr/bin/env python3
"""Compares whole jobs with PyTorch in float64, from the same weights and the same rows of the data.

Several steps of every optimiser, combined at random with everything else that changes the weights: weight decay,
clipping, schedules, warm-up, accumulation, replicas. Then a network with batch normalisation: its running statistics,
its evaluation, its outputs.
"""
import math
import random
import unittest

from torch_arrays import read, write  # First, because it finds PyTorch.

import numpy
import torch
import torch.nn.functional as F
from emulated_job import JobTest

FEATURES, HIDDEN, CLASSES = 7, 9, 4
SHAPES = {"fc1.weight": (HIDDEN, FEATURES), "fc1.bias": (HIDDEN,),
          "fc2.weight": (CLASSES, HIDDEN), "fc2.bias": (CLASSES,)}
CASES = 20
LIMITS = {"float": 2e-6, "half": 1e-2}  # Relative to the largest element of a parameter.


class Lamb(torch.optim.Optimizer):
    """You et al., arXiv:1904.00962, algorithm 2 with phi(z) = z, for every parameter."""

    def __init__(self, parameters, lr, betas, eps, weight_decay):
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for w in group["params"]:
                state = self.state[w]
                t = state["t"] = state.get("t", 0) + 1
                m = state["m"] = beta1 * state.get("m", 0) + (1 - beta1) * w.grad
                v = state["v"] = beta2 * state.get("v", 0) + (1 - beta2) * w.grad**2
                r = m / (1 - beta1**t) / ((v / (1 - beta2**t)).sqrt() + group["eps"])
                u = r + group["decay"] * w
                ratio = w.norm() / u.norm() if w.norm() > 0 and u.norm() > 0 else 1
                w -= group["lr"] * ratio * u


class Lars(torch.optim.Optimizer):
    """You et al., arXiv:1708.03888, as in MLPerf's ResNet: the momentum contains the rate, and exempt parameters, here
    vectors, have neither weight decay nor a trust ratio."""

    def __init__(self, parameters, lr, momentum, trust, eps, weight_decay, exempts_vectors):
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "trust": trust, "eps": eps,
                                      "decay": weight_decay, "exempts_vectors": exempts_vectors})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for w in group["params"]:
                decay, ratio = group["decay"], 1
                if group["exempts_vectors"] and w.dim() <= 1:
                    decay = 0
                elif w.norm() > 0 and w.grad.norm() > 0:
                    ratio = group["trust"] * w.norm() / (w.grad.norm() + decay * w.norm() + group["eps"])
                state = self.state[w]
                step = group["lr"] * ratio * (w.grad + decay * w)
                v = state["v"] = group["momentum"] * state.get("v", 0) + step
                w -= v


class Lion(torch.optim.Optimizer):
    """Chen et al., arXiv:2302.06675, algorithm 2."""

    def __init__(self, parameters, lr, betas, weight_decay):
        super().__init__(parameters, {"lr": lr, "betas": betas, "decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for w in group["params"]:
                state = self.state[w]
                m = state.get("m", torch.zeros_like(w))
                w -= group["lr"] * ((beta1 * m + (1 - beta1) * w.grad).sign() + group["decay"] * w)
                state["m"] = beta2 * m + (1 - beta2) * w.grad


class Adafactor(torch.optim.Optimizer):
    """Shazeer and Stern, arXiv:1804.04235, as Hugging Face's class with relative_step=False, scale_parameter=False."""

    def __init__(self, parameters, lr, epsilon, threshold, exponent, weight_decay):
        super().__init__(parameters, {"lr": lr, "epsilon": epsilon, "threshold": threshold, "exponent": exponent,
                                      "decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for w in group["params"]:
                state = self.state[w]
                t = state["t"] = state.get("t", 0) + 1
                beta = 1 - t**-group["exponent"]
                squares = w.grad**2 + group["epsilon"]
                mean = lambda key, now: state.update({key: beta * state.get(key, 0) + (1 - beta) * now}) or state[key]
                if w.dim() >= 2:
                    row, column = mean("row", squares.mean(-1)), mean("column", squares.mean(-2))
                    v = (row / row.mean(-1, keepdim=True)).unsqueeze(-1) * column.unsqueeze(-2)
                else:
                    v = mean("v", squares)
                u = w.grad / v.sqrt()
                u /= (u.square().mean().sqrt() / group["threshold"]).clamp(min=1)
                w -= group["lr"] * (u + group["decay"] * w)


class Muon(torch.optim.Optimizer):
    """Jordan et al., 2024, as torch.optim.Muon with adjust_lr_fn="match_rms_adamw" for matrices; AdamW for vectors."""

    def __init__(self, parameters, lr, momentum, betas, eps, weight_decay):
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "betas": betas, "eps": eps,
                                      "decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for w in group["params"]:
                step = self.of_matrix(w, group) if w.dim() >= 2 else self.of_vector(w, group)
                w -= group["lr"] * (step + group["decay"] * w)

    def of_matrix(self, w, group):
        momentum, state = group["momentum"], self.state[w]
        m = state["m"] = momentum * state.get("m", 0) + (1 - momentum) * w.grad
        u = ((1 - momentum) * w.grad + momentum * m).flatten(1)
        u = u / u.norm() if u.norm() > 0 else u
        for _ in range(5):
            gram = u @ u.T
            u = 3.4445 * u + (-4.7750 * gram + 2.0315 * gram @ gram) @ u
        return 0.2 * max(u.shape)**0.5 * u.reshape(w.shape)

    def of_vector(self, w, group):
        (beta1, beta2), state = group["betas"], self.state[w]
        t = state["t"] = state.get("t", 0) + 1
        m = state["m"] = beta1 * state.get("m", 0) + (1 - beta1) * w.grad
        v = state["v"] = beta2 * state.get("v", 0) + (1 - beta2) * w.grad**2
        return m / (1 - beta1**t) / ((v / (1 - beta2**t)).sqrt() + group["eps"])


class Case:
    """A random job, except for what is given: `keys` of its configuration, and its data."""

    def __init__(self, seed, optimizer=None, precision=None):
        draw = random.Random(seed)
        self.optimizer = optimizer or draw.choice(["sgd", "momentum", "nesterov", "adam", "adamw", "lamb", "lars", "lion",
                                                   "adafactor", "muon"])
        self.precision = precision or draw.choice(["float", "float", "half"])
        if self.optimizer in ("lion", "muon") and precision is None:
            self.precision = "float"  # In half precision, a gradient near 0 can have another sign, or direction.
        self.replicas = draw.choice([1, 2, 3, 4])
        adaptive = self.optimizer in ("adam", "adamw", "lamb", "lion", "adafactor", "muon")
        self.keys = {
            "optimizer": self.optimizer.replace("nesterov", "momentum"),
            "nesterov": "true" if self.optimizer == "nesterov" else "false",
            "learning-rate": draw.choice([0.3, 0.1, 0.05]) / (10 if adaptive else 1),
            "weight-decay": draw.choice([0, 0.01, 0.1, 0.5]),
            "clip-norm": draw.choice([0, 0.05, 0.3, 2.0]),
            "schedule": draw.choice(["constant", "linear", "cosine", "step"]),
            "schedule-steps": draw.choice([1, 2, 3]),
            "schedule-decay": draw.choice([0.1, 0.5]),
            "warmup-steps": draw.choice([0, 0, 1, 3]),
            "gradient-accumulation": draw.choice([1, 2, 3]),
            "gradient-bucket": draw.choice([0, 0.0001]),
            "momentum": draw.choice([0.5, 0.9]),
            "beta1": draw.choice([0.9, 0.8, 0]),
            "beta2": draw.choice([0.999, 0.95]),
            "epsilon": draw.choice([1e-8, 1e-6, 1e-3]),
            "steps": draw.choice([3, 5, 8]),
            "loss-scaling": draw.choice(["auto", 1000]),
            "label-smoothing": draw.choice([0, 0, 0.1, 0.5]),
        }
        if self.optimizer == "lars":
            self.keys["trust-coefficient"] = draw.choice([0.001, 0.1, 1])
            if draw.random() < 0.5:
                self.keys["no-decay"] = "vectors"
        if draw.random() < 0.4:
            self.keys["scale-learning-rate"] = draw.choice([4, 32])
        if self.precision == "half":
            self.keys["master-weights"] = draw.choice(["true", "false"])
            self.keys["optimizer-precision"] = draw.choice(["float", "half"])
        self.micro_batch = draw.choice([1, 2, 5])
        self.instances = draw.choice([n for n in (1, 2, 3, 4) if self.replicas % n == 0])
        self.pieces = self.keys["gradient-accumulation"] * self.replicas
        self.batch = self.pieces * self.micro_batch
        numbers = numpy.random.default_rng(seed)
        items = self.batch * self.keys["steps"]
        self.x = numbers.normal(0, 1, (items, FEATURES)).astype(numpy.float32)
        self.y = numbers.integers(0, CLASSES, items).astype(numpy.int32)
        self.y[0] = CLASSES - 1
        self.weights = {name: numbers.normal(0, 0.5, shape) for name, shape in SHAPES.items()}

    def rate(self, step):
        k = self.keys
        base = k["learning-rate"]
        if "scale-learning-rate" in k:
            base *= self.batch / k["scale-learning-rate"]
        if step < k["warmup-steps"]:
            return base * (step + 1) / k["warmup-steps"]
        t = step - k["warmup-steps"]
        share = t / max(1, k["steps"] - k["warmup-steps"])
        return base * {"constant": 1, "linear": 1 - share,
                       "cosine": (1 + math.cos(math.pi * share)) / 2,
                       "step": k["schedule-decay"]**(t // k["schedule-steps"])}[k["schedule"]]

    def make_optimizer(self, parameters):
        k = self.keys
        adam = {"lr": 1, "betas": (k["beta1"], k["beta2"]), "eps": k["epsilon"],
                "weight_decay": k["weight-decay"]}
        if self.optimizer in ("adam", "adamw", "lamb"):
            kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "lamb": Lamb}
            return kinds[self.optimizer](parameters, **adam)
        if self.optimizer == "lion":
            return Lion(parameters, lr=1, betas=(k["beta1"], k["beta2"]), weight_decay=k["weight-decay"])
        if self.optimizer == "muon":
            return Muon(parameters, lr=1, momentum=k["momentum"], betas=(k["beta1"], k["beta2"]), eps=k["epsilon"],
                        weight_decay=k["weight-decay"])
        if self.optimizer == "adafactor":
            return Adafactor(parameters, lr=1, epsilon=1e-30, threshold=1, exponent=0.8,
                             weight_decay=k["weight-decay"])
        if self.optimizer == "lars":
            return Lars(parameters, lr=1, momentum=k["momentum"], trust=k["trust-coefficient"], eps=k["epsilon"],
                        weight_decay=k["weight-decay"], exempts_vectors="no-decay" in k)
        return torch.optim.SGD(parameters, lr=1, weight_decay=k["weight-decay"],
                               momentum=0 if self.optimizer == "sgd" else k["momentum"],
                               nesterov=self.optimizer == "nesterov")

    def loss(self, p, begin):
        x = torch.tensor(self.x[begin:begin + self.micro_batch]).double()
        y = torch.tensor(self.y[begin:begin + self.micro_batch]).long()
        x = F.relu(F.linear(x, p["fc1.weight"], p["fc1.bias"]))
        logits = F.linear(x, p["fc2.weight"], p["fc2.bias"])
        return F.cross_entropy(logits, y, label_smoothing=self.keys["label-smoothing"])

    def train(self, frozen=()):
        """Returns the weights after all steps."""
        kind = torch.float16 if self.precision == "half" else torch.float32
        p = {name: torch.tensor(array).to(kind).double().requires_grad_(name not in frozen)
             for name, array in self.weights.items()}
        trained = [w for w in p.values() if w.requires_grad]
        optimizer = self.make_optimizer(trained)
        for step in range(self.keys["steps"]):
            optimizer.zero_grad()
            for piece in range(self.pieces):
                begin = step * self.batch + piece * self.micro_batch
                (self.loss(p, begin) / self.pieces).backward()
            if self.keys["clip-norm"] > 0:
                torch.nn.utils.clip_grad_norm_(trained, self.keys["clip-norm"])
            optimizer.param_groups[0]["lr"] = self.rate(step)
            optimizer.step()
        return p


class Optimisers(JobTest):
    def train(self, case):
        """Returns the weights of the real command, and its profile."""
        data, weights = self.folder / "data.npz", self.folder / "weights.safetensors"
        numpy.savez(data, x_train=case.x, y_train=case.y)
        write(weights, case.weights)
        job = self.run_job("-n", case.replicas, "--num-instances", case.instances, config="\n".join([
            "[model]", "name = mlp", "layers = 1", f"hidden = {HIDDEN}",
            f"precision = {case.precision}", f"initial-weights = {weights}",
            "[data]", f"source = npz:{data}", "order = sequential",
            f"micro-batch-size = {case.micro_batch}",
            "[training]", "evaluate = false",
            *(f"{key} = {value}" for key, value in case.keys.items()), ""]))
        return read(job.output_dir / "weights.safetensors"), job.profile()

    def test_take_the_steps_of_pytorch_however_they_are_combined(self):
        worst = {"float": 0, "half": 0}
        for seed in range(CASES):
            case = Case(seed)
            with self.subTest(seed=seed, **case.keys, replicas=case.replicas,
                              precision=case.precision):
                got, _ = self.train(case)
                for name, want in case.train().items():
                    error = (got[name].double() - want).abs().max() / want.abs().max()
                    worst[case.precision] = max(worst[case.precision], error.item())
                    self.assertLess(error, LIMITS[case.precision], name)
        print(f"{CASES} jobs, worst error of a weight: float {worst['float']:.1e}, "
              f"half {worst['half']:.1e}")

    def test_follow_pytorch_over_60_steps(self):
        for seed, optimizer in enumerate(("lion", "adafactor", "muon")):
            case = Case(seed, optimizer, "float")
            case.replicas, case.instances, case.micro_batch = 2, 1, 2
            case.keys.update({"schedule": "cosine", "warmup-steps": 3, "clip-norm": 0, "steps": 60, "beta1": 0.9,
                              "beta2": 0.99, "gradient-accumulation": 1, "learning-rate": 0.003, "weight-decay": 0.1,
                              "label-smoothing": 0})
            case.keys.pop("scale-learning-rate", None)
            case.pieces, case.batch = 2, 4
            numbers = numpy.random.default_rng(seed)
            case.x = numbers.normal(0, 1, (240, FEATURES)).astype(numpy.float32)
            case.y = numbers.integers(0, CLASSES, 240).astype(numpy.int32)
            got, _ = self.train(case)
            errors = [((got[name].double() - want).abs().max() / want.abs().max()).item()
                      for name, want in case.train().items()]
            print(f"{optimizer}: worst error of a weight after 60 steps {max(errors):.1e}")
            self.assertLess(max(errors), 1e-5, optimizer)

    def test_see_the_mean_of_many_micro_batches_in_half_precision(self):
        # 3,000 equal terms: a float16 sum would stop growing at 2,048 of them, or overflow.
        for count, scale in ((3000, 1), (40, 16384)):
            case = Case(3, "sgd", "half")
            case.replicas, case.instances = 1, 1
            case.keys.update({"optimizer": "sgd", "nesterov": "false", "clip-norm": 0, "steps": 1,
                              "weight-decay": 0, "schedule": "constant", "warmup-steps": 0,
                              "gradient-accumulation": count, "loss-scaling": scale,
                              "learning-rate": 1, "master-weights": "true"})
            case.micro_batch, case.pieces, case.batch = 1, count, count
            case.x, case.y = numpy.tile(case.x[:1], (count, 1)), numpy.full(count, CLASSES - 1)
            got, _ = self.train(case)
            for name, want in case.train().items():
                moved = (want - torch.tensor(case.weights[name])).abs().max()
                error = (got[name].double() - want).abs().max() / moved
                self.assertLess(error, 0.01, f"{name}, {count} micro-batches")

    def test_leave_frozen_weights_alone(self):
        for optimizer in ("momentum", "lamb"):
            case = Case(3, optimizer, "float")
            case.keys.update({"optimizer": optimizer,
                              "nesterov": "false", "clip-norm": 0.05, "weight-decay": 0.1,
                              "frozen": "fc1.weight|bias$"})
            got, _ = self.train(case)
            for name, want in case.train(frozen=("fc1.weight", "fc1.bias", "fc2.bias")).items():
                error = (got[name].double() - want).abs().max() / want.abs().max()
                self.assertLess(error, LIMITS["float"] if name == "fc2.weight" else 1e-12, name)

    def test_are_left_something_to_train(self):
        for pattern, words in (("fc9", "matches none of the model's 6 weights"),
                               (".", "matches all of the model's 6 weights"),
                               ("(", "an ECMAScript regular expression")):
            job = self.run_job("--model.name", "mlp", "--training.frozen", pattern, code=64)
            self.assert_first_line(job, "training.frozen", words)

    def test_do_not_count_steps_that_loss_scaling_skipped(self):
        # Adam's first step is the learning rate, for any gradient: if skipped steps counted, its corrections for the
        # initial zeros would be too small.
        for name in ("adam", "adamw", "lamb"):
            case = Case(0, name, "half")
            case.replicas, case.instances, case.micro_batch = 2, 1, 2
            case.keys.update({"schedule": "constant", "warmup-steps": 0, "clip-norm": 0, "steps": 6,
                              "loss-scaling": "auto", "gradient-accumulation": 1, "beta1": 0.9,
                              "beta2": 0.999, "epsilon": 1e-8, "learning-rate": 0.01,
                              "weight-decay": 0, "master-weights": "true"})
            case.keys.pop("scale-learning-rate", None)
            case.pieces, case.batch = 2, 4
            # The same batch in every step, so that it does not matter which steps were skipped.
            case.x = numpy.tile(case.x[:4] * 300, (6, 1))
            case.y = numpy.tile(case.y[:4], 6)
            got, profile = self.train(case)
            skipped = int(profile["outcome"]["skippedSteps"])
            self.assertGreaterEqual(skipped, 2, "nothing overflowed, so nothing is tested")
            case.keys["steps"] -= skipped
            for parameter, want in case.train().items():
                moved = (want - torch.tensor(case.weights[parameter])).abs().max()
                error = (got[parameter].double() - want).abs().max() / moved
                self.assertLess(error, 0.1, f"{name}, {parameter}, {skipped} skipped")


class Normalised:
    """resnet18 with weights `w`, as torchvision defines it."""

    def __init__(self, w):
        self.w = w

    def batch_norm(self, name, x, training):
        w = self.w
        return F.batch_norm(x, w[name + ".running_mean"], w[name + ".running_var"],
                            w[name + ".weight"], w[name + ".bias"], training)

    def __call__(self, x, training):
        def layer(i, x, stride, padding=1):
            convolution, norm = i
            x = F.conv2d(x, self.w[convolution + ".weight"], stride=stride, padding=padding)
            return self.batch_norm(norm, x, training)

        x = F.max_pool2d(F.relu(layer(("conv1", "bn1"), x, 2, 3)), 3, 2, 1)
        for stage in range(1, 5):
            for block in range(2):
                name, stride = f"layer{stage}.{block}.", 2 if block == 0 and stage > 1 else 1
                y = F.relu(layer((name + "conv1", name + "bn1"), x, stride))
                y = layer((name + "conv2", name + "bn2"), y, 1)
                if stride == 2:
                    x = layer((name + "downsample.0", name + "downsample.1"), x, 2, 0)
                x = F.relu(x + y)
        return F.linear(x.mean((2, 3)), self.w["fc.weight"], self.w["fc.bias"])


class BatchNormalisation(JobTest):
    REPLICAS, ACCUMULATED, MICRO_BATCH, STEPS, TESTED = 2, 2, 4, 2, 23
    RATE = 1e-5  # Small: small batches amplify the rounding of one step tenfold in the next.

    def data(self):
        numbers = numpy.random.default_rng(5)
        items = self.REPLICAS * self.ACCUMULATED * self.MICRO_BATCH * self.STEPS
        arrays = {"x_train": numbers.normal(0, 1, (items, 3, 40, 48)).astype(numpy.float32),
                  "y_train": numbers.integers(0, 6, items).astype(numpy.int32),
                  "x_test": numbers.normal(0, 1, (self.TESTED, 3, 40, 48)).astype(numpy.float32),
                  "y_test": numbers.integers(0, 6, self.TESTED).astype(numpy.int32)}
        arrays["y_train"][0] = 5
        path = self.folder / "data.npz"
        numpy.savez(path, **arrays)
        return path, {name: torch.tensor(array) for name, array in arrays.items()}

    def statistics_after(self, w, data):
        """Returns the running statistics: each replica's over its micro-batches in turn, averaged after each step."""
        weights = [tensor.requires_grad_() for name, tensor in w.items() if "running" not in name]
        names = [name for name in w if "running" in name]
        for step in range(self.STEPS):
            begin = {name: w[name] for name in names}
            mean = {name: 0 for name in names}
            gradients = [torch.zeros_like(tensor) for tensor in weights]
            for replica in range(self.REPLICAS):
                w.update({name: tensor.clone() for name, tensor in begin.items()})
                for piece in range(self.ACCUMULATED):
                    place = (step * self.ACCUMULATED + piece) * self.REPLICAS + replica
                    rows = slice(place * self.MICRO_BATCH, (place + 1) * self.MICRO_BATCH)
                    loss = F.cross_entropy(Normalised(w)(data["x_train"][rows].double(), True),
                                           data["y_train"][rows].long())
                    for sum_, gradient in zip(gradients, torch.autograd.grad(loss, weights)):
                        sum_ += gradient / (self.REPLICAS * self.ACCUMULATED)
                for name in names:
                    mean[name] = mean[name] + w[name] / self.REPLICAS
            w.update(mean)
            with torch.no_grad():
                for tensor, gradient in zip(weights, gradients):
                    tensor -= self.RATE * gradient
        return {name: w[name] for name in names}

    def test_statistics_evaluation_and_outputs_are_pytorchs(self):
        path, data = self.data()
        for precision, limit in (("float", 1e-5), ("half", 1e-2)):
            config = (f"[model]\nname = resnet18\nprecision = {precision}\n[data]\n"
                      f"source = npz:{path}\norder = sequential\n"
                      f"micro-batch-size = {self.MICRO_BATCH}\n[training]\nsteps = {self.STEPS}\n"
                      f"optimizer = sgd\nlearning-rate = {self.RATE}\n"
                      f"gradient-accumulation = {self.ACCUMULATED}\n")
            job = self.run_job("-n", self.REPLICAS, "--report.dump-tensors",
                               "(weight|bias|running_mean|running_var)$@1", config=config)
            end = read(job.output_dir / "weights.safetensors")
            dumped = read(job.output_dir / "dump-step-1.safetensors")
            begin = {name: dumped[name].double() for name in end}
            for name, want in self.statistics_after(begin, data).items():
                error = (end[name].double() - want).abs().max() / want.abs().max()
                self.assertLess(error, limit, name)

            with torch.no_grad():
                model = Normalised({name: tensor.double() for name, tensor in end.items()})
                logits = model(data["x_test"].double(), False)
            labels = data["y_test"].long()
            loss = F.cross_entropy(logits, labels).item()
            right = (logits.argmax(1) == labels).double().mean().item()
            inference = self.run_job(
                "-n", self.REPLICAS, "--model.mode", "inference", "--model.initial-weights",
                job.output_dir / "weights.safetensors", config=config)
            outputs = torch.tensor(numpy.load(inference.output_dir / "outputs.npy")).double()
            error = (outputs - logits).abs().max() / logits.abs().max()
            print(f"{precision}: loss {loss:.6f}, accuracy {right:.4f}, outputs off by {error:.1e}")
            self.assertLess(error, limit)
            for row in [row for row in (*job.metrics(), *inference.metrics())
                        if row["split"] == "test"]:
                self.assertAlmostEqual(float(row["loss"]), loss, delta=limit)
                self.assertAlmostEqual(float(row["accuracy"]), right, places=6)


if __name__ == "__main__":
    unittest.main()
