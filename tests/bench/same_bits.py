#!/usr/bin/env python3
"""Checks that two builds give the same results: runs short jobs with each and compares the sha256 of all results.

A change that only moves code must not change a bit. The jobs include every optimiser and precision, ONNX files,
accumulation, gradient buckets, inference, and several placements. Prints one row per job. Exit code 0 if all are equal,
1 if one differs or fails, 77 if --onnx was given and an ONNX model is missing.
"""
import argparse
import hashlib
import pathlib
import sys
import tempfile

import emulated_job as job

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
import safetensors_file  # noqa: E402

TINY_BERT = ["deploy/examples/bert-mini.cfg", "--model.layers=2", "--model.hidden=64", "--model.vocabulary=512",
             "--model.sequence-length=32", "--data.sequence-length=32",
             "--data.source=synthetic:tokens,vocabulary=512,items=2048", "--data.masks=5", "--training.steps=4"]
TINY_RESNET = ["train.cfg", "--model.name=resnet18", "--data.source=synthetic:images=3x32x32,classes=10,items=2048",
               "--data.micro-batch-size=4", "--training.steps=3", "--training.evaluate=false"]
TINY_GPT = ["deploy/examples/gpt2-text.cfg", "--model.layers=2", "--model.hidden=64", "--model.heads=4",
            "--model.sequence-length=32", "--data.sequence-length=32", "--training.steps=4", "--training.evaluate=false"]
CNN = ["train.cfg", "--training.steps=12"]

# Name: arguments of `poprun-emu`. Paths are relative to the repository.
JOBS = {
    "small-cnn, 1 instance": ["-n", "1", *CNN],
    "small-cnn, 4 replicas in 2 instances": ["-n", "4", "--num-instances", "2", *CNN],
    "small-cnn, 16 instances": ["-n", "16", *CNN, "--training.epochs=1"],
    "small-cnn, accumulation of 3": ["-n", "2", *CNN, "--training.gradient-accumulation=3"],
    "small-cnn, buckets of 1 MiB": ["-n", "3", *CNN, "--training.gradient-bucket=1"],
    "small-cnn, half": ["-n", "2", *CNN, "--model.precision=half"],
    "small-cnn, half, accumulated, stochastic, masters": [
        "-n", "2", *CNN, "--model.precision=half", "--training.gradient-accumulation=2", "--model.partials=half",
        "--training.stochastic-rounding=true", "--training.master-weights=true"],
    "small-cnn, adamw, clipped, cosine, frozen": [
        "-n", "2", *CNN, "--training.optimizer=adamw", "--training.clip-norm=0.5", "--training.schedule=cosine",
        "--training.weight-decay=0.01", "--training.frozen=conv1"],
    "mlp, nesterov, poisoned": ["-n", "2", "deploy/examples/mlp.cfg", "--training.steps=12",
                                "--memory.poison-dead=true"],
    "resnet18, sgd": ["-n", "2", *TINY_RESNET, "--training.optimizer=sgd"],
    "bert, lamb": ["-n", "2", *TINY_BERT, "--training.optimizer=lamb"],
    "bert, half, dropout": ["-n", "2", *TINY_BERT, "--model.precision=half", "--model.dropout=0.1"],
    "gpt2, accumulation of 2": ["-n", "2", *TINY_GPT, "--training.gradient-accumulation=2"],
    "small-cnn, inference": ["-n", "3", "train.cfg", "--model.mode=inference"],
}
ONNX_JOBS = {
    f"{name}, ONNX": ["-n", "2", "train.cfg", f"--model.onnx={{models}}/{name}/model.onnx",
                      "--data.source=synthetic:images=3x224x224,classes=1000,items=32", "--data.micro-batch-size=1",
                      "--training.steps=2", "--training.evaluate=false", "--training.learning-rate=0.001"]
    for name in ("squeezenet", "inception_v1")
}
RESULTS = ("weights.safetensors", "outputs.npy")


def contents(path):
    """Returns the bytes of a result; builds may differ in the metadata of weights."""
    raw = path.read_bytes()
    return safetensors_file.without_metadata(raw) if path.suffix == ".safetensors" else raw


def digest(bin_folder, arguments):
    """Returns the sha256 of one job's results."""
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / "run"
        job.run([bin_folder / "poprun-emu", *arguments, "--output-dir", output], 600, cwd=job.ROOT)
        found = [output / name for name in RESULTS if (output / name).is_file()]
        if not found:
            job.fail(f"no result of {' '.join(arguments)}")
        return hashlib.sha256(b"".join(contents(path) for path in found)).hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=pathlib.Path, help="programs before a change, such as build/release/bin")
    parser.add_argument("new", type=pathlib.Path, help="programs after it")
    parser.add_argument("--onnx", type=pathlib.Path, help="folder with NAME/model.onnx of squeezenet and inception_v1")
    parser.add_argument("--only", default="", help="only jobs whose name contains this")
    options = parser.parse_args()
    jobs = dict(JOBS)
    if options.onnx:
        if not options.onnx.is_dir():
            job.skip(f"no folder {options.onnx}")
        jobs |= {name: [word.format(models=options.onnx.resolve()) for word in arguments]
                 for name, arguments in ONNX_JOBS.items()}
    old, new = job.find_bin(options.old), job.find_bin(options.new)

    differing = 0
    for name, arguments in jobs.items():
        if options.only in name:
            before, after = digest(old, arguments), digest(new, arguments)
            differing += before != after
            print(f"{name:<52} {before[:16]}  {'equal' if before == after else 'DIFFERS: ' + after[:16]}", flush=True)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
