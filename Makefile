# rocm-sd: the commands of daily work. `make help` lists them; INSTALL.md says what each needs.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
.NOTPARALLEL:

PRESET ?= cpu
BUILD = build/$(PRESET)
JOBS ?= $(shell nproc)
PYTHON ?= python3
VENV ?= .venv
PIP_ARGS ?=
PREFIX ?= /usr/local
ARCHS ?= auto
PROMPT ?=
DEMO_ARGS ?=
FUZZ_SECONDS ?= 30
PYTEST_ARGS ?=
BENCH_ARGS ?=
BENCH_DEVICE ?= cpu
# This machine's own baselines; benchmarks/baselines has those of products that were measured for the repository.
BENCH_BASELINES ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/rocm-sd/baselines
EMU_TARGETS ?= gfx1100 gfx1201 gfx942
EMU_FULL ?= *Full*/f16
COUNT_TARGETS ?= gfx1100 gfx1151 gfx1200 gfx1201 gfx90a gfx942
CK_TARGETS ?= gfx942 gfx1100

# A passive wait: threads that spin at a barrier take the cores from those that work.
export OMP_WAIT_POLICY ?= passive
export CCACHE_NOHASHDIR ?= 1
export CCACHE_BASEDIR ?= $(CURDIR)

# Small checkpoints that the GPU tests draw with, and a Python that has torch to make them.
GPU_TEST_MODELS = $(CURDIR)/$(BUILD)/gpu_test_models
TEST_PYTHON = $(if $(wildcard $(VENV)/bin/python),$(VENV)/bin/python,$(PYTHON))
GPU_TEST_PYTHON = $(if $(wildcard $(VENV)/bin/python),$(VENV)/bin/python,$(PYTHON))
CXX_FILES = $(shell git ls-files '*.cpp' '*.hpp' '*.h' '*.hip')
CLI = $(BUILD)/apps/cli/rocm-sd
DEMO_CLI = build/demo/apps/cli/rocm-sd

##@ First steps
demo-build: deps
	cmake --preset demo >build-demo.log 2>&1 || { cat build-demo.log; exit 1; }
	rm -f build-demo.log
	# Not by `ninja -n`, which shows only that CMake will be run again: all objects less those that are there.
	todo=$$(( $$(ninja -C build/demo -t commands rocm-sd | grep -c -- ' -c ') - $$(find build/demo -name '*.o' | wc -l) ))
	# A file takes 1.2 to 1.8 s of one core (docs/howto/building.md).
	echo "[1/2] compiles the program: $$todo files, about $$(( (todo * 16 / 10 / $(JOBS) + 59) / 60 )) min with $(JOBS) jobs"
	cmake --build build/demo --target rocm-sd -j $(JOBS)
	mkdir -p out

demo: demo-build  ## draw a labelled 4x4 sheet with the shipped model; PROMPT="..." draws one picture
	if [ -n "$$DEMO_PROMPT" ]; then
	  echo "make demo: [2/2] draws one picture on the CPU: some seconds"
	  $(DEMO_CLI) generate --model models/demo --prompt "$$DEMO_PROMPT" --sampler "DPM++ 2M Karras" --cfg-scale 4 -o out/demo.png $(DEMO_ARGS)
	  echo "The picture is in $(CURDIR)/out/demo.png"
	else
	  echo "make demo: [2/2] draws 16 pictures of 20 steps on the CPU: 10 s to a minute"
	  $(DEMO_CLI) generate --model models/demo --prompts-file models/demo/demo_prompts.txt \
	    --sampler "DPM++ 2M Karras" --cfg-scale 4 --seed 1 --grid 4x4 --grid-labels -o out/demo_sheet.png $(DEMO_ARGS)
	  echo "The sheet is in $(CURDIR)/out/demo_sheet.png"
	fi
	echo "The program is $(CURDIR)/$(DEMO_CLI): see $(DEMO_CLI) --help. make build builds all commands into build/cpu."
demo: export DEMO_PROMPT := $(value PROMPT)

