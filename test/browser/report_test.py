"""Tests the pages of `heddle sim --html`, `heddle report --html` and `heddle search --html` in a
headless Chromium.

report_test.py HEDDLE FOLDER. Writes screenshots into FOLDER. Exits with 77 without Chromium;
HEDDLE_CHROMIUM selects another one."""
import json
import math
import pathlib
import subprocess
import sys
import time
import unittest

import browser
from layered_graph import layered_graph

HEDDLE = FOLDER = PROGRAM = None
HOSTILE = "</script><img src=x onerror=document.title='broken'><!--"
MAX_PAGE = 5 << 20


def heddle(*args):
    done = subprocess.run([HEDDLE, *map(str, args)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_page(name, graph, against=None):
    file, other, page = (FOLDER / f"{name}{end}" for end in (".hd", ".before.hd", ".html"))
    file.write_text(graph)
    if against is None:
        heddle("sim", file, f"--html={page}")
    else:
        other.write_text(against)
        heddle("report", file, f"--against={other}", f"--html={page}")
    return page


class ReportTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.page = browser.Page(PROGRAM)

    @classmethod
    def tearDownClass(cls):
        cls.page.close()

    def open(self, path):
        self.page.problems.clear()
        self.page.requests.clear()
        self.page.dark(False)
        self.page.open(path)

    def tearDown(self):
        self.assertEqual(self.page.problems, [])
        self.assertEqual([url for url in self.page.requests if not url.startswith("file:")], [])
        self.assertLessEqual(len(self.page.requests), 1)

    def view(self):
        return json.loads(self.page.run("JSON.stringify(report.view)"))

    def point(self, step, lane, block):
        """Returns the middle of a block in the window; lanes have the height of lanes.js."""
        x, y = self.page.run(f"""(() => {{
          const {{graphs, view}} = report;
          const lane = graphs[0].steps[{step}].lanes[{lane}];
          const box = document.querySelectorAll("#charts .chart:not(.overview)")[{step}].getBoundingClientRect();
          const middle = (lane.begin[{block}] + lane.end[{block}]) / 2;
          return [box.left + 96 + (middle - view.begin) / (view.end - view.begin) * (box.width - 108), box.top + 22 + {lane} * 35 + 15];
        }})()""")
        return x, y

    def tip(self):
        return self.page.run("document.getElementById('tip').hidden ? '' : document.getElementById('tip').innerText")

    def test_hover_tells_about_blocks(self):
        self.open(write_page("one", layered_graph(6)))
        x, y = self.point(0, 0, 3)
        self.page.mouse("mouseMoved", x, y)
        tip = self.tip()
        for word in ("op", "phase", "takes", "from"):
            self.assertIn(word, tip)
        steps = "report.graphs[0].steps[0]"
        exposed = self.page.run(f"{steps}.collectives.exposed.findIndex((time) => time > 0)")
        self.assertGreaterEqual(exposed, 0)
        lane = self.page.run(f"{steps}.collectives.stream[{exposed}]")
        block = self.page.run(f"{steps}.lanes[{lane}].node.indexOf({steps}.collectives.node[{exposed}])")
        self.page.mouse("mouseMoved", *self.point(0, lane, block))
        for word in ("comm.", "scope", "layers.0", "bytes", "MiB", "exposed", "because"):
            self.assertIn(word, self.tip())
        hidden = self.page.run(f"{steps}.collectives.exposed.findIndex((time) => time === 0)")
        self.assertGreaterEqual(hidden, 0)
        lane = self.page.run(f"{steps}.collectives.stream[{hidden}]")
        block = self.page.run(f"{steps}.lanes[{lane}].node.indexOf({steps}.collectives.node[{hidden}])")
        self.page.mouse("mouseMoved", *self.point(0, lane, block))
        self.assertIn("by compute", self.tip())
        self.page.mouse("mouseMoved", 5, 5)
        self.assertEqual(self.tip(), "")

    def test_memory_is_what_is_alive(self):
        self.open(write_page("memory", layered_graph(6)))
        worst = self.page.run("""(() => {
          const step = report.graphs[0].steps[0];
          let worst = 0;
          for (let i = 0; i < step.count; ++i)
            worst = Math.max(worst, Math.abs(step.stacks.reduce((sum, stack) => sum + stack[i], 0) - step.nodes.live[i]));
          return worst;
        })()""")
        self.assertEqual(worst, 0)
        peak = self.page.run("Math.max(...report.graphs[0].steps[0].nodes.live)")
        self.assertEqual(peak, json.loads(heddle("sim", FOLDER / "memory.hd", "--json"))["value_peak_bytes"])
        self.assertIn("alive at the peak", self.page.run("document.getElementById('inspector').innerText"))
        x, y = self.point(0, 0, 3)
        self.page.mouse("mouseMoved", x, y + 150)
        words = self.page.run("document.getElementById('inspector').innerText")
        self.assertNotIn("alive at the peak", words)
        for word in ("alive", "of the limit", "parameters", "%", "bf16["):
            self.assertIn(word, words)

    def test_zoom_and_pan(self):
        self.open(write_page("zoom", layered_graph(6)))
        whole = self.view()
        x, y = self.point(0, 0, 5)
        self.page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-600, modifiers=2)
        near = self.view()
        self.assertLess(near["end"] - near["begin"], (whole["end"] - whole["begin"]) / 2)
        self.assertAlmostEqual(self.point(0, 0, 5)[0], x, delta=2)
        self.page.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.page.mouse("mouseMoved", x - 100, y, buttons=1)
        self.page.mouse("mouseReleased", x - 100, y, button="left", clickCount=1)
        self.assertAlmostEqual(self.point(0, 0, 5)[0], x - 100, delta=2)
        self.page.mouse("mouseWheel", x, y, deltaX=80, deltaY=0)
        self.assertLess(self.point(0, 0, 5)[0], x - 150)
        # A click selects, and the selection stays when the pointer leaves.
        self.page.key("0")
        self.page.click(*self.point(0, 0, 5))
        self.assertEqual(self.view()["selected"], {"step": 0, "lane": 0, "i": 5})
        self.assertIn("selected", self.page.run("document.getElementById('inspector').innerText"))

    def test_keys(self):
        self.open(write_page("keys", layered_graph(6)))

        def length():
            return self.view()["end"] - self.view()["begin"]

        whole = length()
        self.page.key("w")
        self.assertLess(length(), whole)
        begin = self.view()["begin"]
        self.page.key("d")
        self.assertGreater(self.view()["begin"], begin)
        self.page.key("a")
        self.page.key("0")
        self.assertEqual(length(), whole)
        self.page.key("ArrowRight")
        self.page.key("ArrowRight")
        first = self.view()["selected"]
        self.assertEqual(first["lane"], 0)
        self.page.key("ArrowDown")
        self.assertEqual(self.view()["selected"]["lane"], 1)
        self.page.key("Enter")
        self.assertLess(length(), whole)
        self.page.key("n")
        chosen = self.view()["selected"]
        self.assertGreater(self.page.run(f"""(() => {{
          const step = report.graphs[0].steps[0];
          return step.collectives.exposed[step.collectiveOf[step.lanes[{chosen["lane"]}].node[{chosen["i"]}]]];
        }})()"""), 0)
        self.page.key("Escape")
        self.assertIsNone(self.view()["selected"])
        self.page.key("c")
        self.assertTrue(self.view()["critical"])
        self.page.key("?")
        self.assertTrue(self.page.run("document.getElementById('help').open"))
        self.page.run("document.getElementById('help').close()")
        self.page.key("/")
        for letter in "silu":
            self.page.key(letter)
        self.assertEqual(self.page.run("document.getElementById('found').textContent"), "6 found")

    def test_dark_mode(self):
        path = write_page("dark", layered_graph(6))
        ground = "getComputedStyle(document.body).backgroundColor"
        self.open(path)
        light = self.page.run(ground)
        self.page.dark(True)
        dark = self.page.run(ground)
        self.assertNotEqual(light, dark)
        self.page.key("t")
        self.assertEqual(self.page.run(ground), light)
        self.page.key("t")
        self.assertEqual(self.page.run(ground), dark)

    def test_tables(self):
        self.open(write_page("tables", layered_graph(6)))
        rows = "document.querySelectorAll('#tab-body tbody tr').length"
        self.assertEqual(self.page.run("document.querySelector('[role=tab][aria-selected=true]').textContent"), "Collectives")
        # Three purposes, and six launches of each.
        self.assertEqual(self.page.run(rows), 3 + 18)
        column = "[...document.querySelectorAll('#tab-body table')[1].querySelectorAll('tbody tr td:first-child')].map((cell) => cell.textContent)"
        names = self.page.run(column)
        self.page.run("document.querySelectorAll('#tab-body table')[1].querySelector('th button').click()")
        self.assertEqual(self.page.run(column), sorted(names))
        self.page.run("document.querySelectorAll('#tab-body table')[1].querySelector('tbody tr').click()")
        self.assertIsNotNone(self.view()["selected"])
        self.page.key("2")
        self.assertIn("layers", self.page.run("document.getElementById('tab-body').innerText"))
        self.page.run("document.querySelector('#tab-body button.module').click()")
        self.assertIn("*", self.page.run("document.getElementById('tab-body').innerText"))
        self.page.key("3")
        self.assertIn("does not say which passes", self.page.run("document.getElementById('tab-body').innerText"))

    def test_comparison(self):
        self.open(write_page("both", layered_graph(12), layered_graph(12, prefetch=False)))
        self.assertEqual(self.page.run("document.querySelectorAll('#charts .chart:not(.overview)').length"), 2)
        self.assertIn("both.hd takes", self.page.run("document.getElementById('headline').innerText"))
        words = self.page.run("document.getElementById('tab-body').innerText")
        for word in ("collective by collective", "layers.11", "overlap compute", "unshard", "grad"):
            self.assertIn(word, words)
        self.page.mouse("mouseMoved", *self.point(1, 1, 5))
        self.page.screenshot(FOLDER / "light.png")
        self.page.dark(True)
        self.page.screenshot(FOLDER / "dark.png")

    def test_steps_with_different_tokens_compare_speed(self):
        few, many = (f"""heddle 1 local
mesh [dp={ranks}]
graph @step(%t: i64[1,{512 * ranks}] batch "tokens" of i64[{ranks}{{dp}},{512 * ranks}], %x: bf16[1024,512] batch "x", %w: bf16[512,512] param 0 "w") -> (metric %y) {{
  %y = aten.mm(%x, %w) : bf16[1024,512]
}}
""" for ranks in (2, 4))
        self.open(write_page("many", many, few))
        headline = self.page.run("document.getElementById('headline').innerText")
        self.assertIn("% more tokens/s than", headline)
        for mesh in ("[dp=2]", "[dp=4]"):
            self.assertIn(mesh, headline)
        cards = self.page.run("[...document.querySelectorAll('.figure')].map((card) => card.innerText)")
        step = next(card for card in cards if card.startswith("step"))
        self.assertNotIn("%", step)
        self.assertIn("4 sequences of 2,048 tokens on 4 h100-8x devices", self.page.run("document.getElementById('title').innerText"))

    def test_terms_are_explained(self):
        self.open(write_page("terms", layered_graph(2)))
        self.page.run("document.getElementById('terms').open = true")
        words = self.page.run("document.getElementById('terms').innerText")
        for word in ("exposed", "hidden", "MFU", "critical path", "unshard"):
            self.assertIn(word, words)
        titles = self.page.run("[...document.querySelectorAll('.figure h2')].map((name) => [name.textContent, name.title])")
        self.assertEqual([name for name, title in titles if not title], [])

    def test_pipeline(self):
        golden = pathlib.Path(__file__).parents[2] / "heddle/cli/test/sim_pipeline.hdt"
        graphs = golden.read_text().split("=== coordinates_are_simulated_together\n")[1].split("--- out")[0]
        self.open(write_page("pipeline", graphs))
        self.assertIn("3 micro-batches", self.page.run("document.getElementById('pipeline-title').innerText"))
        # The slowest coordinate is shown first.
        self.assertIn("@step_pp1", self.page.run("document.getElementById('title').innerText"))

        def at(row, kind, number, begin):
            """Returns the middle of an action or bubble of a row, with the sizes of pipeline.js."""
            return self.page.run(f"""(() => {{
              const box = document.querySelector("#pipeline-chart .chart").getBoundingClientRect();
              const part = report.pipeline.rows[{row}].{kind}[{number}];
              const middle = (part[{begin}] + part[{begin} + 1]) / 2 / report.pipeline.step;
              return [box.left + 96 + middle * (box.width - 108), box.top + 22 + {row} * 30 + 13];
            }})()""")

        self.page.mouse("mouseMoved", *at(0, "actions", 1, 4))
        for word in ("micro-batch", "0F1", "coordinate"):
            self.assertIn(word, self.tip())
        self.page.mouse("mouseMoved", *at(1, "bubbles", 0, 1))
        for word in ("before the first action", "h.0 of coordinate 0", "which runs", "0F0"):
            self.assertIn(word, self.tip())
        self.page.click(*at(0, "actions", 1, 4))
        self.assertIn("@step_pp0", self.page.run("document.getElementById('title').innerText"))
        view = self.view()
        self.assertLess(view["end"] - view["begin"], self.page.run("report.pipeline.step") / 2)

    def test_names_are_only_texts(self):
        graph = layered_graph(2, unit=HOSTILE + "{}", label=HOSTILE + "{}")
        self.open(write_page("hostile'\"&<b>", graph, layered_graph(2)))
        self.assertNotEqual(self.page.run("document.title"), "broken")
        self.assertEqual(self.page.run("document.querySelectorAll('img, b > b, script').length"), 2)
        self.assertIn(HOSTILE, self.page.run("document.body.innerText"))
        self.page.mouse("mouseMoved", *self.point(1, 1, 0))
        self.assertIn(HOSTILE, self.tip())

    def test_an_empty_graph(self):
        self.open(write_page("empty", "heddle 1 local\ngraph @step() -> () {}\n"))
        for key in ("w", "ArrowRight", "ArrowDown", "n", "Enter", "2", "3", "1"):
            self.page.key(key)
        self.page.mouse("mouseMoved", 600, 400)

    def test_ten_thousand_nodes(self):
        path = write_page("large", layered_graph(830))
        self.assertLess(path.stat().st_size, MAX_PAGE)
        begin = time.monotonic()
        self.open(path)
        opened = time.monotonic() - begin
        nodes = self.page.run("report.graphs[0].steps[0].count")
        self.assertGreaterEqual(nodes, 10_000)
        frames = self.page.run("""(async () => {
          const times = [];
          for (let i = 0; i < 40; ++i) {
            const from = performance.now();
            document.body.dispatchEvent(new KeyboardEvent("keydown", {key: i % 20 < 10 ? "w" : "s", bubbles: true}));
            await new Promise(requestAnimationFrame);
            times.push(performance.now() - from);
          }
          return times.sort((a, b) => a - b);
        })()""")
        print(f"{nodes} nodes: {path.stat().st_size / 2**20:.2f} MiB, opened in {opened:.2f} s; a frame takes {frames[20]:.1f} ms, at most {frames[-1]:.1f} ms")
        self.page.screenshot(FOLDER / "large.png")


class SearchTest(unittest.TestCase):
    """The page of `heddle search --html`."""

    @classmethod
    def setUpClass(cls):
        help_text = subprocess.run([HEDDLE, "search", "--help"], capture_output=True, text=True, check=False)
        if help_text.returncode != 0:
            raise unittest.SkipTest("this build has no `heddle search`")
        cls.path = FOLDER / "search.html"
        cls.answer = json.loads(heddle("search", "--model=llama3", "--flavor=debugmodel", "--training.seq_len=256", "--devices=8",
                                       "--training.global_batch_size=16", f"--html={cls.path}", "--json"))
        cls.page = browser.Page(PROGRAM)

    @classmethod
    def tearDownClass(cls):
        cls.page.close()

    def setUp(self):
        self.page.problems.clear()
        self.page.requests.clear()
        self.page.dark(False)
        self.page.open(self.path)

    def tearDown(self):
        self.assertEqual(self.page.problems, [])
        self.assertEqual([url for url in self.page.requests if not url.startswith("file:")], [])

    def test_shows_every_plan(self):
        front = self.answer["front"]
        self.assertGreater(len(front), 1)
        self.assertEqual(self.page.run("document.querySelectorAll('#plot circle').length"), len(front))
        self.assertEqual(self.page.run("document.querySelectorAll('#plans tbody tr').length"), len(front))
        title = self.page.run("document.getElementById('title').innerText")
        self.assertIn("llama3 debugmodel on 8 h100-8x devices", title)
        self.assertIn("16 sequences of 256 tokens", self.page.run("document.getElementById('subtitle').innerText"))
        headline = self.page.run("document.getElementById('headline').innerText")
        faster = 100 * (front[0]["tokens_per_second"] / front[1]["tokens_per_second"] - 1)
        self.assertIn(f"Plan 1 processes {faster:.1f} % more tokens/s than plan 2: ", headline)

    def test_axes_have_ticks_and_units(self):
        for axis, unit in (("peak memory of a device in GiB", "GiB"), ("tokens/s", "tokens/s")):
            self.assertIn(axis, self.page.run("[...document.querySelectorAll('#plot .axis')].map((text) => text.textContent)"), unit)
        self.assertGreaterEqual(self.page.run("document.querySelectorAll('#plot .tick').length"), 6)

    def test_labels_do_not_overlap(self):
        for width in (1440, 420):
            self.page.call("Emulation.setDeviceMetricsOverride", width=width, height=1000, deviceScaleFactor=1, mobile=False)
            self.page.open(self.path)
            overlaps = self.page.run("""(() => {
              const boxes = [...document.querySelectorAll("#plot text")].map((text) => text.getBoundingClientRect());
              let count = 0;
              for (let i = 0; i < boxes.length; ++i)
                for (let k = 0; k < i; ++k)
                  count += boxes[i].left < boxes[k].right - 1 && boxes[k].left < boxes[i].right - 1
                    && boxes[i].top < boxes[k].bottom - 1 && boxes[k].top < boxes[i].bottom - 1;
              return count;
            })()""")
            self.assertEqual(overlaps, 0, width)
            self.assertEqual(self.page.run("document.documentElement.scrollWidth > window.innerWidth"), False, width)
            self.page.screenshot(FOLDER / f"search-{width}.png")
        self.page.call("Emulation.setDeviceMetricsOverride", width=1440, height=1000, deviceScaleFactor=1, mobile=False)
        self.page.dark(True)
        self.page.screenshot(FOLDER / "search-dark.png")

    def test_hover_shows_the_numbers(self):
        last = len(self.answer["front"]) - 1
        x, y = self.page.run(f"""(() => {{
          const box = [...document.querySelectorAll("#plot circle")].find((dot) => dot.getAttribute("aria-label").startsWith("plan {last + 1}:")).getBoundingClientRect();
          return [box.left + box.width / 2, box.top + box.height / 2];
        }})()""")
        self.page.mouse("mouseMoved", x, y)
        tip = self.page.run("document.getElementById('tip').hidden ? '' : document.getElementById('tip').innerText")
        self.assertIn(f"plan {last + 1}", tip)
        self.assertIn(f"{round(self.answer['front'][last]['tokens_per_second']):,}", tip)
        for word in ("step", "exposed", "peak memory", "of the budget"):
            self.assertIn(word, tip)
        self.page.mouse("mouseMoved", 5, 5)
        self.assertTrue(self.page.run("document.getElementById('tip').hidden"))

    def test_copies_the_command_of_the_chosen_plan(self):
        self.page.run("document.querySelectorAll('#plans tbody tr')[1].click()")
        self.assertIn("plan 2", self.page.run("document.querySelector('#chosen h2').innerText"))
        shown = self.page.run("document.querySelector('.command pre').innerText")
        self.assertIn("--write-jobs=jobs", shown)
        copied = self.page.run("""(async () => {
          let copied = "";
          Object.defineProperty(navigator, "clipboard", {configurable: true, value: {writeText: async (text) => { copied = text; }}});
          document.getElementById("copy").click();
          await new Promise((done) => setTimeout(done, 50));
          return copied;
        })()""")
        self.assertEqual(copied, shown)
        self.assertEqual(self.page.run("document.getElementById('copy').innerText"), "copied")


def write_profile(name):
    """Writes a trace of three steps and a simulated step. Returns the path of their page."""
    folder = FOLDER / name
    folder.mkdir(exist_ok=True)
    event = lambda cat, name, ts, dur, tid: {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": tid, "ts": ts, "dur": dur}
    kernels = [event("kernel", kernel, 1000 + 100 * step + begin, 30, 7)
               for step in range(3) for kernel, begin in (("nvjet", 0), ("rows" + HOSTILE, 30), ("adamw", 60))]
    simulated = [event("matmul", "%mm", 0, 40, 0), event("optimizer", "%step", 40, 20, 0)]
    for file, events in ("steps_6-8_rank_0.json", kernels), ("simulated.json", simulated):
        (folder / file).write_text(json.dumps({"traceEvents": events}))
    page = FOLDER / f"{name}.html"
    heddle("report", folder, f"--html={page}")
    return page


class ProfileTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.page = browser.Page(PROGRAM)

    @classmethod
    def tearDownClass(cls):
        cls.page.close()

    def test_shows_measured_and_simulated_steps(self):
        self.page.problems.clear()
        self.page.open(write_profile("profile"))
        self.assertEqual(self.page.run("document.title"), "Heddle: measured steps")
        figures = self.page.run("document.getElementById('figures').innerText")
        for words in ("measured step", "96.67 us", "simulated step", "60.00 us", "−37.9 %"):
            self.assertIn(words, figures)
        rows = self.page.run("[...document.querySelectorAll('#classes tbody tr')].map((row) => row.innerText)")
        self.assertEqual(len(rows), 3)
        self.assertIn("+33.3 %", next(row for row in rows if row.startswith("matmul")))
        # The middle of the first kernel of the measured lane: a ruler of 22 and a title of 20 are above.
        x, y = self.page.run("""(() => {
          const box = document.querySelector("#charts .chart").getBoundingClientRect();
          return [box.left + 96 + 15 / 100 * (box.width - 108), box.top + 42 + 12];
        })()""")
        self.page.mouse("mouseMoved", x, y)
        tip = self.page.run("document.getElementById('tip').innerText")
        for words in ("nvjet", "matmul", "30.00 us"):
            self.assertIn(words, tip)
        self.page.run("document.getElementById('zoom-in').click()")
        self.assertLess(self.page.run("report.view.end - report.view.begin"), 100000)
        self.page.screenshot(FOLDER / "profile.png", whole=True)
        self.assertEqual(self.page.problems, [])


def write_run(name, steps, falls=1.0, **more):
    file = FOLDER / f"{name}.jsonl"
    with open(file, "w") as lines:
        for step in range(1, steps + 1):
            row = {"step": step, "loss": None if step == 3 else 8 / step ** (0.3 * falls) + 0.1 * math.sin(step), "grad_norm": 3 / step + 0.5,
                   "lr": 8e-4 * min(1, step / 20), "memory_bytes": 34 << 30, "tps": 9000 + 500 * math.sin(step / 7), "tflops": 412.5, "seconds": 0.25,
                   "data_seconds": 0.01, "mfu": 0.41 + 0.02 * math.sin(step / 7)}
            if step % 50 == 0:
                row |= {"validation_loss": row["loss"] + 0.2, "validation_perplexity": math.exp(row["loss"] + 0.2)}
            if step in more.get("samples", ()):
                row["samples"] = [{"prompt": HOSTILE, "text": f"two\nlines after step {step}"}]
            lines.write(json.dumps(row) + "\n")
    return file


class RunTest(unittest.TestCase):
    """The page of `heddle report RUN.jsonl --html`."""

    @classmethod
    def setUpClass(cls):
        cls.page = browser.Page(PROGRAM)

    @classmethod
    def tearDownClass(cls):
        cls.page.close()

    def open(self, *args):
        path = FOLDER / "run.html"
        heddle("report", *args, f"--html={path}")
        self.page.problems.clear()
        self.page.requests.clear()
        self.page.dark(False)
        self.page.open(path)
        return path

    def tearDown(self):
        self.assertEqual(self.page.problems, [])
        self.assertEqual([url for url in self.page.requests if not url.startswith("file:")], [])

    def hover(self, chart, step):
        """Points at a step of a chart, and returns the tip."""
        x, y = self.page.run(f"""(() => {{
          const box = document.querySelectorAll("#charts .chart")[{chart}];
          box.scrollIntoView({{block: "center"}});
          const {{left, top, width}} = box.getBoundingClientRect();
          const {{begin, end}} = report.view;
          return [Math.round(left + 96 + ({step} - begin) / (end - begin) * (width - 108)), top + 60];
        }})()""")
        self.page.mouse("mouseMoved", x, y)
        return self.page.run("document.getElementById('tip').hidden ? '' : document.getElementById('tip').innerText")

    def inked(self, chart, color):
        """Returns the number of pixels of a chart that have about a color of the style."""
        return self.page.run(f"""(() => {{
          const canvas = document.querySelectorAll("#charts .chart canvas")[{2 * chart}];
          const copy = document.createElement("canvas");
          copy.width = canvas.width;
          copy.height = canvas.height + 1;
          const context = copy.getContext("2d", {{willReadFrequently: true}});
          context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--{color}").trim();
          context.fillRect(0, 0, 1, 1);
          context.drawImage(canvas, 0, 1);
          const {{data}} = context.getImageData(0, 0, copy.width, copy.height);
          const near = (i) => data[i + 3] > 60 && [0, 1, 2].every((c) => Math.abs(data[i + c] - data[c]) < 24);
          let count = -1;
          for (let i = 0; i < data.length; i += 4) count += near(i);
          return count;
        }})()""")

    def test_shows_metrics_over_steps(self):
        self.open(write_run("alone", 400, samples=(100, 200)))
        charts = self.page.run("report.charts")
        self.assertEqual(charts, [["loss", "validation_loss"], ["validation_perplexity"], ["tps"], ["mfu"], ["tflops"], ["grad_norm"], ["lr"],
                                  ["memory_bytes"], ["seconds", "data_seconds"]])
        self.assertEqual(self.page.run("report.view"), {"begin": 1, "end": 400})
        for chart in range(len(charts)):
            self.assertGreater(self.inked(chart, "accent"), 20, charts[chart])
        tip = self.hover(0, 250)
        for words in ("step 250", "loss", "validation loss", "MFU", "%", "34.00 GiB", "tokens/s per rank", "62.50 s"):
            self.assertIn(words, tip)
        self.assertNotIn("loss", self.hover(0, 3).split("gradient")[0].replace("validation loss", ""))
        samples = self.page.run("document.getElementById('samples').innerText")
        self.assertIn(HOSTILE, samples)
        self.assertIn("lines after step 200", samples)
        self.page.mouse("mouseMoved", 5, 5)
        self.assertTrue(self.page.run("document.getElementById('tip').hidden"))
        self.page.run("window.scrollTo(0, 0)")
        self.page.screenshot(FOLDER / "run.png", whole=True)

    def test_zooms_and_switches_the_axis(self):
        self.open(write_run("zoomed", 400))
        self.page.key("w")
        near = self.page.run("report.view")
        self.assertAlmostEqual(near["end"] - near["begin"], 0.7 * 399)
        self.page.key("a")
        self.assertLess(self.page.run("report.view.begin"), near["begin"])
        self.page.key("0")
        self.assertEqual(self.page.run("report.view"), {"begin": 1, "end": 400})
        self.page.run("document.getElementById('by-time').click()")
        self.assertEqual(self.page.run("report.view"), {"begin": 0, "end": 100})
        self.assertIn("step 200", self.hover(2, 50))
        self.assertEqual(self.page.run("document.getElementById('subtitle').innerText"), "400 steps, 1 to 400, in 100.0 s")

    def test_compares_two_runs(self):
        self.open(write_run("first", 400), f"--against={write_run('second', 300, 0.8)}")
        self.assertIn("at step 300, first.jsonl has a loss of", self.page.run("document.getElementById('headline').innerText"))
        for color in ("accent", "grad"):
            self.assertGreater(self.inked(0, color), 20)
        tip = self.hover(0, 100)
        self.assertIn("first.jsonl: step 100", tip)
        self.assertIn("second.jsonl: step 100", tip)
        self.page.run("window.scrollTo(0, 0)")
        self.page.dark(True)
        self.page.screenshot(FOLDER / "runs.png", whole=True)

    def test_a_long_run(self):
        path = self.open(write_run("long", 50000))
        self.assertLess(path.stat().st_size, MAX_PAGE)
        self.assertIn("a point is the mean of 25 steps", self.page.run("document.getElementById('legend').innerText"))
        self.assertIn("mean of steps", self.hover(0, 25000))
        self.assertIn("in 3 h 28 min", self.page.run("document.getElementById('subtitle').innerText"))
        self.page.run("window.scrollTo(0, 0)")
        self.page.screenshot(FOLDER / "long_run.png", whole=True)

    def test_a_single_step(self):
        self.open(write_run("single", 1))
        self.assertIn("step 1", self.hover(0, 1))


if __name__ == "__main__":
    HEDDLE, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
    FOLDER.mkdir(parents=True, exist_ok=True)
    PROGRAM = browser.find()
    if PROGRAM is None:
        print("skipped: no Chromium is installed (Debian: apt-get install chromium)")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
