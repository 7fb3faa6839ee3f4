.DEFAULT_GOAL := help
FUZZTIME ?= 20s
PYTHON ?= python3
NUMERIC = ./internal/num/vector ./internal/click/train ./internal/onnx/execute ./internal/click/model ./internal/value/shapley ./internal/click/evaluate ./internal/value/mask

help: ## show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

build: ## build static binaries into bin/
	CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/...

test: ## run the tests that together end within minutes
	go test -timeout 30m ./...

test-all: ## run all tests, as CI does (a quarter of an hour on two cores)
	SHAVER_LONG=1 go test -timeout 30m ./...

race: ## run the tests under the race detector
	SHAVER_LONG=1 CGO_ENABLED=1 go test -race -timeout 60m ./...

levels: ## run the numeric tests with each kernel that this machine supports; those of package kernel run all of them
	SHAVER_LONG=1 go test ./internal/num/kernel $(NUMERIC)
	if grep -qs amx_tile /proc/cpuinfo; then SHAVER_LONG=1 GODEBUG=cpu.amxtile=off go test -short $(NUMERIC); fi
	SHAVER_LONG=1 GODEBUG=cpu.avx512f=off go test -short $(NUMERIC)
	SHAVER_LONG=1 GODEBUG=cpu.avx2=off go test -short $(NUMERIC)
	SHAVER_LONG=1 go test -tags purego ./internal/num/... # the other packages compute the same with it as without AVX2

ARM64 = CGO_ENABLED=0 GOARCH=arm64
levels-arm64: ## run the tests of internal/num at the levels of arm64, in qemu-aarch64-static (Debian's qemu-user-static)
	$(ARM64) SHAVER_LONG=1 go test -short -exec qemu-aarch64-static -skip '^TestGeneratedFilesAreCurrent$$' ./internal/num/...

pipeline-arm64: ## run the digests of all jobs, and the quickstart with a training, at the level neon in qemu (minutes)
	$(ARM64) SHAVER_LONG=2 SHAVER_EXEC=qemu-aarch64-static go test -count 1 -timeout 60m -exec qemu-aarch64-static ./cmd/shaver -run '(TestDigests|TestOutputs)$$/^neon$$'
	dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && $(ARM64) go build -o "$$dir/shaver" ./cmd/shaver && qemu-aarch64-static "$$dir/shaver" quickstart --train --rows 3000

browser: ## build infer/browser into dist/browser, and serve its page on http://127.0.0.1:8000
	mkdir -p dist/browser
	CGO_ENABLED=0 GOOS=js GOARCH=wasm go build -ldflags='-s -w' -o dist/browser/shaver.wasm ./infer/browser
	cp infer/browser/index.html infer/browser/shaver.js "$$(go env GOROOT)/lib/wasm/wasm_exec.js" dist/browser
	$(PYTHON) -m http.server --bind 127.0.0.1 --directory dist/browser 8000

edge: ## measure the paper's edge table, of a native program and as WebAssembly in node and chromium (minutes, 2 GB of memory)
	go test -run - -bench 'Edge$$' ./infer ./infer/browser

generate: ## generate the kernels' assembly and docs/reference/cli
	go generate ./internal/num/kernel
	go test ./cmd/shaver -count 1 -run '^TestReference$$' -rewrite

s3server: ## build the S3-compatible server of the tests (once, about a minute)
	go run ./internal/ops/remote/testdata/build

version: ## copy internal/app/cli/version.txt to the chart, the manifests, the Python package, CITATION.cff and the image's name
	go test ./internal/app/cli -count 1 -run '^TestVersionEverywhere$$' -rewrite
	$(MAKE) manifests

manifests: ## render deploy/k8s from the chart in deploy/helm (needs helm, in the PATH or in HELM)
	go test ./deploy/k8s -count 1 -run '^TestRendered$$' -rewrite

