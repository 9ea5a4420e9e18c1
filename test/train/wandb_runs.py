#!/usr/bin/env python3
"""Reads the runs of `heddle train --metrics.wandb` with the `wandb` package: wandb_runs.py HEDDLE.
Exits with 77 without it."""
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile

os.environ.update(WANDB_SILENT="true", WANDB_ERROR_REPORTING="false")
try:
    import wandb
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore
except ImportError as error:
    print(f"skipped: this Python cannot read runs of wandb: {error} (requirements-tests.txt pins it)")
    sys.exit(77)
wandb._assert_is_internal_process = True

SMALL = ["--training.seq_len=16", "--training.dataset=text", "--model=llama3", "--model.n_layers=1", "--model.dim=32", "--model.n_heads=2",
         "--model.n_kv_heads=2", "--model.ffn_dim=48", "--model.vocab_size=256", "--validation.interval=3", "--validation.steps=1"]


def records_of(path):
    """Returns the records that DataStore reads, up to the end of a file that may be cut."""
    store = DataStore()
    store.open_for_scan(path)
    records = []
    while True:
        try:
            data = store.scan_data()
        except AssertionError:
            break
        if data is None:
            break
        records.append(wandb_internal_pb2.Record.FromString(data))
    return records


def of_kind(records, kind):
    return [getattr(record, kind) for record in records if record.WhichOneof("record_type") == kind]


def items(messages):
    return {item.key: json.loads(item.value_json) for item in messages}


def histories(records):
    rows = [items(history.item) for history in of_kind(records, "history")]
    for row, history in zip(rows, of_kind(records, "history")):
        assert row["_step"] == history.step.num, row
    return rows


def without_times(rows):
    times = ("_timestamp", "_runtime", "throughput(tps)", "tflops", "time_metrics", "memory")
    return [{key: value for key, value in row.items() if not key.startswith(times)} for row in rows]


class Runs:
    def __init__(self, heddle, folder):
        self.heddle = heddle
        self.folder = folder

    def command(self, name, steps, *flags):
        return [self.heddle, "train", *SMALL, f"--training.steps={steps}", f"--metrics.wandb={self.folder}/{name}", *flags]

    def train(self, *args, code=0, **variables):
        run = subprocess.run(self.command(*args), capture_output=True, text=True, stdin=subprocess.DEVNULL, env={**os.environ, **variables})
        assert run.returncode == code, f"{args}: exit code {run.returncode}\n{run.stdout}{run.stderr}"
        return run

    def files(self, name):
        return sorted(glob.glob(f"{self.folder}/{name}/wandb/offline-run-*/run-*.wandb"))


def writes_a_run(runs):
    metrics = f"{runs.folder}/metrics.jsonl"
    runs.train("whole", 6, f"--metrics.jsonl={metrics}", "--metrics.sample_every=6", "--metrics.sample_prompt=// \"é\"",
               WANDB_PROJECT="stories", WANDB_ENTITY="us", WANDB_NAME="first")
    path, = runs.files("whole")
    records = records_of(path)
    run, = of_kind(records, "run")
    assert (run.project, run.entity, run.display_name) == ("stories", "us", "first"), run
    assert f"run-{run.run_id}.wandb" == os.path.basename(path) and os.path.dirname(path).endswith(f"-{run.run_id}")
    config = items(run.config.update)
    assert config["model"]["name"] == "llama3" and config["model"]["dim"] == 32 and config["training"]["steps"] == 6, config
    assert config["optimizer"]["lr"] == 8e-4 and config["metrics"]["sample_prompt"] == ['// "é"'], config
    rows = histories(records)
    with open(metrics) as lines:
        expected = [json.loads(line) for line in lines]
    names = {"loss": "loss_metrics/global_avg_loss", "grad_norm": "grad_norm", "lr": "lr", "tps": "throughput(tps)",
             "validation_loss": "validation_metrics/loss", "validation_perplexity": "validation_metrics/perplexity",
             "seconds": "time_metrics/end_to_end(s)"}
    assert [row["_step"] for row in rows] == list(range(1, 7)), rows
    for row, line in zip(rows, expected):
        for key, name in names.items():
            assert row.get(name) == line.get(key), (name, row, line)
    assert rows[5]["samples/1/prompt"] == '// "é"' and rows[5]["samples/1/text"] == expected[5]["samples"][0]["text"], rows[5]
    assert all(a["_runtime"] < b["_runtime"] and a["_timestamp"] < b["_timestamp"] for a, b in zip(rows, rows[1:])), rows
    summaries = [items(summary.update) for summary in of_kind(records, "summary")]
    assert summaries == rows, "the summary is that of the last step"
    end, = of_kind(records, "exit")
    assert end.exit_code == 0 and records[-1].WhichOneof("record_type") == "exit"
    assert [record.num for record in records] == list(range(1, len(records) + 1))
    print(f"wandb reads a run of {len(rows)} steps, its configuration, summary and end")


def killed_and_resumed(runs):
    flags = ["--lr_scheduler.decay=none", "--checkpoint.interval=4"]
    runs.train("resumed", 8, *flags)
    expected = without_times(histories(records_of(runs.files("resumed")[0])))
    saved = [*flags, f"--checkpoint.folder={runs.folder}/saved", "--checkpoint.async=false"]
    victim = subprocess.Popen(runs.command("resumed", 100000, *saved), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in victim.stdout:
        if line.startswith("step:  7"):
            break
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    victim.stdout.close()
    path = next(path for path in runs.files("resumed") if not of_kind(records_of(path), "exit"))
    rows = without_times(histories(records_of(path)))
    assert len(rows) >= 6 and rows[:6] == expected[:6], f"a killed run leaves its steps: {rows[:6]}, not {expected[:6]}"
    latest = max(int(name[5:]) for name in os.listdir(f"{runs.folder}/saved") if name.startswith("step-") and name[5:].isdigit())
    runs.train("resumed", latest + 2, *saved)
    assert len(runs.files("resumed")) == 2, runs.files("resumed")
    records = records_of(path)
    rows = without_times(histories(records))
    assert [row["_step"] for row in rows] == list(range(1, latest + 3)), rows
    assert rows[:6] == expected[:6]
    assert [record.num for record in records] == list(range(1, len(records) + 1)) and of_kind(records, "exit")[0].exit_code == 0
    print("a killed run leaves its steps, and the resumed run continues its file")


def ids(runs):
    for _ in range(2):
        runs.train("ids", 1)
    first, second = sorted((os.path.basename(path)[4:-6] for path in runs.files("ids")), key=len)
    assert second == f"{first}-2", (first, second)
    runs.train("ids", 1, WANDB_RUN_ID="mine")
    assert any(path.endswith("run-mine.wandb") for path in runs.files("ids"))
    said = runs.train("ids", 1, code=1, WANDB_RUN_ID="a/b").stderr
    assert "WANDB_RUN_ID is `a/b`" in said, said
    # A run that ends with a fault states its exit code.
    runs.train("fault", 3, "--optimizer.lr=1e38", "--lr_scheduler.warmup_steps=0", code=4)
    end, = of_kind(records_of(runs.files("fault")[0]), "exit")
    assert end.exit_code == 4, end
    # Rank 0 writes the run of all processes.
    runs.train("ranks", 1, "--dp=2", "--nproc=2")
    assert len(histories(records_of(runs.files("ranks")[0]))) == 1
    print("ids, exit codes and processes are as expected")


def main():
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(sys.argv[1], folder)
        writes_a_run(runs)
        killed_and_resumed(runs)
        ids(runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
