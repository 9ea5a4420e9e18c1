#!/usr/bin/env python3
"""Tests the defaults of `plan`, `sim`, `search` and `capture`: the device of the cluster, the
optimizer, and the memory of a device.

usage: defaults.py HEDDLE"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

HEDDLE = sys.argv[1]
DATA = pathlib.Path(__file__).resolve().parents[2] / "heddle/price/cost/data"
LLAMA = ["--model=llama3", "--flavor=debugmodel", "--model.n_layers=1", "--training.seq_len=64"]
# The attention op on each device.
KERNELS = {"cuda": "aten._scaled_dot_product_cudnn_attention(", "cpu": "aten._scaled_dot_product_flash_attention_for_cpu("}


class Defaults(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def heddle(self, *args, exit_code=0):
        done = subprocess.run([HEDDLE, *args], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, exit_code, f"{args}: {done.stderr}")
        return done

    def json(self, *args):
        return json.loads(self.heddle(*args, "--json").stdout)

    def cluster(self, name, **device):
        """Writes a file like h100-8x with other values of its device; None removes one."""
        data = json.loads((DATA / "h100-8x.json").read_text())
        data["device"].update(device)
        data["device"] = {key: value for key, value in data["device"].items() if value is not None}
        del data["sources"]
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(data))
        return path

    def commands(self):
        yield ["plan", *LLAMA]
        yield ["sim", *LLAMA]
        yield ["search", *LLAMA, "--devices=1", "--parallelism.auto=false"]

    def test_the_device_is_that_of_the_cluster(self):
        cases = [([], "cuda"), (["--cluster=a100-8x"], "cuda"), (["--cluster=cpu"], "cpu"),
                 (["--runtime.device=cpu"], "cpu"), (["--cluster=cpu", "--runtime.device=cuda"], "cuda"),
                 ([f"--cluster={self.cluster('slow', type='cpu')}"], "cpu"),
                 ([f"--cluster={self.cluster('untyped', type=None)}"], "cuda")]
        for command in self.commands():
            for flags, device in cases:
                with self.subTest(command=command[0], flags=flags):
                    self.assertEqual(self.json(*command, *flags)["device"], device)
        for flags, device in cases:
            with self.subTest(command="capture", flags=flags):
                text = self.heddle("capture", *LLAMA, *flags).stdout
                self.assertIn(KERNELS[device], text)

    def test_the_old_name_of_the_flag_is_accepted_with_a_hint(self):
        for command in ["plan", "sim"]:
            done = self.heddle(command, *LLAMA, "--device=cpu", "--json")
            self.assertEqual(json.loads(done.stdout)["device"], "cpu")
            self.assertIn("--device is now named --runtime.device", done.stderr)
        job = self.folder / "job.toml"
        job.write_text('device = "cpu"\n')
        self.assertEqual(self.json("plan", *LLAMA, f"--config={job}")["device"], "cpu")
        self.assertNotIn("--device ", self.heddle("plan", "--help").stdout)

    def test_a_wrong_device_type_of_a_cluster(self):
        done = self.heddle("plan", *LLAMA, f"--cluster={self.cluster('wrong', type='tpu')}", exit_code=1)
        self.assertIn("device.type", done.stderr)

    def test_the_optimizer_is_part_of_the_step(self):
        for command in ["plan", "sim"]:
            whole = self.json(command, *LLAMA)
            self.assertTrue(whole["optimizer"])
            again = self.json(command, *LLAMA, "--with-optimizer")
            self.assertEqual(whole["peak_bytes"], again["peak_bytes"])
            without = self.json(command, *LLAMA, "--without-optimizer")
            self.assertFalse(without["optimizer"])
            # Two moments in f32 per parameter.
            self.assertGreater(whole["peak_bytes"], without["peak_bytes"])
        self.assertIn("aten._fused_adamw", self.heddle("capture", *LLAMA).stdout)
        self.assertNotIn("aten._fused_adamw", self.heddle("capture", *LLAMA, "--without-optimizer").stdout)
        for command in ["plan", "sim", "capture"]:
            done = self.heddle(command, *LLAMA, "--with-optimizer", "--without-optimizer", exit_code=1)
            self.assertIn("--with-optimizer and --without-optimizer set the same flag", done.stderr)

    def test_a_budget_counts_the_state_of_the_optimizer(self):
        without = self.json("plan", *LLAMA, "--without-optimizer")
        budget = f"{without['peak_bytes']}B"
        self.heddle("plan", *LLAMA, "--without-optimizer", f"--memory.budget={budget}")
        done = self.heddle("plan", *LLAMA, f"--memory.budget={budget}", exit_code=3)
        self.assertIn("infeasible", done.stderr)

    def test_a_step_larger_than_the_device(self):
        small = self.cluster("small", memory_gib=0.01)
        notes = self.json("plan", *LLAMA, f"--cluster={small}")["notes"]
        self.assertTrue(any("more than the 10.24 MiB of a device" in note for note in notes), notes)
        self.assertFalse(any("of a device" in note for note in self.json("plan", *LLAMA)["notes"]))

    def test_a_plan_that_is_found_fits_the_device(self):
        model = ["plan", "--model=llama3", "--flavor=debugmodel", "--training.seq_len=512", "--parallelism.auto", "--mesh=dp=2"]
        free = self.json(*model)
        needed = free["peak_bytes"]
        self.assertFalse(any("recomputation" in note for note in free["notes"]))
        smaller = self.cluster("smaller", memory_gib=needed * 0.9 / 2**30)
        fitted = self.json(*model, f"--cluster={smaller}")
        self.assertLessEqual(fitted["peak_bytes"], needed * 0.9)
        self.assertTrue(any("needs" in note and "fits" in note for note in fitted["notes"]), fitted["notes"])
        # With fixed checkpointing, another plan fits, or none.
        fixed = [*model, "--activation_checkpoint.mode=full"]
        done = self.heddle(*fixed, f"--cluster={self.cluster('tiny', memory_gib=0.001)}", exit_code=3)
        self.assertIn("the least possible is", done.stderr)
        done = self.heddle(*model, f"--cluster={self.cluster('tiny', memory_gib=0.001)}", exit_code=3)
        self.assertIn("the least is", done.stderr)

    def test_an_unknown_cluster_is_refused_even_where_no_figure_needs_it(self):
        for command in ["plan", "capture"]:
            for device in [[], ["--runtime.device=cpu"]]:
                done = self.heddle(command, *LLAMA, "--cluster=h100", *device, exit_code=1)
                self.assertIn("no cluster is named `h100`", done.stderr)
                self.assertIn("a100-8x, b200-8x, cpu", done.stderr)

    def test_what_others_published_is_marked_as_simulated(self):
        answer = self.json("search", "--model=llama3", "--flavor=8B", "--model.n_layers=1", "--training.seq_len=64",
                           "--devices=8", "--parallelism.auto=false")
        self.assertEqual(answer["published"]["source"], "TorchTitan's settings, simulated")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