# What each draws, and with what: models/demo_examples/README.md.
demo-lora: demo-build  ## the demo model without a LoRA, with half of one and with all of it; then an embedding: out/demo_lora.png
	echo "[2/2] draws 16 images on the CPU: 10 s to a minute"
	$(DEMO_CLI) generate --model models/demo --prompts-file models/demo_examples/lora_prompts.txt --lora-dir models/demo_examples \
	  --embedding models/demo_examples/mint.safetensors --sampler "DPM++ 2M Karras" --cfg-scale 4 --seed 1 --grid 4x4 --grid-labels \
	  -o out/demo_lora.png $(DEMO_ARGS)
	echo "The sheet is in $(CURDIR)/out/demo_lora.png: plain, half of the LoRA, the LoRA, the embedding <mint>"

demo-control: demo-build  ## the demo model follows edges by a T2I-Adapter: the edges, without it, at strength 0.5 and 1: out/demo_control.png
	echo "[2/2] draws 9 images on the CPU: 10 s to a minute"
	sheet=()
	for strength in map 0 0.5 1; do
	  while read -r edges prompt; do
	    image=out/demo_control_$${edges}_$$strength.png
	    control=(--control models/demo_examples/canny_adapter --control-image models/demo_examples/edges/$$edges.png --control-strength $$strength)
	    [ $$strength != 0 ] || control=()
	    if [ $$strength = map ]; then image=models/demo_examples/edges/$$edges.png
	    else $(DEMO_CLI) generate --model models/demo --prompt "$$prompt" "$${control[@]}" --sampler "DPM++ 2M Karras" --cfg-scale 4 --seed 1 --quiet -o "$$image" $(DEMO_ARGS) </dev/null; fi
	    sheet+=("$$image")
	  done <models/demo_examples/control_prompts.txt
	done
	$(PYTHON) benchmarks/stack_pictures.py out/demo_control.png --columns 3 "$${sheet[@]}"
	rm -f out/demo_control_*_*.png
	echo "The sheet is in $(CURDIR)/out/demo_control.png: the edges, without them, at strength 0.5, at strength 1"

demo-amd: deps deps-gpu  ## draw a picture by AMD machine code on an emulated RX 7900 XTX and MI300X, and compare it with the CPU's
	cmake --preset $(PRESET) -DROCM_SD_EMULATOR=ON >build-amd.log 2>&1 || { cat build-amd.log; exit 1; }
	rm -f build-amd.log
	cmake --build $(BUILD) --target rocm-sd kernels_gfx1100 kernels_gfx942 -j $(JOBS)
	mkdir -p out
	draw() {
	  $(CLI) generate --model models/demo --prompt "a red apple on a white background" --sampler "DPM++ 2M Karras" \
	    --cfg-scale 4 --seed 1 --steps 8 -W 128 -H 128 "$$@"
	}
	draw --device cpu --dtype f32 -o out/demo_cpu.png
	for target in gfx1100 gfx942; do
	  begin=$$SECONDS
	  draw --device emu:$$target --dtype f16 -o out/demo_$$target.png
	  echo "emu:$$target took $$((SECONDS - begin)) s"
	  $(PYTHON) benchmarks/compare_pictures.py out/demo_cpu.png out/demo_$$target.png --least 40
	done

test: deps deps-gpu lint build venv torch-ops  ## lint, build everything, unit and integration tests
	$(PYTHON) tools/report/kernel_report.py --build $(BUILD) --check
	ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)
	ROCM_SD_BUILD_DIR=$(BUILD) $(VENV)/bin/python -m pytest -n $(JOBS) --dist loadfile $(PYTEST_ARGS)

build: deps  ## configure and build everything of PRESET (cpu, asan, tsan, release)
	cmake --preset $(PRESET)
	cmake --build $(BUILD) -j $(JOBS)

torch-ops: deps venv  ## the operators for PyTorch (python/rocm_sd_ops) and the engine's library, against the PyTorch of VENV
	cmake --preset $(PRESET) -DROCM_SD_TORCH_PYTHON="$(abspath $(VENV))/bin/python"
	cmake --build $(BUILD) -j $(JOBS) --target rocm_sd_torch rocm_sd