man: ## write man pages into man/
	go test ./cmd/shaver -count 1 -run '^TestManPages$$' -man '$(CURDIR)/man'

long: ## run the tests of cmd/shaver, including those that take hours or the network
	SHAVER_LONG=2 go test -timeout 60m -count 1 ./cmd/shaver

chaos: ## run a cluster under random faults 200 times (half an hour)
	go run ./chaos -seed 1 -runs 200 -together 4 -work 1500ms -faults 7 $(CHAOSFLAGS)

chaos-short: ## run a cluster under random faults four times, once for each job, as CI does
	go run ./chaos -seed 52 -runs 4 -together 2 -work 3s $(CHAOSFLAGS)

cluster: ## run deploy/k8s on a Kubernetes cluster on this machine (Linux, root; 15 minutes)
	go run ./deploy/k8s/try -page docs/evidence/cluster.md $(CLUSTERFLAGS)

compose: ## run docker-compose.yml's commands on a Docker Engine, and write what happened into docs/evidence/cluster.md
	go run ./deploy/compose/try -page docs/evidence/cluster.md $(COMPOSEFLAGS)

# Without -fuzzminimizetime, go test shortens each new input for up to a minute and reports 0 execs/s meanwhile.
fuzz: ## run every fuzz test for FUZZTIME (20s)
	@go list ./... | while read -r pkg; do \
	  go test -list '^Fuzz' $$pkg | grep '^Fuzz' | while read -r name; do \
	    echo "$$pkg $$name"; go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x $$pkg || exit 1; \
	  done || exit 1; \
	done

MUTANTS = internal/value internal/jobs internal/prune
mutants: ## change the code in 500 places of each area, and list what no test notices (hours; MUTANTSFLAGS="-n 20" for fewer)
	go run ./mutants -n 500 -log mutants.log $(MUTANTSFLAGS) $(MUTANTS)

bench: ## compare walks with this core's FMA peak and PyTorch (needs python3-torch, libopenblas0-pthread)
	@go run ./bench $(BENCHFLAGS)

bench-auto: ## compare the kernel that --kernel auto chooses with the best one (two minutes)
	go test -run '^$$' -bench '^BenchmarkChoice$$' -benchtime 1x -v ./internal/jobs/forecast

bench-train: ## compare training with PyTorch and with the processor's FMA peak (needs python3-torch)
	go test -run '^$$' -bench Products ./internal/click/train
	@go run ./bench/train $(BENCHFLAGS)

ranges: ## keep the sums of a simulated table of a billion entries in 16 processes, and a path of 400 million in 8 (twenty minutes, 50 GB of disk)
	SHAVER_HUGE=1 go test ./internal/jobs/merger -count 1 -run '^TestHuge' -v -timeout 30m

scale: SHELL = /bin/bash
scale: ## take 3 million rows of Criteo's shape from a raw log to scores in DIR=FOLDER (ten minutes)
	mkdir -p '$(DIR)' && go build -o '$(DIR)/' ./cmd/shaver
	cd '$(DIR)' && time ./shaver dataset synth --shape criteo --rows 3000000 --out log.tsv
	cd '$(DIR)' && time ./shaver dataset import criteo log.tsv --memory 1GiB --out data
	cd '$(DIR)' && time ./shaver train --dataset data --kind deepfm --dim 16 --hidden 400,400,400 --epochs 1 --out model.safetensors
	cd '$(DIR)' && time ./shaver score --model model.safetensors --dataset data --baseline codebook --estimator multilinear --out scores.arrow

SHAPE = kdd
full: ## take ROWS=n rows of KDD's or Criteo's shape (SHAPE=criteo) from a raw log to pruned models in DIR=FOLDER, stage by stage (hours)
	@go run ./bench/full -dir '$(DIR)' -shape '$(SHAPE)' -rows '$(ROWS)' $(FULLFLAGS)

