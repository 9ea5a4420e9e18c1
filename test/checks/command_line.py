#!/usr/bin/env python3
"""Tests whole processes: closed, full and endless streams, links, modes and signals.

command_line.py HEDDLE [--sanitized]"""
import contextlib
import fcntl
import functools
import os
import pathlib
import re
import resource
import shlex
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import termios
import unittest
import zipfile

HEDDLE = os.path.abspath(sys.argv[1])
SANITIZED = "--sanitized" in sys.argv
GRAPH = "heddle 1 global\ngraph @g(%x: f32[8] batch \"x\") -> (metric %a) {\n  %a = aten.neg(%x) : f32[8]\n}\n"
# A timeout in seconds. Correct runs are much faster, even on a busy machine.
HANG = 300
PLAN = "heddle plan 1\nmesh [dp=2]\ninput \"x\" [dp]\n"


class CommandLine(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.graph = str(self.folder / "g.hd")
        self.plan = str(self.folder / "g.plan")
        pathlib.Path(self.graph).write_text(GRAPH)
        pathlib.Path(self.plan).write_text(PLAN)

    def heddle(self, *args, **options):
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        return subprocess.run([HEDDLE, *args], text=True, check=False, **options)

    @staticmethod
    @functools.cache
    def runs(name):
        """Whether this build has the command. Some need libtorch."""
        done = subprocess.run([HEDDLE, name, "--none"], capture_output=True, text=True, check=False)
        return "needs libtorch" not in done.stderr

    def commands(self):
        """Arguments for each command of the help, and for each of its output forms."""
        other = str(self.folder / "other.hd")
        pathlib.Path(other).write_text(GRAPH.replace("neg", "exp"))
        local = str(self.folder / "local.hd")
        pathlib.Path(local).write_text(GRAPH.replace("global", "local"))
        problem = str(self.folder / "problem.json")
        pathlib.Path(problem).write_text('{"vars": [{"cost": [1, 0]}]}')
        mlp = ["--model=mlp", "--flavor=small"]
        verify = mlp + ["--training.seq_len=8", "--training.steps=2"]
        calls = {
            "check": [[self.graph], [self.graph, "--json"]],
            "calibrate": [["--help"]],
            "checkpoint": [["--help"]],
            "completion": [["bash"], ["zsh"], ["fish"]],
            "diff": [[self.graph, other], [self.graph, other, "--json"]],
            "import": [["--help"]],
            "memory": [["--help"]],
            "tune": [["--help"]],
            "train": [verify + ["--training.dataset=synthetic"]],
            "doc": [["ops"], ["passes", "--json"], ["man"]],
            "opt": [[self.graph], [self.graph, "--json"]],
            "overlap": [[local], [local, "--json"]],
            "search": [["--help"]],
            "parallelize": [[self.graph, "--plan", self.plan], [self.graph, "--plan", self.plan, "--json"]],
            "reduce": [["--help"]],
            "report": [[local], [local, "--against", local], [local, "--against", local, "--json"], [local, "--html=-"]],
            "schedule": [[], ["1F1B"], ["1F1B", "--csv"], ["1F1B", "--svg=-"], ["--json"]],
            "sim": [[local], [local, "--json"], [local, "--timeline"], [local, "--trace=-"]],
            "solve": [[problem], [problem, "--json"]],
            "stats": [[self.graph], [self.graph, "--json"]],
            "tokenize": [["--help"]],
            "capture": [mlp],
            "export": [["--help"]],
            "kernels": [mlp, mlp + ["--json"]],
            "models": [[], ["--json"]],
            "generate": [["--help"]],
            "plan": [mlp, mlp + ["--json"], mlp + ["--write-plan=-"]],
            "verify": [verify, verify + ["--json"]],
        }
        listed = re.findall(r"^  (\w+) ", self.heddle("--help").stdout, re.M)
        self.assertEqual(sorted(calls), sorted(listed), "a command of the help has no calls here")
        for name, variants in calls.items():
            if not self.runs(name):
                variants = []
            yield from ([name, *arguments] for arguments in variants + [["--help"]])
        yield from ([], ["help"], ["--help"], ["--version"])

    def test_both_programs_list_the_same_commands(self):
        torch = HEDDLE + "-torch"
        if not os.path.exists(torch):
            self.skipTest("this build has no libtorch")
        done = subprocess.run([torch, "--help"], capture_output=True, text=True, check=False)
        self.assertEqual(done.stdout, self.heddle("--help").stdout)

    def test_a_result_that_cannot_be_written_is_a_failure(self):
        for args in self.commands():
            with self.subTest(args), open("/dev/full", "w") as full:
                done = self.heddle(*args, stdout=full)
                self.assertEqual(done.returncode, 1)
                self.assertIn("cannot write to standard output: No space left on device [file-write]", done.stderr)

    def test_a_result_that_can_be_written_is_not(self):
        for args in self.commands():
            with self.subTest(args):
                done = self.heddle(*args)
                self.assertEqual(done.returncode, 2 if args[:1] == ["diff"] and "--help" not in args else 0, done.stderr)
                self.assertNotEqual(done.stdout, "")

    def on_a_terminal(self, *args, columns=0, **environment):
        """Returns the output of a command whose standard output is a terminal."""
        terminal, end = os.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        variables = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
        process = subprocess.Popen([HEDDLE, *args], stdin=subprocess.DEVNULL, stdout=end, env={**variables, **environment})
        os.close(end)
        printed = b""
        # Reading fails at the end of a terminal without a writer.
        with contextlib.suppress(OSError):
            while part := os.read(terminal, 1 << 16):
                printed += part
        os.close(terminal)
        self.assertEqual(process.wait(), 0)
        return printed

    def test_a_long_graph_goes_to_a_terminal_only_if_asked(self):
        nodes = "".join(f"  %n{i} = aten.neg(%{'x' if i == 0 else f'n{i - 1}'}) : f32[8]\n" for i in range(300))
        text = GRAPH.replace("metric %a", "metric %n299").replace("  %a = aten.neg(%x) : f32[8]\n", nodes)
        graph = str(self.folder / "long.hd")
        pathlib.Path(graph).write_text(text)
        shown = self.on_a_terminal("opt", graph).decode()
        self.assertIn("the graph has 303 lines; `-o FILE` writes it to a file, `-o -` prints it here", shown)
        self.assertIn("nodes       300", shown)
        self.assertNotIn("%n299 =", shown)
        self.assertIn("%n299 =", self.on_a_terminal("opt", graph, "-o", "-").decode())
        self.assertEqual(self.heddle("opt", graph).stdout.count("\n"), 303)
        # Short graphs are printed.
        self.assertIn(b"%a = aten.neg", self.on_a_terminal("opt", self.graph))

    def test_help_fits_the_terminal(self):
        def width(text):
            return max(len(line) for line in text.replace("\r", "").split("\n") if not line.startswith("  heddle "))
        for args in (["opt", "--help"], ["--help"], ["sim", "--help"]):
            with self.subTest(args):
                self.assertIn(width(self.heddle(*args).stdout), range(90, 101))
                self.assertEqual(self.heddle(*args, env={**os.environ, "COLUMNS": "60"}).stdout, self.heddle(*args).stdout)
                # The longest flag of `sim` takes 61 columns.
                self.assertIn(width(self.on_a_terminal(*args, columns=64).decode()), range(54, 65))
                self.assertIn(width(self.on_a_terminal(*args, columns=60, COLUMNS="80").decode()), range(70, 81))
                self.assertIn(width(self.on_a_terminal(*args, columns=500).decode()), range(100, 121))

    def test_examples_of_the_help_have_flags_that_exist(self):
        for name in re.findall(r"^  (\w+) ", self.heddle("--help").stdout, re.M):
            text = self.heddle("help", name).stdout
            if not self.runs(name):
                continue
            examples = [line.strip() for line in text.partition("\nExamples:\n")[2].split("\n\n")[0].splitlines()]
            self.assertTrue(examples, f"{name} has no example")
            for example in examples:
                words = shlex.split(re.sub(r"[|>)].*", "", example.replace("<(", "")))
                args = words[words.index("heddle") + 1:]
                self.assertEqual(args[0], name)
                with self.subTest(example):
                    # All errors are reported, and nothing runs.
                    config = [a for a in args if not a.startswith("--config")]
                    self.assertEqual(self.heddle(*config, "--qqqqqqqq").stderr, "unknown argument `--qqqqqqqq` [unknown-flag]\n")

    def test_bash_completes_commands_and_flags(self):
        def complete(*words):
            script = (f'source <("{HEDDLE}" completion bash); COMP_WORDS=({shlex.join(["heddle", *words])}); '
                      f'COMP_CWORD={len(words)}; _heddle; printf "%s\\n" "${{COMPREPLY[@]}}"')
            done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
            self.assertEqual(done.stderr, "")
            return done.stdout.split()
        self.assertEqual(complete("par"), ["parallelize"])
        self.assertEqual(complete("help", "par"), ["parallelize"])
        self.assertEqual(complete("opt", "--pi"), ["--pipeline"])
        self.assertEqual(complete("checkpoint", "v"), ["verify"])
        self.assertEqual(complete("doc", ""), ["ops", "passes", "man", "-o", "--output", "--json", "-h", "--help"])
        if self.runs("train"):
            self.assertEqual(complete("train", "--training.st"), ["--training.steps"])
            self.assertIn("--parallelism.auto", complete("plan", "--parallelism."))

    def test_other_shells_and_the_man_page_list_every_flag(self):
        flags = re.findall(r"--[a-z][-\w.]*", self.heddle("parallelize", "--help").stdout.partition("\nGeneral:")[0])
        man = self.heddle("doc", "man").stdout.replace("\\-", "-")
        for text in (self.heddle("completion", "zsh").stdout, man):
            for flag in flags:
                self.assertIn(flag, text)
        fish = self.heddle("completion", "fish").stdout
        for flag in ("--plan", "--compile.pipeline"):
            self.assertIn(f"-l {flag[2:]} -r", fish)
        for line in self.heddle("doc", "man").stdout.splitlines():
            if line.startswith("."):
                self.assertRegex(line, r"^\.(TH|SH|SS|PP|TP|B|I|RI|EX|EE)\b")

    def test_colours_are_for_terminals_whose_users_want_them(self):
        local = str(self.folder / "local.hd")
        pathlib.Path(local).write_text(GRAPH.replace("global", "local"))
        self.assertIn(b"\x1b[", self.on_a_terminal("sim", local))
        self.assertNotIn(b"\x1b[", self.on_a_terminal("sim", local, NO_COLOR="1"))
        self.assertNotIn("\x1b[", self.heddle("sim", local).stdout)

    def test_closed_standard_output(self):
        done = subprocess.run(["sh", "-c", f'"{HEDDLE}" check "{self.graph}" >&-'], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot write to standard output", done.stderr)

    def test_remarks_and_counts_that_cannot_be_written(self):
        with open("/dev/full", "w") as full:
            self.assertEqual(self.heddle("opt", self.graph, "--pipeline=dce", "--stats", stderr=full).returncode, 1)

    def test_nothing_meant_for_a_closed_stream_goes_into_a_file(self):
        output = self.folder / "out.hd"
        subprocess.run(["sh", "-c", f'"{HEDDLE}" opt "{self.graph}" --pipeline=dce --stats -o "{output}" >&- 2>&-'])
        self.assertEqual(output.read_text(), self.heddle("opt", self.graph).stdout)

    def test_closed_standard_input(self):
        done = subprocess.run(["sh", "-c", f'"{HEDDLE}" check - <&-'], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot read standard input: Bad file descriptor [file-read]", done.stderr)

    def test_a_directory_as_standard_input(self):
        directory = os.open("/", os.O_RDONLY)
        self.addCleanup(os.close, directory)
        done = self.heddle("check", "-", stdin=directory)
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot read standard input: Is a directory [file-read]", done.stderr)

    def test_input_without_end(self):
        with open("/dev/zero") as zeros:
            done = self.heddle("check", "-", stdin=zeros)
        self.assertEqual(done.returncode, 1)
        self.assertIn("standard input has more than 1.00 GiB [file-read]", done.stderr)

    def test_only_regular_files_are_read(self):
        """Opening a FIFO that has no writer would wait forever."""
        fifo = str(self.folder / "fifo")
        os.mkfifo(fifo)
        weights = self.folder / "weights"
        weights.mkdir()
        (weights / "config.json").write_text("{}")
        os.mkfifo(weights / "model.safetensors")
        calls = [
            ["check", fifo],
            ["diff", self.graph, fifo],
            ["import", fifo],
            ["opt", fifo],
            ["schedule", fifo],
            ["solve", fifo],
            [
                "plan",
                "--model=mlp",
                "--flavor=small",
                f"--compile.pipeline={self.folder / 'p.pipeline'}",
            ],
            ["parallelize", self.graph, "--plan", fifo],
            ["sim", self.graph, "--cluster", str(self.folder / "c.json")],
            ["plan", "--model=mlp", "--flavor=small", f"--config={fifo}"],
            ["train", "--training.dataset=" + fifo],
            ["train", f"--checkpoint.initial_load_path={fifo}"],
            ["train", f"--checkpoint.initial_load_path={weights}"],
            ["train", "--model=hf", f"--checkpoint.initial_load_path={self.folder / 'hf'}"],
        ]
        os.mkfifo(self.folder / "p.pipeline")
        os.mkfifo(self.folder / "c.json")
        (self.folder / "hf").mkdir()
        os.mkfifo(self.folder / "hf" / "config.json")
        for args in calls:
            if not self.runs(args[0]):
                continue
            with self.subTest(args):
                done = self.heddle(*args, timeout=HANG)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn("it is a FIFO, expected a regular file [file-read]", done.stderr)
        done = self.heddle("check", "/dev/zero")
        self.assertEqual(done.returncode, 1)
        self.assertIn(
            "cannot read `/dev/zero`: it is a device, expected a regular file [file-read]",
            done.stderr,
        )

    def test_a_file_beyond_the_limit_is_not_read(self):
        large = self.folder / "large.py"
        with open(large, "wb") as file:
            file.truncate(5 << 30)
        for command in ("check", "import"):
            # Reading it would need more memory than this.
            done = self.heddle(
                command,
                str(large),
                preexec_fn=(
                    None
                    if SANITIZED or command == "import"
                    else lambda: resource.setrlimit(resource.RLIMIT_AS, (800 << 20, 800 << 20))
                ),
            )
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"`{large}` has 5.00 GiB, the limit is 1.00 GiB [file-read]", done.stderr)

    def test_weights_of_any_size_are_no_obstacle_to_an_import(self):
        """Only the graph of an archive counts towards the limit."""
        program = (
            '{"graph_module": {"graph": {"inputs": [{"as_tensor": {"name": "x"}}],'
            '"outputs": [{"as_tensor": {"name": "y"}}], "nodes": [{"target":'
            '"torch.ops.aten.relu.default", "inputs": [{"name": "self", "arg":'
            '{"as_tensor": {"name": "x"}}}], "outputs": [{"as_tensor": {"name": "y"}}]}],'
            '"tensor_values": {"x": {"dtype": 7, "sizes": [{"as_int": 4}]}}}}}'
        )
        path = self.folder / "large.pt2"
        with open(path, "w+b") as file:
            with zipfile.ZipFile(file, "w") as archive:
                archive.writestr("large/version", "1")
                # A hole in the file replaces the weights.
                file.seek(5 << 30)
                archive.start_dir = file.tell()
                archive.writestr("large/models/model.json", program)
        done = self.heddle("import", str(path))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("aten.relu(%x)", done.stdout)

    def test_a_file_size_limit_is_like_a_full_disk(self):
        """The accompanying signal must not end the process."""
        nodes = "".join(f"  %v{i} = aten.neg(%x) : f32[8]\n" for i in range(500))
        pathlib.Path(self.graph).write_text(GRAPH.replace("  %a =", nodes + "  %a ="))
        before = sorted(os.listdir(self.folder))
        for args in (
            ["opt", self.graph, "-o", "out.hd"],
            ["sim", self.graph.replace("g.hd", "l.hd"), "--html=out.html"],
        ):
            if args[0] == "sim":
                pathlib.Path(args[1]).write_text(
                    pathlib.Path(self.graph).read_text().replace("global", "local")
                )
                before = sorted([*before, "l.hd"])
            done = self.heddle(
                *args,
                cwd=self.folder,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
            )
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(
                f"cannot write `{args[-1].split('=')[-1]}`: File too large [file-write]",
                done.stderr,
            )
            self.assertEqual(sorted(os.listdir(self.folder)), before)

    @unittest.skipIf(SANITIZED, "sanitizers need more addresses than the limit leaves")
    def test_out_of_memory(self):
        limit = 200 << 20
        zeros = open("/dev/zero")
        self.addCleanup(zeros.close)
        done = self.heddle(
            "check",
            "-",
            stdin=zeros,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        )
        self.assertEqual((done.returncode, done.stderr), (4, "out of memory\n"))

    def test_who_stops_reading_hears_nothing(self):
        read, write = os.pipe()
        os.close(read)
        # Also if the parent ignores the signal, as many do.
        done = self.heddle("doc", "ops", stdout=write,
                           preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_IGN))
        os.close(write)
        self.assertEqual((done.returncode, done.stderr), (-signal.SIGPIPE, ""))

    def test_output_follows_links_and_keeps_the_mode(self):
        target = self.folder / "target.hd"
        target.write_text("old")
        target.chmod(0o640)
        link, second = self.folder / "link.hd", self.folder / "second.hd"
        link.symlink_to("target.hd")
        second.symlink_to(link)
        before = sorted(os.listdir(self.folder))
        self.assertEqual(self.heddle("opt", self.graph, "-o", str(second)).returncode, 0)
        self.assertTrue(link.is_symlink() and second.is_symlink())
        self.assertTrue(target.read_text().startswith("heddle 1 global"))
        self.assertEqual(stat.S_IMODE(target.stat().st_mode), 0o640)
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    def test_output_through_a_link_to_nothing(self):
        (self.folder / "link.hd").symlink_to("new.hd")
        self.assertEqual(self.heddle("opt", self.graph, "-o", str(self.folder / "link.hd")).returncode, 0)
        self.assertTrue((self.folder / "link.hd").is_symlink())
        self.assertTrue((self.folder / "new.hd").is_file())

    def test_output_through_a_circle_of_links(self):
        (self.folder / "a").symlink_to("b")
        (self.folder / "b").symlink_to("a")
        done = self.heddle("opt", self.graph, "-o", str(self.folder / "a"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("Too many levels of symbolic links [file-write]", done.stderr)
        self.assertTrue((self.folder / "a").is_symlink())

    @unittest.skipIf(os.geteuid() == 0, "root may write everywhere")
    def test_a_file_that_may_not_be_written_stays(self):
        output = self.folder / "out.hd"
        output.write_text("old")
        output.chmod(0o444)
        self.assertEqual(self.heddle("opt", self.graph, "-o", str(output)).returncode, 1)
        self.assertEqual(output.read_text(), "old")

    def test_an_empty_value_takes_nothing_from_the_next_flag(self):
        output = self.folder / "out.hd"
        done = self.heddle("opt", self.graph, "--pipeline=", "-o", str(output))
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertTrue(output.read_text().startswith("heddle 1 global"))

    def test_notes_about_many_unknown_ops_are_few(self):
        nodes = "".join(f"  %v{i} = aten.none_of_ours_{i}(%x) : f32[4]\n" for i in range(1000))
        pathlib.Path(self.graph).write_text("heddle 1 local\ngraph @g(%x: f32[4]) -> () {\n" + nodes + "}\n")
        notes = self.heddle("check", self.graph).stderr.splitlines()
        self.assertEqual((len(notes), notes[-1]), (33, "note: 968 more are not in the op table"))

    def test_an_output_file_that_is_a_device(self):
        done = self.heddle("opt", self.graph, "-o", "/dev/full")
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot write `/dev/full`: No space left on device [file-write]", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
