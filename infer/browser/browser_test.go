package main

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"shaver/infer/infertest"
)

// script drives the page as its user does. It sends what it finds to the test.
const script = `<script>(async () => {
	const found = {};
	try {
		const {rows, models} = await (await fetch("cases.json")).json();
		await ready;
		for (const [name, {ids, dense}] of Object.entries(models)) {
			await open(new Uint8Array(await (await fetch(name + ".safetensors")).arrayBuffer()));
			const logits = model.logits(Int32Array.from(ids), dense ? Float32Array.from(dense) : undefined);
			const width = ids.length / rows, inputs = (dense || []).length / rows, line = [...ids.slice(0, width), ...(dense || []).slice(0, inputs)].join(" ");
			const facts = at("facts").innerText, text = score([line]), errors = [];
			ids[width] = model.sizes[0];
			for (const f of [() => model.logits(Int32Array.from(ids), dense ? Float32Array.from(dense) : undefined), () => model.logits(ids), () => score(["1"]), () => shaver.open(new Uint8Array(9))])
				try { errors.push(f() + "") } catch (e) { errors.push(e.message) }
			found[name] = {logits: [...logits], facts, text, errors, rate: measure(), memory: memory.buffer.byteLength};
		}
	} catch (e) { found.failure = {text: e.stack} }
	await fetch("found", {method: "POST", body: JSON.stringify(found)});
})()</script>`

// found is what the script finds for a model.
type found struct {
	Logits       []float64
	Facts, Text  string
	Errors       []string
	Rate, Memory float64
}

// In chromium, the page gives the logits of package infer to 1e-6, relative to a logit above 1.
func TestPage(t *testing.T) {
	chromium := infertest.Program(t, "chromium")
	dir := t.TempDir()
	wasm := filepath.Join(dir, "shaver.wasm")
	infertest.Go(t, []string{"GOOS=js", "GOARCH=wasm", "CGO_ENABLED=0"}, "build", "-ldflags=-s -w", "-o", wasm, ".")
	root := infertest.Go(t, nil, "env", "GOROOT")
	const rows = 150
	type rowsOf struct {
		IDs   []int32   `json:"ids"`
		Dense []float32 `json:"dense,omitempty"`
	}
	cases, want := map[string]rowsOf{}, map[string][]float64{}
	models := infertest.Models(t, filepath.Join("..", "..", "testdata"))
	for name, path := range models {
		ids, dense, logits := infertest.Rows(t, path, rows)
		cases[name], want[name] = rowsOf{ids, dense}, logits
	}
	page, err := os.ReadFile("index.html")
	if err != nil {
		t.Fatal(err)
	}
	answer := make(chan map[string]found, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(strings.Replace(string(page), "</html>", script, 1)))
	})
	mux.HandleFunc("GET /cases.json", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"rows": rows, "models": cases})
	})
	mux.HandleFunc("GET /wasm_exec.js", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, filepath.Join(root, "lib", "wasm", "wasm_exec.js"))
	})
	mux.HandleFunc("GET /shaver.wasm", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, wasm) })
	mux.HandleFunc("GET /{model}", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, models[strings.TrimSuffix(r.PathValue("model"), ".safetensors")])
	})
	mux.HandleFunc("POST /found", func(_ http.ResponseWriter, r *http.Request) {
		var all map[string]found
		if err := json.NewDecoder(r.Body).Decode(&all); err != nil {
			t.Error(err)
		}
		answer <- all
	})
	server := httptest.NewServer(mux)
	defer server.Close()

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	profile, err := os.MkdirTemp("", "shaver-browser-*")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(profile) // helper processes may still write, so this may leave files in the temporary folder
	var log strings.Builder
	c := exec.CommandContext(ctx, chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
		"--no-first-run", "--enable-logging=stderr", "--remote-debugging-port=0", "--user-data-dir="+profile, server.URL)
	c.Stdout, c.Stderr, c.WaitDelay = &log, &log, 10*time.Second
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var all map[string]found
	select {
	case all = <-answer:
	case <-ctx.Done():
	}
	cancel()
	_ = c.Wait()
	if len(all) != len(models) {
		t.Fatalf("the page found %v\n%s", all, &log)
	}
	for name, f := range all {
		if len(f.Logits) != rows || slices.Min(f.Logits) == slices.Max(f.Logits) {
			t.Fatalf("%s: the page has the logits %v", name, f.Logits)
		}
		worst := 0.
		for i, logit := range f.Logits {
			worst = max(worst, math.Abs(logit-want[name][i])/max(1, math.Abs(logit)))
		}
		if worst > 1e-6 {
			t.Errorf("%s: a logit of the page differs by %g", name, worst)
		}
		first := fmt.Sprintf("%.6f", f.Logits[0])
		if !strings.Contains(f.Text, first) || !strings.Contains(f.Facts, "MiB") {
			t.Errorf("%s: the page shows\n%s\n%s\nexpected the logit %s", name, f.Facts, f.Text, first)
		}
		for i, text := range []string{"row 1 has id", "argument 1: expected a Int32Array", "line 1: expected", "model"} {
			if !strings.Contains(f.Errors[i], text) {
				t.Errorf("%s: error %q, expected %q", name, f.Errors[i], text)
			}
		}
		t.Logf("%s: logits differ by at most %.2g; %.0f rows per second; %.1f MiB of memory", name, worst, f.Rate, f.Memory/(1<<20))
	}
	data, err := os.Open(wasm)
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	var size counter
	packed := gzip.NewWriter(&size)
	whole, err := io.Copy(packed, data)
	if err == nil {
		err = packed.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("shaver.wasm has %.1f MiB, and %.1f MiB under gzip", float64(whole)/(1<<20), float64(size)/(1<<20))
}

// counter counts the bytes that are written.
type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }
