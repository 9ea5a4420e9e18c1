"""Token files to train on, from Parquet files.

>>> import heddle
>>> heddle.data.__all__
['tokenize_parquet']
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from .errors import Diagnostic, Error

__all__ = ["tokenize_parquet"]

# Documents that are in memory at a time.
_ROWS = 256
# Flags of `heddle tokenize` whose value can be the next argument.
_WITH_VALUE = {"--tokenizer", "-o", "--output", "--key", "--document_end", "--threads"}
_PathName = str | os.PathLike[str]


def tokenize_parquet(
    files: _PathName | Sequence[_PathName],
    *,
    tokenizer: _PathName,
    output: _PathName,
    column: str = "text",
    document_end: str | None = None,
    threads: int | None = None,
) -> dict[str, int]:
    """Turns a column of Parquet files into token files, as `heddle tokenize` does with text.

    `files` are files and folders of them. The rows are documents, in the order of the files and,
    in a folder, of names. Returns the numbers of `documents` and `tokens`, the `vocabulary`, and
    the number of other files in the folders, which are `skipped`. pyarrow reads the files, a few
    hundred documents at a time.

    >>> try:
    ...     heddle.data.tokenize_parquet("absent.parquet", tokenizer="llama", output="tokens")
    ... except heddle.Error as error:
    ...     print(error)
    cannot read `absent.parquet`: No such file or directory [file-read]
    """
    named = [files] if isinstance(files, (str, os.PathLike)) else list(files)
    flags = [f"--tokenizer={os.fspath(tokenizer)}", f"--output={os.fspath(output)}", "--json"]
    if document_end is not None:
        flags.append(f"--document_end={document_end}")
    if threads is not None:
        flags.append(f"--threads={threads}")
    found, skipped = _listed([Path(name) for name in named])
    done = _tokenize(found, column, [*flags, f"--key={column}", "-"])
    if done.returncode != 0:
        raise Error(done.stderr.strip())
    counts: dict[str, int] = json.loads(done.stdout)
    counted = {name: counts[name] for name in ("documents", "tokens", "vocabulary")}
    return {**counted, "skipped": skipped}


def _run_command(args: Sequence[str]) -> int | None:
    """`heddle tokenize ARGS` if its inputs are Parquet files; otherwise None."""
    inputs: list[str] = []
    others: list[str] = []
    column, flag = "text", ""
    for arg in args:
        if not flag and not arg.startswith("-"):
            inputs.append(arg)
            continue
        others.append(arg)
        name, _, value = (flag, "=", arg) if flag else arg.partition("=")
        column = value if name == "--key" else column
        flag = arg if not flag and arg in _WITH_VALUE else ""
    parquet = [name for name in inputs if any(map(_is_parquet, _files(Path(name))))]
    if not parquet:
        return None
    try:
        if len(parquet) < len(inputs):
            (other, *_) = (name for name in inputs if name not in parquet)
            place = f"`{parquet[0]}` is Parquet, but `{other}` is not"
            raise _mistake("data", f"{place}; write two folders of tokens")
        files, skipped = _listed([Path(name) for name in parquet])
        done = _tokenize(files, column, [*others, "-"])
    except Error as error:
        print(error, file=sys.stderr)
        return 1
    print(done.stdout, end="")
    print(done.stderr, end="", file=sys.stderr)
    if skipped:
        print(f"files that are not Parquet (skipped): {skipped}", file=sys.stderr)
    return done.returncode


def _mistake(kind: str, message: str) -> Error:
    return Error("", [Diagnostic(kind, message)])


def _files(path: Path) -> list[Path]:
    """The file itself, or the files below a folder; names that begin with a dot do not count."""
    if not path.is_dir():
        return [path]
    found = (file for file in path.rglob("*") if file.is_file())
    visible = (f for f in found if not any(p.startswith(".") for p in f.relative_to(path).parts))
    return sorted(visible, key=os.fspath)


def _is_parquet(path: Path) -> bool:
    return path.suffix == ".parquet"


def _listed(named: Sequence[Path]) -> tuple[list[Path], int]:
    """The Parquet files, and the number of other files in folders."""
    files: list[Path] = []
    skipped = 0
    for path in named:
        if not path.exists():
            reason = "No such file or directory"
            raise _mistake("file-read", f"cannot read `{path}`: {reason}")
        below = _files(path)
        found = list(filter(_is_parquet, below)) if path.is_dir() else below
        if not found:
            raise _mistake("data", f"`{path}` has no file whose name ends in .parquet")
        files += found
        skipped += len(below) - len(found)
    return files, skipped


def _tokenize(
    files: Sequence[Path], column: str, args: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    """Passes the documents to `heddle tokenize` as JSONL, whose text is at the column's name."""
    parquet = _pyarrow()
    command = [*_program(), "tokenize", *args]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as child:
        assert child.stdin and child.stdout and child.stderr
        try:
            for file in files:
                for text in _texts(parquet, file, column):
                    line = json.dumps({column: text}, ensure_ascii=False)
                    child.stdin.write(line.encode() + b"\n")
        except BrokenPipeError:
            pass  # It ended with an error.
        except BaseException:
            # After an incomplete line it fails, and removes what it wrote.
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write(b"\n{\n")
            _close(child.stdin)
            child.wait()
            raise
        _close(child.stdin)
        out, err = child.stdout.read().decode(), child.stderr.read().decode()
        return subprocess.CompletedProcess(command, child.wait(), out, err)