estimators: ## compare the estimators at equal error on FLIGHTS=FOLDER, and draw docs/evidence/estimators.svg (ten minutes)
	@go run ./bench/estimators -flights '$(FLIGHTS)' -picture docs/evidence/estimators.svg $(ESTIMATORSFLAGS)

equalwork: ## compare with shapiq, captum and SAGE on FLIGHTS=FOLDER, with files in DIR=FOLDER, and draw docs/evidence/equalwork.svg (half an hour; PYTHON 3.12 with packages as in docs/evidence/equalwork.md)
	@go run ./bench/equalwork -flights '$(FLIGHTS)' -work '$(DIR)' -python '$(PYTHON)' -picture docs/evidence/equalwork.svg $(EQUALWORKFLAGS)

fields: ## compare orders in which fields are removed from MODEL=FILE, on the dataset in DATASET=FOLDER (a minute)
	@go run ./bench/fields -model '$(MODEL)' -dataset '$(DATASET)'

real: ## compare rankings on the logs with real users and items in REAL=FOLDER, with everything in DIR=FOLDER, and draw docs/evidence/rankings.svg (hours; PYTHON with torch, onnx, polars, scikit-learn)
	mkdir -p '$(DIR)' && go build -o '$(DIR)/' ./cmd/shaver
	@go run ./bench/rankings -work '$(DIR)' -real '$(REAL)' -python '$(PYTHON)' -picture docs/evidence/rankings.svg $(RANKINGSFLAGS)

rankings: ## compare rankings on FLIGHTS=FOLDER and HFLIGHTS=FOLDER, with everything in DIR=FOLDER (half an hour)
	mkdir -p '$(DIR)' && go build -o '$(DIR)/' ./cmd/shaver
	@go run ./bench/rankings -work '$(DIR)' -flights '$(FLIGHTS)' -hflights '$(HFLIGHTS)' $(RANKINGSFLAGS)

claims: ## repeat the paper's questions on synthetic logs, FLIGHTS=FOLDER and HFLIGHTS=FOLDER, with results in DIR=FOLDER (hours)
	mkdir -p '$(DIR)' && go build -o '$(DIR)/' ./cmd/shaver
	@go run ./bench/claims -work '$(DIR)' -flights '$(FLIGHTS)' -hflights '$(HFLIGHTS)' $(CLAIMSFLAGS)

lint: ## run golangci-lint, which must be installed
	golangci-lint run ./...

fmt: ## format the code and tidy go.mod
	gofmt -w .
	go mod tidy

kernels: ## compare the speed of the kernels and walks with the processor's FMA peak
	go test -run '^$$' -bench . ./internal/num/kernel ./internal/click/model

transcripts: ## rewrite the transcripts of job and the page of report; read the diff before you commit it
	go test ./internal/jobs/job -rewrite
	go test ./internal/prune/report -rewrite

golden: ## compute the golden files again (needs Debian's python3-torch)
	/usr/bin/python3 testdata/golden/make.py

wheels: ## build the Python package for every platform into dist/ (needs Python's build and hatchling)
	$(PYTHON) python/wheels.py dist

release: ## build archives, wheels, the image, the chart, SBOM and sums of this version into dist/VERSION (needs what wheels needs)
	@go run ./release -python '$(PYTHON)'

notices: ## write THIRD_PARTY.txt, the licences of what the programs link; read the diff before you commit it
	go test ./release -count 1 -run '^TestNotices$$' -rewrite

module: ## give this module the path MODULE=PATH, such as example.org/team/shaver, in all files
	go run ./release/module '$(MODULE)'

ci: ## run what CI runs
	bash .ci/run

.PHONY: help build test test-all race levels levels-arm64 pipeline-arm64 browser edge generate manifests man long chaos chaos-short cluster compose fuzz bench bench-auto bench-train ranges scale full estimators equalwork real rankings claims fields lint fmt kernels transcripts golden mutants wheels release notices module ci
