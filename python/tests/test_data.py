"""Parquet files as tokens. All but the first tests need pyarrow, and a build with the tokenizer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import heddle
from heddle.data import tokenize_parquet

TEXTS = [f'Document {i}: Grüße, "quoted" and\nbroken.\t\\ {"x" * (i % 7)}' for i in range(700)]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Byte-level tokens without merges."""
    folder = tmp_path_factory.mktemp("tokenizer")
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = [chr(b) for b in plain] + [chr(256 + i) for i in range(len(others))]
    level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    tokens = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {"type": "BPE", "vocab": {c: i for i, c in enumerate(letters)}, "merges": []},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokens), "utf-8")
    return folder


@pytest.fixture
def parquet() -> Any:
    found = subprocess.run([*COMMAND, "--help"], capture_output=True, check=False)
    if found.returncode != 0:
        pytest.skip("the package is built without the tokenizer")
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    return pytest.importorskip("pyarrow.parquet")


COMMAND = [sys.executable, "-m", "heddle", "tokenize"]


def write(path: Path, texts: list[str | None], groups: int = 100, column: str = "text") -> Path:
    import pyarrow
    from pyarrow import parquet

    path.parent.mkdir(exist_ok=True)
    table = pyarrow.table({"number": range(len(texts)), column: texts})
    parquet.write_table(table, path, row_group_size=groups, compression="NONE")
    return path


def files_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def refusal(*names: Path, **options: Any) -> str:
    with pytest.raises(heddle.Error) as raised:
        tokenize_parquet(names, **options)
    output = Path(options["output"])
    assert not output.exists() and not output.with_name(output.name + ".partial").exists()
    return str(raised.value)


def test_without_pyarrow_the_command_is_named(tmp_path: Path, tokenizer: Path) -> None:
    (tmp_path / "pyarrow.py").write_text("raise ImportError('no pyarrow')")
    (tmp_path / "a.parquet").touch()
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [*COMMAND, f"--tokenizer={tokenizer}", str(tmp_path / "a.parquet"), "-o", "out"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Parquet files need pyarrow (" in done.stderr
    assert "-m pip install pyarrow [data]" in done.stderr


def test_tokens_are_those_of_jsonl(parquet: Any, tokenizer: Path, tmp_path: Path) -> None:
    write(tmp_path / "in/a.parquet", TEXTS[:400])
    write(tmp_path / "in/b.parquet", TEXTS[400:], groups=1000)
    (tmp_path / "in/README.md").write_text("No document.")
    (tmp_path / "in/.hidden").touch()
    lines = tmp_path / "texts.jsonl"
    lines.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS), "utf-8")
    flags = [f"--tokenizer={tokenizer}", "--document_end=!"]
    expected = tmp_path / "expected"
    subprocess.run([*COMMAND, *flags, lines, "-o", expected], check=True, capture_output=True)
    out = tmp_path / "out"
    options = {"tokenizer": tokenizer, "document_end": "!", "threads": 3}
    found = tokenize_parquet(tmp_path / "in", output=out, **options)
    assert files_of(out) == files_of(expected)
    size = len(files_of(out)["train.bin"]) // 2
    assert found == {"documents": 700, "tokens": size, "vocabulary": 256, "skipped": 1}
    # On the command line, with another column.
    other = write(tmp_path / "c.parquet", TEXTS, column="content")
    again = tmp_path / "again"
    done = subprocess.run(
        [*COMMAND, *flags, "--key", "content", other, "-o", again],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "700 documents" in done.stdout
    assert files_of(again) == files_of(expected)


def test_damage_has_a_position(parquet: Any, tokenizer: Path, tmp_path: Path) -> None:
    options = {"tokenizer": tokenizer, "output": tmp_path / "out"}
    whole = write(tmp_path / "a.parquet", TEXTS, groups=100)
    content = whole.read_bytes()
    metadata = parquet.ParquetFile(whole).metadata
    bad = tmp_path / "bad.parquet"
    # The header of the column's pages in the fifth row group.
    begin = metadata.row_group(4).column(1).data_page_offset
    bad.write_bytes(content[:begin] + b"\xff" * 40 + content[begin + 40 :])
    assert f"`{bad}`: row group 4 is damaged after row 0: " in refusal(whole, bad, **options)
    bad.write_bytes(content[:-100])
    assert f"`{bad}`: the footer is damaged: " in refusal(bad, **options)
    bad.write_bytes(b"")
    assert f"`{bad}`: the footer is damaged: " in refusal(bad, **options)


def test_mistakes(parquet: Any, tokenizer: Path, tmp_path: Path) -> None:
    options = {"tokenizer": tokenizer, "output": tmp_path / "out"}
    null = write(tmp_path / "null.parquet", [*TEXTS[:250], None], groups=100)
    said = refusal(null, **options)
    assert f"`{null}`: row group 2, row 50: `text` is null, expected text [data]" in said
    said = refusal(null, **options, column="content")
    assert "has no column `content`, only `number`, `text`; --key names the column" in said
    assert "column `number` is int64, expected text" in refusal(null, **options, column="number")
    assert "has no file whose name ends in .parquet" in refusal(tokenizer, **options)
    # An error of the tokenizer, while documents are waiting.
    wrong = {**options, "tokenizer": tmp_path}
    assert "tokenizer.json" in refusal(write(tmp_path / "b.parquet", TEXTS * 50), **wrong)
    command = [*COMMAND, f"--tokenizer={tokenizer}", null, tokenizer, "-o", tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and f"`{tokenizer}` is not; write two folders" in done.stderr
