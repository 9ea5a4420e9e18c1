# make        set up and build
# make test   set up, build, run every test; print what was skipped, and why
# make soak SECONDS=3600 SEED=7   attack every command for SECONDS; kill, stop and confuse ranks;
#             cut their network; kill savers; train 25 steps every way; compare automatic plans with
#             presets; run all tests of the Python package, also with the oldest torch; build and
#             install its wheel
# make oracle train with PyTorch itself and compare every hash
# make lint   check format and clang-tidy of changed files
# make train  set up, build, run the main job
# make python build the Python package and install it into .venv
# make wheel  write a wheel of it for this machine's architecture into dist/
# make install PREFIX=/usr/local   install the program with its libtorch, man page and completions
# make deb    write a Debian package of it into dist/
# make bench  measure; writes build/bench.json
# make docs   regenerate ops.md, passes.md, flags.md and diagnostics.md
# make TORCH_PYTHON=python3 ...   use the torch of that Python, and install none

TORCH_PYTHON ?=
ifeq ($(TORCH_PYTHON),)
  SETUP = tools/setup.sh
  TEST_SETUP = tools/setup.sh --tests
  PYTHON = $(CURDIR)/.venv/bin/python3
else
  SETUP = tools/setup.sh --no-torch
  TEST_SETUP = true
  PYTHON = $(TORCH_PYTHON)