def _close(pipe: IO[bytes]) -> None:
    with contextlib.suppress(BrokenPipeError):
        pipe.close()


def _pyarrow() -> Any:
    try:
        return importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise _mistake(
            "data", f"Parquet files need pyarrow ({error}): {sys.executable} -m pip install pyarrow"
        ) from None


def _program() -> list[str]:
    """This package's command line. That of a wheel has no tokenizer."""
    own = [sys.executable, "-m", "heddle"]
    found = subprocess.run([*own, "tokenize", "--help"], capture_output=True, check=False)
    if found.returncode == 0:
        return own
    program = shutil.which("heddle")
    if program is None:
        raise _mistake(
            "tokenizer",
            "this build of the package has no tokenizer, and there is no program `heddle` in "
            "PATH; `make install` installs it",
        )
    return [program]


def _texts(parquet: Any, path: Path, column: str) -> Iterator[str]:
    """The rows of a column. Errors name the file and the row group."""
    arrow = importlib.import_module("pyarrow")
    damaged = (arrow.ArrowException, OSError)
    try:
        file = parquet.ParquetFile(path)
    except damaged as error:
        raise _mistake("data", f"`{path}`: the footer is damaged: {_first_line(error)}") from None
    with file:
        _check_column(arrow, file, path, column)
        for group in range(file.metadata.num_row_groups):
            row = 0
            batches = file.iter_batches(_ROWS, row_groups=[group], columns=[column])
            while True:
                try:
                    batch = next(batches, None)
                    texts = [] if batch is None else batch.column(0).to_pylist()
                except (*damaged, UnicodeDecodeError) as error:
                    place = f"`{path}`: row group {group} is damaged after row {row}"
                    raise _mistake("data", f"{place}: {_first_line(error)}") from None
                if batch is None:
                    break
                for text in texts:
                    if text is None:
                        place = f"`{path}`: row group {group}, row {row}"
                        raise _mistake("data", f"{place}: `{column}` is null, expected text")
                    yield text
                    row += 1


def _check_column(arrow: Any, file: Any, path: Path, column: str) -> None:
    schema = file.schema_arrow
    if column not in schema.names:
        names = ", ".join(f"`{name}`" for name in schema.names)
        message = f"`{path}` has no column `{column}`, only {names}; --key names the column"
        raise _mistake("data", message)
    kind = schema.field(column).type
    values = kind.value_type if arrow.types.is_dictionary(kind) else kind
    is_text = arrow.types.is_string(values) or arrow.types.is_large_string(values)
    if not is_text:
        raise _mistake("data", f"`{path}`: column `{column}` is {kind}, expected text")


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0] or type(error).__name__
