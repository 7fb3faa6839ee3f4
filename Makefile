.DEFAULT_GOAL := help
FUZZTIME ?= 20s
NUMERIC = ./internal/kernel ./internal/model ./internal/shapley ./internal/evaluate ./internal/prune

help: ## show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

build: ## static binaries into bin/
	CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/...

test: ## the tests
	go test ./...

race: ## the tests under the race detector
	CGO_ENABLED=1 go test -race ./...

levels: ## what is computed by kernels, at each level that this machine has
	go test $(NUMERIC)
	GODEBUG=cpu.amxtile=off go test $(NUMERIC)
	GODEBUG=cpu.avx512f=off go test $(NUMERIC)
	GODEBUG=cpu.avx2=off go test $(NUMERIC)
	go test -tags purego $(NUMERIC)

generate: ## the kernels' assembly, and docs/cli
	go generate ./internal/kernel
	go test ./cmd/shaver -count 1 -run '^TestReference$$' -rewrite

man: ## man pages into man/
	go test ./cmd/shaver -count 1 -run '^TestManPages$$' -man '$(CURDIR)/man'

long: ## the tests that take minutes too
	SHAVER_LONG=1 go test -timeout 60m -count 1 ./cmd/shaver

chaos: ## 100 runs of a cluster whose parts are killed, stopped, cut off, filled up (an hour)
	go run ./chaos -seed 1 -runs 100 $(CHAOSFLAGS)

chaos-short: ## four of them, as CI does
	go run ./chaos -seed 1 -runs 4 $(CHAOSFLAGS)

fuzz: ## every fuzz test for FUZZTIME (20s)
	@go list ./... | while read -r pkg; do \
	  go test -list '^Fuzz' $$pkg | grep '^Fuzz' | while read -r name; do \
	    echo "$$pkg $$name"; go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x $$pkg || exit 1; \
	  done || exit 1; \
	done

bench: ## walks beside this core's FMA peak and PyTorch (wants python3-torch, libopenblas0-pthread)
	@go run ./bench $(BENCHFLAGS)

estimators: ## the estimators at equal error on FLIGHTS=FOLDER (some ten minutes), and docs/estimators.svg
	@go run ./bench/estimators -flights '$(FLIGHTS)' -picture docs/estimators.svg $(ESTIMATORSFLAGS)

lint: ## golangci-lint, which must be installed
	golangci-lint run ./...

fmt: ## format, tidy
	gofmt -w .
	go mod tidy

kernels: ## how fast the kernels and walks are, beside the processor's FMA peak
	go test -run '^$$' -bench . ./internal/kernel ./internal/model

transcripts: ## write the job's transcripts and the report's page anew; read the difference
	go test ./internal/job -rewrite
	go test ./internal/report -rewrite

golden: ## make the goldens anew (needs Debian's python3-torch)
	/usr/bin/python3 testdata/golden/make.py

ci: ## what CI runs
	bash .ci/run

.PHONY: help build test race levels generate man long chaos chaos-short fuzz bench estimators lint fmt kernels transcripts golden ci
