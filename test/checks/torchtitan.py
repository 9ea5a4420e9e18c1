#!/usr/bin/env python3
"""Tests job files and flags of TorchTitan: they are accepted, rejected with a hint, or noted.

torchtitan.py HEDDLE"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import tomllib
except ImportError:
    print("skipped: tomllib comes with Python 3.11")
    sys.exit(77)

HEDDLE = sys.argv[1]
FILES = pathlib.Path(__file__).parent / "torchtitan"


def heddle(*args):
    return subprocess.run([HEDDLE, *args], text=True, capture_output=True, check=False)


def job(text, *args):
    """Returns the job that `heddle train` reads from a file, as a dictionary, and its notes."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(text)
        file.flush()
        done = heddle("train", "--config", file.name, "--config-show", *args)
        assert done.returncode == 0, done.stderr
        return tomllib.loads(done.stdout), done.stderr.replace(file.name, "job.toml")


def keys(table, prefix=""):
    for name, value in table.items():
        if isinstance(value, dict):
            yield from keys(value, f"{prefix}{name}.")
        else:
            yield prefix + name


class TorchTitan(unittest.TestCase):
    def test_every_key_with_its_default_is_accepted(self):
        made, notes = job((FILES / "defaults.toml").read_text())
        self.assertEqual(made["model"]["name"], "llama3")
        self.assertEqual(made["lr_scheduler"]["decay"], "linear")
        self.assertEqual(made["checkpoint"]["keep"], 10)
        self.assertIs(made["checkpoint"]["async"], False)
        self.assertEqual(made["validation"]["interval"], 0)
        self.assertEqual(made["precision"], "bf16")
        self.assertEqual(made["training"]["mixed_precision_reduce"], "f32")
        self.assertEqual(made["training"]["global_batch_size"], 0)
        self.assertEqual(made["runtime"]["timeout"], 100)
        self.assertIn("note: job.toml: `job.description` has no effect: Heddle uses no description\n", notes)
        # A note names a key of the file, and its reason appears once.
        reasons = [line.partition(" no effect: ")[2] for line in notes.splitlines()]
        self.assertEqual(len(reasons), len(set(reasons)))

    def test_every_key_is_accepted_as_a_flag(self):
        flags = [f"--{key}=1" for key in keys(tomllib.loads((FILES / "defaults.toml").read_text()))]
        self.assertGreater(len(flags), 130)
        self.assertNotIn("unknown argument", heddle("train", *flags).stderr)

    def test_a_job(self):
        text = (FILES / "job.toml").read_text()
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(text)
            file.flush()
            done = heddle("train", "--config", file.name)
        self.assertEqual(done.returncode, 1)
        self.assertIn("`profiling.enable_profiling` is `true`; use `heddle train --profile", done.stderr)
        self.assertEqual(done.stderr.count("[unknown-flag]"), 1)
        text = text.replace("enable_profiling = true", "enable_profiling = false")
        made, notes = job(text)
        self.assertEqual(made["flavor"], "8B")
        self.assertEqual(made["training"]["steps"], 50)
        self.assertEqual(made["lr_scheduler"]["decay_ratio"], 0.6)
        self.assertEqual(made["parallelism"]["data_parallel_shard_degree"], -1)
        self.assertEqual(made["activation_checkpoint"]["selective_ac_option"], "2")
        # enable = false
        self.assertEqual(made["checkpoint"]["folder"], "")
        self.assertEqual(made["validation"]["interval"], 0)
        self.assertNotIn("unknown", notes)
        made, _ = job(text, "--checkpoint.enable", "--validation.enable")
        self.assertTrue(made["checkpoint"]["folder"].endswith("/saved"))
        self.assertEqual(made["validation"]["interval"], 30)
        self.assertTrue(made["metrics"]["tensorboard"].endswith("/events"))

    def test_short_names(self):
        done = heddle("train", "--dp=4", "--tp", "2", "--ep=1", "--model.flavor=8B", "--config-show")
        self.assertEqual(done.stderr, "")
        made = tomllib.loads(done.stdout)
        self.assertEqual(made["parallelism"]["data_parallel_shard_degree"], 4)
        self.assertEqual(made["parallelism"]["tensor_parallel_degree"], 2)
        self.assertEqual(made["flavor"], "8B")

    def test_ends_of_flags_are_answered(self):
        self.assertEqual(heddle("train", "--tensor_parallel_degree=2").stderr,
                         "unknown argument `--tensor_parallel_degree`; write "
                         "`--parallelism.tensor_parallel_degree` [unknown-flag]\n")
        self.assertEqual(heddle("train", "--steps=2").stderr,
                         "unknown argument `--steps`; write `--training.steps` or `--validation.steps` "
                         "[unknown-flag]\n")

    def test_the_file_may_be_named_as_torchtitan_does(self):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write("[model]\nflavor = \"70B\"\n")
            file.flush()
            done = heddle("plan", "--job.config_file", file.name, "--config-show")
        self.assertEqual(tomllib.loads(done.stdout)["flavor"], "70B", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