install: deps  ## build without tests and install below PREFIX, with the kernels of ARCHS (auto; all, amd, gfx1100, none)
	cmake --preset release -DCMAKE_INSTALL_PREFIX="$(PREFIX)" -DROCM_SD_ARCHS="$(ARCHS)"
	cmake --build build/release -j $(JOBS)
	cmake --install build/release

archive: VERSION = $(shell sed -n 's/^project(rocm_sd VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
archive: ARCHIVE = rocm-sd-$(VERSION)-linux-$(shell uname -m)
archive: deps deps-gpu  ## a release's archive below out/, with the kernels of ARCHS; unpacks it elsewhere and draws with it
	rm -rf "out/$(ARCHIVE)"
	$(MAKE) install PREFIX="$(CURDIR)/out/$(ARCHIVE)"
	tar -C out -czf "out/$(ARCHIVE).tar.gz" "$(ARCHIVE)"
	(cd out && sha256sum "$(ARCHIVE).tar.gz" >"$(ARCHIVE).tar.gz.sha256")
	# What the build folder has must not help: it is out of the way while the unpacked copy draws.
	place=$$(mktemp -d)
	trap 'rm -rf "$$place"; mv build/release.away build/release' EXIT
	mv build/release build/release.away
	tar -C "$$place" -xzf "out/$(ARCHIVE).tar.gz"
	"$$place/$(ARCHIVE)/bin/rocm-sd" generate --model models/demo --prompts-file models/demo/demo_prompts.txt --steps 2 \
	  --grid 4x4 --grid-labels -o "$$place/sheet.png"
	test -s "$$place/sheet.png"
	awk '/^## \[/ {on = index($$0, "[$(VERSION)]")} on' CHANGELOG.md >out/release_notes.md
	test -s out/release_notes.md
	ls -l "out/$(ARCHIVE).tar.gz"

packages: deps deps-gpu venv $(VENV)/.packages  ## Debian packages and a Python wheel below out/packages, with the kernels of ARCHS (docs/howto/packages.md)
	tools/install_deps.sh packages
	cmake --preset release -DROCM_SD_ARCHS="$(ARCHS)"
	cmake --build build/release -j $(JOBS)
	rm -rf build/release/packages && mkdir -p out/packages && rm -f out/packages/*.deb
	(cd build/release && cpack -G DEB)
	cp build/release/packages/*.deb out/packages/
	PYTHON=$(VENV)/bin/python packaging/make_wheel.sh out/packages "$(ARCHS)"

##@ More tests
test-packages:  ## as root: what `make packages` made, installed and used in fresh roots (debootstrap), the service under systemd
	tools/install_deps.sh packages
	packaging/try_deb.sh out/packages
	packaging/try_wheel.sh out/packages/rocm_sd_ops-*.whl

test-full: build venv  ## one full-size UNet step of SD 1.5 and of SDXL against Diffusers (16 GB of memory), every code point tokenized
	ROCM_SD_BUILD_DIR=$(BUILD) $(VENV)/bin/python -m pytest -m full -s $(PYTEST_ARGS)

test-comfyui:  ## the nodes in a real ComfyUI: COMFYUI_DIR=..., COMFYUI_PYTHON=... with its requirements
	@if [ -z "$(COMFYUI_DIR)" ]; then echo "test-comfyui: not run: give COMFYUI_DIR=/path/to/ComfyUI"; else \
	  ROCM_SD_TORCH_LIBRARY="$${ROCM_SD_TORCH_LIBRARY:-$(CURDIR)/$(BUILD)/lib/librocm_sd_torch.so}" \
	  $(TEST_PYTHON) tests/front_ends/run_comfyui.py "$(COMFYUI_DIR)" --python "$(or $(COMFYUI_PYTHON),$(TEST_PYTHON))" $(COMFYUI_ARGS); fi

test-a1111:  ## the extension in a real AUTOMATIC1111: A1111_DIR=..., A1111_PYTHON=... with its requirements
	@if [ -z "$(A1111_DIR)" ]; then echo "test-a1111: not run: give A1111_DIR=/path/to/stable-diffusion-webui"; else \
	  ROCM_SD_TORCH_LIBRARY="$${ROCM_SD_TORCH_LIBRARY:-$(CURDIR)/$(BUILD)/lib/librocm_sd_torch.so}" \
	  $(TEST_PYTHON) tests/front_ends/run_a1111.py "$(A1111_DIR)" --python "$(or $(A1111_PYTHON),$(TEST_PYTHON))" $(A1111_ARGS); fi

test-ray: torch-ops $(VENV)/.ray  ## integrations/ray in a real Ray on this machine: two replicas, batches, bad requests, a killed one (4 GB of memory)
	ROCM_SD_TORCH_LIBRARY="$(CURDIR)/$(BUILD)/lib/librocm_sd_torch.so" ROCM_SD_LIBRARY="$(CURDIR)/$(BUILD)/librocm_sd.so" \
	  $(VENV)/bin/python tests/front_ends/run_ray.py

test-page: deps venv  ## the server's page in Chromium: drawing, mask, panels, grids, gallery, reload, keyboard, axe
	tools/install_deps.sh page
	cmake --preset $(PRESET)
	cmake --build $(BUILD) -j $(JOBS) --target rocm-sd
	ROCM_SD_BUILD_DIR=$(BUILD) $(VENV)/bin/python -m pytest -q tests/integration_tests/test_server_page.py tests/integration_tests/test_server_page_panels.py $(PYTEST_ARGS)

test-server: deps venv  ## the server for long: 10,000 bad requests, a storm of clients, a soak, schemathesis over its document
	cmake --preset $(PRESET)
	cmake --build $(BUILD) -j $(JOBS) --target rocm-sd test_server
	$(BUILD)/tests/unit_tests/test_server
	ROCM_SD_BUILD_DIR=$(BUILD) ROCM_SD_BAD_REQUESTS=10000 $(VENV)/bin/python -m pytest -m "full or not full" -q $(PYTEST_ARGS) \
	  tests/integration_tests/test_server.py tests/integration_tests/test_server_clients.py tests/integration_tests/test_server_load.py

# ThreadSanitizer does not see GNU OpenMP's barriers, hence one thread; the options are those of test-asan and test-tsan below.
test-server-sanitized: deps venv  ## the server with AddressSanitizer and UBSan, then with ThreadSanitizer, under every API at once (LOAD=seconds)
	export ASAN_OPTIONS=detect_stack_use_after_return=0:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1
	export LSAN_OPTIONS=suppressions=$(CURDIR)/tests/leaks_of_others.txt ONEDNN_MAX_CPU_ISA=$${ONEDNN_MAX_CPU_ISA:-AVX512_CORE_BF16}
	export TSAN_OPTIONS=report_signal_unsafe=0 OMP_NUM_THREADS=1 ROCM_SD_LOAD_SECONDS=$(or $(LOAD),120)
	for sanitizer in asan tsan; do
	  cmake --preset $$sanitizer
	  cmake --build build/$$sanitizer -j $(JOBS) --target rocm-sd
	  ROCM_SD_BUILD_DIR=build/$$sanitizer $(VENV)/bin/python -m pytest -m full -q -s $(PYTEST_ARGS) tests/integration_tests/test_server_mixed_load.py
	done

soak-server: venv  ## 2,000 pictures through the server (SOAK=N: so many), alone and joined: its memory at the end is that after 300
	cmake --preset $(PRESET)
	cmake --build $(BUILD) -j $(JOBS) --target rocm-sd
	ROCM_SD_BUILD_DIR=$(BUILD) ROCM_SD_SOAK=$(or $(SOAK),2000) $(VENV)/bin/python -m pytest -m full -q -s $(PYTEST_ARGS) \
	  tests/integration_tests/test_server_load.py -k soak

test-pip: venv  ## `pip install .` into a fresh environment, an operator and a picture from there
	$(VENV)/bin/python tests/front_ends/run_pip_install.py

test-asan: deps venv  ## unit tests and the CLI's bad inputs under AddressSanitizer and UBSan
	cmake --preset asan
	cmake --build build/asan -j $(JOBS)
	# Without the fake stack: GCC aligns its frames to less than the 64 bytes of an AVX-512 register.
	export ASAN_OPTIONS=detect_stack_use_after_return=0:strict_string_checks=1:allocator_may_return_null=0
	# Not with AMX: while it writes an AMX kernel, oneDNN 2.6 reads up to 16 entries behind the end of a table of its own
	# (skipped_bd_mask), and the allocator of a sanitizer puts one table in 64 just before a page that is not there.
	export ONEDNN_MAX_CPU_ISA=$${ONEDNN_MAX_CPU_ISA:-AVX512_CORE_BF16}
	export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
	export LSAN_OPTIONS=suppressions=$(CURDIR)/tests/leaks_of_others.txt
	ctest --test-dir build/asan --output-on-failure -j $(JOBS)
	ROCM_SD_BUILD_DIR=build/asan $(VENV)/bin/python -m pytest -n $(JOBS) -m "bad_input and not in_python and not full and not gpu" $(PYTEST_ARGS)

# GNU OpenMP's barriers are invisible to ThreadSanitizer: with one OpenMP thread only this project's own threads remain.
test-tsan: deps  ## unit tests under ThreadSanitizer
	cmake --preset tsan
	cmake --build build/tsan -j $(JOBS)
	# report_signal_unsafe: the SIGBUS guard leaves its handler by siglongjmp, and what follows is no handler any more.
	OMP_NUM_THREADS=1 TSAN_OPTIONS=halt_on_error=1:report_signal_unsafe=0 ctest --test-dir build/tsan --output-on-failure -j $(JOBS)

# Needs no network: ROCM_SD_SKIP_DEPS=1 where the packages cannot be asked for. Diffusers and transformers make the small random
# models. Python files are taken by their mark, so that others, which need more, are not even read.
test-gpu: deps  ## everything on a GPU: the device that ROCM_SD_TEST_DEVICE names (cuda, hip:1), else the first usable one
	cmake --preset $(PRESET)
	cmake --build $(BUILD) -j $(JOBS) --target gpu_tests rocm-sd rocm_sd
	missing=$$($(GPU_TEST_PYTHON) -c 'import importlib.util as u; print(*[m for m in ("torch", "numpy", "safetensors", "PIL", "pytest", "diffusers", "transformers") if not u.find_spec(m)])' 2>/dev/null || echo Python)
	if [ -z "$$missing" ]; then
	  for kind in sd15 sd21v sdxl; do
	    [ -e $(GPU_TEST_MODELS)/$$kind ] || $(GPU_TEST_PYTHON) tools/checkpoints/make_random_checkpoint.py $$kind $(GPU_TEST_MODELS)/$$kind --tiny --small-vocab --dtype fp32
	  done
	fi
	status=0
	[ ! -d $(GPU_TEST_MODELS) ] || export ROCM_SD_TEST_MODELS=$(GPU_TEST_MODELS)
	for test in $(BUILD)/tests/gpu_tests/test_gpu_*; do "$$test" || status=1; done
	if [ -n "$$missing" ]; then
	  echo "test-gpu: the Python half was not run, and of the models the demo model alone, because $(GPU_TEST_PYTHON) has no $$missing"
	else
	  cmake --preset $(PRESET) -DROCM_SD_TORCH_PYTHON="$$($(GPU_TEST_PYTHON) -c 'import sys; print(sys.executable)')"
	  cmake --build $(BUILD) -j $(JOBS) --target rocm_sd_torch
	  ROCM_SD_BUILD_DIR=$(BUILD) ROCM_SD_TUNING=off $(GPU_TEST_PYTHON) -m pytest -m gpu $(PYTEST_ARGS) $$(grep -l 'mark\.gpu' tests/integration_tests/test_*.py) || status=1
	fi
	exit $$status

test-gpu-sanitize: deps  ## the kernels' GPU tests on small shapes under NVIDIA's compute-sanitizer (SANITIZE_ARGS: --few, --jobs N)
	cmake --preset $(PRESET)
	cmake --build $(BUILD) -j $(JOBS) --target gpu_tests
	tests/sanitize_gpu.sh $(SANITIZE_ARGS) $(BUILD)

test-emu: deps deps-gpu  ## ops, models and pipeline on emulated AMD GPUs under checking, then SD 1.5's layers in real size
	cmake --preset $(PRESET) -DROCM_SD_EMULATOR=ON
	cmake --build $(BUILD) --target kernels test_gpu_kernels test_gpu_models test_gpu_pipeline test_gpu_measurement -j $(JOBS)
	for target in $(EMU_TARGETS); do
	  export ROCM_SD_TEST_DEVICE=emu:$$target ROCM_SD_EMULATOR_CHECK=1
	  begin=$$SECONDS
	  for test in kernels models pipeline; do $(BUILD)/tests/gpu_tests/test_gpu_$$test; done
	  for test in kernels models measurement; do $(BUILD)/tests/gpu_tests/test_gpu_$$test --gtest_filter='$(EMU_FULL)'; done
	  echo "emu:$$target took $$((SECONDS - begin)) s"
	done

# Opt-in: the other emulator is not part of this repository, and neither is a script that fetches it.
test-emu-differential:  ## our emulator against another, instruction by instruction: TINYGRAD_DIR=... or ROCM_SD_REFERENCE_EMULATOR=command
	@if [ -z "$(TINYGRAD_DIR)$${ROCM_SD_REFERENCE_EMULATOR:-}" ]; then
	  echo "test-emu-differential: not run: git clone https://github.com/tinygrad/tinygrad and give TINYGRAD_DIR=/path/to/tinygrad,"
	  echo "or ROCM_SD_REFERENCE_EMULATOR='command of another emulator' (docs/emulator.md, Against another emulator)"
	  exit 0
	fi
	cmake --preset $(PRESET) -DROCM_SD_EMULATOR=ON
	cmake --build $(BUILD) -j $(JOBS) --target rocm-sd emulator_test_kernels
	if [ -n "$(TINYGRAD_DIR)" ]; then
	  export ROCM_SD_REFERENCE_EMULATOR="$(TEST_PYTHON) $(CURDIR)/tests/support/emulators/tinygrad_mockgpu.py $(TINYGRAD_DIR)"
	fi
	ROCM_SD_BUILD_DIR=$(BUILD) $(TEST_PYTHON) -m pytest -n $(JOBS) tests/integration_tests/test_emu_differential.py $(PYTEST_ARGS)

test-all-archs: deps deps-gpu  ## compile the kernels for every target that the compilers here know, and check their report
	cmake --preset all-archs -DROCM_SD_KERNELS_ONLY=ON
	cmake --build build/all-archs -j $(JOBS)
	$(PYTHON) tools/report/kernel_report.py --build build/all-archs --check --every

kernel-counts: deps deps-gpu  ## write share/counts anew: what the emulator counts in the kernels of COUNT_TARGETS
	cmake --preset $(PRESET) -DROCM_SD_EMULATOR=ON
	cmake --build $(BUILD) --target bench_emulated -j $(JOBS)
	cmake --preset all-archs -DROCM_SD_KERNELS_ONLY=ON
	cmake --build build/all-archs --target $(addprefix kernels_,$(COUNT_TARGETS)) -j $(JOBS)
	mkdir -p share/counts
	for target in $(COUNT_TARGETS); do
	  ROCM_SD_KERNELS=build/all-archs/lib $(BUILD)/tests/performance_tests/bench_emulated --write share/counts $$target all all
	done

kernel-report:  ## write docs/reference/kernel-report anew from the kernels that PRESET has built (all-archs: every table)
	$(PYTHON) tools/report/kernel_report.py --build $(BUILD)

model-shapes: deps  ## write tests/data/model_shapes.txt anew: the problems of SD 1.5 and SDXL in full size, from the planner
	cmake --preset $(PRESET)
	cmake --build $(BUILD) --target rocm-sd -j $(JOBS)
	$(CLI) bench --mode shapes >tests/data/model_shapes.new
	mv tests/data/model_shapes.new tests/data/model_shapes.txt

kernel-map: deps  ## write docs/reference/kernel-map.md anew: which kernel a shape gets, and why
	cmake --preset $(PRESET)
	cmake --build $(BUILD) --target rocm-sd -j $(JOBS)
	$(CLI) bench --mode kernel-map >docs/reference/kernel-map.new
	mv docs/reference/kernel-map.new docs/reference/kernel-map.md

test-onednn3: deps $(VENV)/bin/python  ## unit tests of kernels and models with oneDNN 3 in place of the system's
	tools/fetch/fetch_onednn3.sh build/onednn3-root $(VENV)/bin/python
	cmake --preset cpu -B build/onednn3 -DROCM_SD_DNNL_ROOT="$(CURDIR)/build/onednn3-root"
	cmake --build build/onednn3 -j $(JOBS) --target test_kernels test_models
	LD_LIBRARY_PATH="$(CURDIR)/build/onednn3-root/lib" ctest --test-dir build/onednn3 --output-on-failure \
	  -j $(JOBS) -L 'kernels|models'

# Compiles only: static_asserts compare every function, struct and number that src/vendor uses.
test-vendor-headers: $(VENV)/bin/python  ## our prototypes of the vendors' libraries against their headers (downloads 1.2 GB)
	tools/fetch/fetch_vendor_headers.sh build/vendor-headers $(VENV)/bin/python
	for library in cublaslt cudnn hipblaslt rocblas miopen; do
	  $(or $(CXX),c++) -std=c++20 -fsyntax-only -D__HIP_PLATFORM_AMD__ -Isrc -Iinclude -Itests -isystem build/vendor-headers/rocm/usr/include \
	    -isystem build/vendor-headers/nvidia -isystem build/vendor-headers/nvidia/cccl tests/vendor_headers/$$library.cpp && echo "$$library: as its header says"
	done

# Opt-in: nothing else compiles these kernels. 0.9 MB of headers from Debian; six files a target, a minute each.
test-ck: deps deps-gpu  ## AMD's Composable Kernel as candidates: compiled, run on emulated GPUs against the reference, reported beside ours
	tools/fetch/fetch_ck_headers.sh build/ck-headers
	cmake --preset cpu -B build/ck -DROCM_SD_WITH_CK=ON -DROCM_SD_CK_ROOT="$(CURDIR)/build/ck-headers" -DROCM_SD_ARCHS="$(subst $() ,;,$(CK_TARGETS))" -DROCM_SD_EMULATOR=ON
	cmake --build build/ck -j $(JOBS) --target test_gpu_ck kernels
	for target in $(CK_TARGETS); do
	  ROCM_SD_TEST_DEVICE=emu:$$target ROCM_SD_EMULATOR_CHECK=1 ROCM_SD_KERNELS=build/ck/lib build/ck/tests/gpu_tests/test_gpu_ck
	done
	$(PYTHON) tools/report/kernel_report.py --build build/ck --beside ck_ --docs docs/reference/kernel-report/ck $(CK_TARGETS)

fuzz-short: deps  ## each libFuzzer target for FUZZ_SECONDS (30)
	tools/install_deps.sh fuzz
	cmake --preset fuzz
	cmake --build build/fuzz -j $(JOBS) --target fuzzers
	tests/run_fuzzers.sh build/fuzz $(FUZZ_SECONDS)

bench-cpu: build venv  ## speed of kernels and models on this CPU, beside the floor and PyTorch (20 minutes)
	$(VENV)/bin/python benchmarks/bench_cpu.py --build $(BUILD) $(BENCH_ARGS)

bench-gate: build  ## times SD 1.5's shapes on BENCH_DEVICE and compares with the device's baseline (this machine's, else the repository's); UPDATE=1 keeps them, UPDATE=first where there is none
	mkdir -p out
	$(CLI) bench --model sd15 --device $(BENCH_DEVICE) --top 24 --json out/bench.json --quiet $(BENCH_ARGS)
	$(PYTHON) benchmarks/bench_gate.py out/bench.json --baselines "$(BENCH_BASELINES)" --baselines benchmarks/baselines $(if $(UPDATE),$(if $(filter first,$(UPDATE)),--keep-first,--update))

##@ Source
format: $(VENV)/.lint  ## format the C++ and HIP files in place, and mend what ruff can
	@$(VENV)/bin/clang-format -i $(CXX_FILES)
	$(VENV)/bin/ruff check --fix .

lint: $(VENV)/.lint  ## format, Python (ruff), ladder of includes, lengths, heads of kernels, terms, documents
	@echo "clang-format, ruff, check_layers, check_lines, check_kernels, check_words, check_docs, API reference, benchmark tables"
	$(VENV)/bin/clang-format --dry-run -Werror $(CXX_FILES)
	$(VENV)/bin/ruff check --quiet .
	$(VENV)/bin/python tools/lint/check_layers.py
	$(VENV)/bin/python tools/lint/check_lines.py
	$(VENV)/bin/python tools/lint/check_kernels.py
	$(VENV)/bin/python tools/lint/check_words.py
	$(VENV)/bin/python tools/lint/check_docs.py
	$(VENV)/bin/python tools/report/gen_api_reference.py --check
	$(VENV)/bin/python benchmarks/tables.py --check

tidy: deps $(VENV)/.lint  ## clang-tidy on the files that differ from main; ALL=1 for every file
	cmake --preset $(PRESET)
	tools/lint/run_clang_tidy.sh $(VENV)/bin/clang-tidy $(BUILD) $(JOBS) $(if $(ALL),all,changed)

docs: $(VENV)/.lint  ## write docs/reference/api-reference.md from the public headers, and the benchmark tables from docs/benchmarks
	$(VENV)/bin/python tools/report/gen_api_reference.py
	$(VENV)/bin/python benchmarks/tables.py

##@ What it needs
deps:  ## install missing system packages by name
	tools/install_deps.sh build

deps-gpu:
	tools/install_deps.sh gpu

deps-python:
	PYTHON=$(PYTHON) tools/install_deps.sh python

venv: deps-python $(VENV)/.test  ## Python environment of the tests (PIP_ARGS is passed to pip)

# The stamps hold what was installed, so that a changed list installs again and an unchanged one costs nothing.
$(VENV)/bin/python: | deps-python
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.lint: tools/lint/requirements.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --disable-pip-version-check -q -r $< $(PIP_ARGS)
	cp $< $@

$(VENV)/.test: tests/requirements.txt | $(VENV)/.lint
	$(VENV)/bin/python -m pip install --disable-pip-version-check -q -r $< $(PIP_ARGS)
	cp $< $@

$(VENV)/.packages: packaging/requirements.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --disable-pip-version-check -q -r $< $(PIP_ARGS)
	cp $< $@

$(VENV)/.ray: tests/requirements-ray.txt | $(VENV)/.test
	$(VENV)/bin/python -m pip install --disable-pip-version-check -q -r $< $(PIP_ARGS)
	cp $< $@

clean:  ## remove build/ and out/ (the Python environment stays)
	rm -rf build out

help:  ## this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)}
	  /^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: test-ray soak-server test-server-sanitized packages test-packages demo-build demo-lora demo-control test-page test-server model-shapes kernel-map demo demo-amd test-emu test-emu-differential test-comfyui test-a1111 test-pip test build torch-ops install archive test-full test-asan test-tsan test-gpu test-gpu-sanitize test-all-archs kernel-counts kernel-report test-onednn3 test-vendor-headers test-ck fuzz-short bench-cpu bench-gate format lint tidy docs \
  deps deps-gpu deps-python venv clean help
