#!/usr/bin/env python3
"""Checks that TensorBoard reads our event files: reads_events.py WRITE_EVENTS. Exits with 77
without TensorBoard."""
import pathlib
import subprocess
import sys
import tempfile

try:
    from tensorboard.backend.event_processing import event_accumulator
except ImportError:
    print("skipped: this Python has no tensorboard (requirements.txt pins it)")
    sys.exit(77)

# More than 255, so that lengths and numbers take several bytes.
STEPS = 300


def reader_of(folder):
    reader = event_accumulator.EventAccumulator(folder, size_guidance={event_accumulator.SCALARS: 0})
    reader.Reload()
    return reader


def read(folder):
    reader = reader_of(folder)
    return {tag: [(e.step, e.value) for e in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], folder, str(STEPS)], check=True)
        scalars = read(folder)
        loss = scalars["loss_metrics/global_avg_loss"]
        assert [step for step, _ in loss] == list(range(1, STEPS + 1)), loss
        assert all(abs(value - 10 / step) < 1e-6 for step, value in loss), loss
        assert scalars["validation_metrics/loss"] == [(100, 2.5), (200, 2.5), (300, 2.5)], scalars["validation_metrics/loss"]
        assert {step for step, value in scalars["validation_metrics/perplexity"] if abs(value - 12.18249) < 1e-4} == {100, 200, 300}
        assert scalars["mfu(%)"][0] == (1, 25.0), scalars["mfu(%)"][0]
        assert scalars["tokens_per_expert/layers.1/1"][-1] == (300, 300.0)
        samples = reader_of(folder).Tensors("samples/1")
        assert [sample.step for sample in samples] == [200], samples
        text = samples[0].tensor_proto.string_val[0].decode()
        assert text == "prompt:\n\n    # Once\n\ntext:\n\n    upon\n    *a* time\n", text
        # The checksum detects a flipped bit: TensorBoard reads the events before it.
        path, = pathlib.Path(folder).iterdir()
        damaged = bytearray(path.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        path.write_bytes(damaged)
        left = read(folder).get("loss_metrics/global_avg_loss", [])
        assert len(left) < STEPS and left == loss[:len(left)], len(left)
    print(f"TensorBoard reads {len(scalars)} scalars of {STEPS} steps")


if __name__ == "__main__":
    main()