endif
TORCH = -DHEDDLE_TORCH_PYTHON=$(PYTHON)
CLANG = $(firstword $(wildcard /usr/bin/clang++-1[6-9] /usr/bin/clang++-2[0-9]))
FUZZ_SECONDS ?= 30
SECONDS = 600
PREFIX ?= /usr/local
SEED = 1
# -entropic=0: weighting inputs by rare features takes fifty times as long as running them, because
# there are a hundred thousand features.
FUZZER = -entropic=0 -rss_limit_mb=2000 -artifact_prefix=build/fuzz/
CORPUS = $$(find heddle -name '*.hdt') fuzz/corpus/*
# Writes the whole output, which names skipped parts, to a file for tools/skipped.py.
RESULTS = --output-junit tests.xml --test-output-size-passed 1000000
# ccache caches files with precompiled headers only with these settings.
export CCACHE_SLOPPINESS = pch_defines,time_macros,include_file_mtime,include_file_ctime

.PHONY: all setup build program install deb python wheel soak_python test test_setup oracle lint sanitized fuzz damage attack soak train bench docs goldens format clean

all: build

setup:
	@$(SETUP)

build: setup
	@cmake --preset release $(TORCH) $(PACKAGE) >build.log 2>&1 || { cat build.log; rm -f build.log; exit 1; }; rm -f build.log
	@cmake --build --preset release

# Builds only the program.
program: setup
	@cmake --preset release $(TORCH) $(PACKAGE) >build.log 2>&1 || { cat build.log; rm -f build.log; exit 1; }; rm -f build.log
	@cmake --build --preset release --target heddle heddle-torch

# DESTDIR works as usual.
install: program
	@cmake --install build --component program --strip --prefix "$(PREFIX)" >/dev/null
	@echo "installed $(DESTDIR)$(PREFIX)/bin/heddle"

deb: program
	@mkdir -p dist
	@cpack --config build/CPackConfig.cmake -G DEB -B dist >build/cpack.log 2>&1 || { cat build/cpack.log; exit 1; }
	@rm -rf dist/_CPack_Packages && ls dist/*.deb

PIP = $(PYTHON) -m pip --disable-pip-version-check
python: setup
	@cmake --preset release $(TORCH) -DHEDDLE_PYTHON=ON >build.log 2>&1 || { cat build.log; rm -f build.log; exit 1; }; rm -f build.log
	@cmake --build --preset release --target heddle_python heddle_python_torch
	@$(PIP) install --quiet --no-deps --force-reinstall "$$(tools/python_wheel.sh $(PYTHON) build build/wheel)"
	@$(PYTHON) -c "import torch, heddle, heddle._torch; print('heddle', heddle.__version__, 'in', heddle.__path__[0])"

# Without torch and its ABI, in a build folder of its own.
wheel: setup
	@rm -rf build/wheel && mkdir -p dist
	@$(PIP) wheel --quiet --no-build-isolation --no-deps -w build/wheel .
	@PATH="$(dir $(PYTHON)):$$PATH" $(PYTHON) -m auditwheel repair -w dist build/wheel/*.whl
	@$(PYTHON) -m auditwheel show dist/*.whl

# Before the build, which looks for the packages of tests.
test_setup: setup
	@$(TEST_SETUP)

# The tests of the Python package are part of the build where its tools are installed.
test: PACKAGE = -DHEDDLE_PYTHON=$$($(PYTHON) -c "import nanobind, pytest; print('ON')" 2>/dev/null || echo OFF)
test: test_setup build fuzz
	@tools/lint.py --most=12
	@status=0; ctest --preset release $(RESULTS) || status=$$?; \
	  tools/skipped.py build/tests.xml || status=$$?; exit $$status

oracle: build
	@$(TEST_SETUP)
	@$(PYTHON) test/oracle/ops_conformance.py build/heddle
	@$(PYTHON) test/oracle/llama3_step.py build/test/step_dump
	@$(PYTHON) test/oracle/pytorch.py build/heddle --all
	@$(PYTHON) test/oracle/pipeline_steps.py build/heddle --all
	@$(PYTHON) test/oracle/hf_models.py build/heddle --all
	@$(PYTHON) test/oracle/text_loss.py build/heddle

lint: setup
	@tools/lint.py

sanitized: setup
	@CXX=$(CLANG) cmake --preset fuzz >/dev/null
	@cmake --build --preset fuzz --target heddle-fuzz-parse heddle-attack damage_test

# Runs the parser on damaged texts and every command on damaged graphs, with AddressSanitizer and
# UndefinedBehaviorSanitizer.
fuzz: sanitized
	@$(MAKE) --no-print-directory -j2 damage attack

damage:
	@build/fuzz/test/damage_test --gtest_brief=1

attack:
	@mkdir -p build/fuzz/found
	@echo "fuzzing the parser for $(FUZZ_SECONDS) s"
	@build/fuzz/heddle-fuzz-parse $(FUZZER) -seed=$(SEED) -max_total_time=$(FUZZ_SECONDS) -max_len=2000 -print_final_stats=0 \
	  -dict=fuzz/words.dict build/fuzz/found fuzz/corpus >build/fuzz/log 2>&1 || { tail -40 build/fuzz/log; exit 1; }
	@tail -1 build/fuzz/log
	@build/fuzz/heddle-attack --graphs=200 --seconds=600 --found=build/attack $(CORPUS)

# Runs with sanitizers and, in parallel, with libtorch; the second runs accepted graphs before and
# after.
soak: build sanitized
	@build/fuzz/heddle-attack --seconds=$(SECONDS) --seed=$(SEED) --found=build/attack $(CORPUS) & sanitized=$$!; \
	  build/heddle-attack --seconds=$(SECONDS) --seed=$(SEED) --found=build/attack-run $(CORPUS) && wait $$sanitized
	@cmake --build --preset fuzz --target heddle-fuzz-import
	@build/fuzz/heddle-fuzz-import $(FUZZER) -max_total_time=$(SECONDS) -max_len=4000 -seed=$(SEED) \
	  build/fuzz/found heddle/import/test >build/fuzz/log 2>&1 || { tail -40 build/fuzz/log; exit 1; }
	@HEDDLE_SOAK=1 build/fuzz/test/damage_test --gtest_brief=1
	@for test in passes_overlap checkpoint_save auto passes_on_ranks; do HEDDLE_SOAK=1 build/test/$${test}_test --gtest_brief=1 || exit 1; done
	@test/process/faults.py build/heddle --trials=50 --all --seed=$(SEED)
	@test/process/namespaces.py build/heddle --all --seed=$(SEED) || [ $$? = 77 ]
	@$(PYTHON) test/process/launchers.py build/heddle --all
	@build/test/training_on_ranks_test --gtest_brief=1 --steps=20000 --seed=$(SEED)
	@test/fsdp/bits.py build/heddle --all
	@test/search/never_worse.py build/heddle --all
	@test/train/runs.py build/heddle --kills=200 --seed=$(SEED)
	@HEDDLE_SOAK=1 $(PYTHON) test/tokenizer/against_tokenizers.py build/test/encode_texts --seed=$(SEED)
	@HEDDLE_SOAK=1 $(PYTHON) test/tokenizer/damaged_files.py build/test/encode_texts --seed=$(SEED)
	@test/checkpoint/kills.py build/test/checkpoint_victim build/heddle --trials=200 --seed=$(SEED)
	@HEDDLE_SOAK=1 test/docs/code_blocks.py build/heddle
	@[ ! -f build/python/heddle/__init__.py ] || $(MAKE) --no-print-directory soak_python

soak_python:
	@HEDDLE_SOAK=1 PYTHONPATH=$(CURDIR)/build/python $(PYTHON) -m pytest -c pyproject.toml -q --heddle=$(CURDIR)/build/heddle python/tests
	@tools/oldest_torch.sh $(PYTHON) build
	@rm -f dist/*.whl && $(MAKE) --no-print-directory wheel && $(PYTHON) test/python/install.py dist/*.whl

# Eight ranks in this process learn Heddle's own sources, and the model writes a line. Then the same
# job is compared with eager training.
RANKS = --parallelism.data_parallel_shard_degree=4 --parallelism.tensor_parallel_degree=2
train: program
	@rm -rf build/train
	@build/heddle train --model=llama3 --flavor=debugmodel $(RANKS) --training.dataset=text --training.seq_len=128 \
	  --training.steps=120 --optimizer.lr=2e-3 --lr_scheduler.warmup_steps=10 --lr_scheduler.decay=cosine \
	  --lr_scheduler.min_lr_factor=0.1 --checkpoint.folder=build/train --metrics.log_freq=5
	@echo && build/heddle generate --checkpoint=build/train --prompt='// The ' --tokens=120 --temperature=0.6 --top_k=20
	@echo && build/heddle verify --model=llama3 --flavor=debugmodel $(RANKS) --training.seq_len=64 --training.steps=3 --precision=f32

bench: build
	@cmake --build --preset release --target bench
	@build/heddle-bench --benchmark_out=build/bench.json --benchmark_out_format=json >/dev/null 2>&1
	@python3 tools/bench_report.py build/bench.json
	@$(PYTHON) bench/step_bench.py build/heddle build/bench_steps.json
	@$(PYTHON) bench/pass_bench.py build/heddle build/bench_passes.json
	@$(PYTHON) bench/run_bench.py build/heddle-run-bench build/bench_run.json
	@python3 bench/checkpoint_bench.py build/heddle-checkpoint-speed build/bench_checkpoint.json
	@$(PYTHON) bench/data_bench.py build/heddle-data-speed build/bench_data.json
	@python3 bench/train_bench.py build/heddle build/bench_train.json
	@[ ! -f build/python/heddle/__init__.py ] || PYTHONPATH=build/python $(PYTHON) bench/python_bench.py build/bench_python.json
	@$(PYTHON) bench/tokenize_bench.py build/heddle build/bench_tokenize.json
	@$(PYTHON) bench/generate_bench.py build/heddle build/bench_generate.json
	@build/heddle plan --model=llama3 --flavor=8B --training.seq_len=8192 --parallelism.data_parallel_shard_degree=8 \
	  --parallelism.tensor_parallel_degree=8 --stage=lowered -o build/bench_lowered.hd >/dev/null
	@build/heddle-budget-bench build/bench_lowered.hd
	@python3 bench/accuracy.py build/heddle --write --check

docs: build
	@build/heddle doc ops -o docs/ops.md
	@build/heddle doc passes -o docs/passes.md
	@tools/flags_page.sh build/heddle > docs/flags.md
	@tools/diagnostics_page.py
	@[ ! -f build/python/heddle/__init__.py ] || \
	  PYTHONPATH=build/python $(PYTHON) -m nanobind.stubgen -q -m heddle._core -o python/heddle/_core.pyi

goldens: build
	@build/heddle-golden --update $$(find heddle -name '*.hdt')

format:
	@clang-format-16 -i $$(git ls-files '*.h' '*.cc')

clean:
	@rm -rf build
