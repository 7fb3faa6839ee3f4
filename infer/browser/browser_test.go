package main

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"shaver/infer"
	"shaver/infer/infertest"
	"shaver/internal/base/long"
	"shaver/internal/base/style"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/evaluate"
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
			const facts = document.querySelector("main").innerText, errors = [];
			await score([line]);
			const text = at("one").innerText;
			ids[width] = model.sizes[0];
			for (const f of [() => model.logits(Int32Array.from(ids), dense ? Float32Array.from(dense) : undefined), () => model.logits(ids), () => parse(["1"]), () => shaver.open(new Uint8Array(9))])
				try { errors.push(f() + "") } catch (e) { errors.push(e.message) }
			const rate = measure(), {logits: kept} = model;
			model.close();
			model.close();
			try { errors.push(kept(Int32Array.from(ids)) + "") } catch (e) { errors.push(e.message) }
			found[name] = {logits: [...logits], facts, text, errors, rate, memory: memory.buffer.byteLength};
		}
	} catch (e) { found.failure = {text: e.stack} }
	await fetch("found", {method: "POST", body: JSON.stringify(found)});
})()</script>`

// inline are the styles and scripts that are in a page.
var inline = regexp.MustCompile(`(?s)<(style|script)>(.*?)</`)

// policy returns the strictest policy for a page. It allows the page's own styles and scripts by their digests.
func policy(page string) string {
	allowed := map[string]string{}
	for _, m := range inline.FindAllStringSubmatch(page, -1) {
		digest := sha256.Sum256([]byte(m[2]))
		allowed[m[1]] += " 'sha256-" + base64.StdEncoding.EncodeToString(digest[:]) + "'"
	}
	return "default-src 'none'; style-src" + allowed["style"] + "; script-src 'self' 'wasm-unsafe-eval'" + allowed["script"] + "; connect-src 'self'; img-src data:"
}

// visit serves the page with a script and more files, opens it in a frame of a width in chromium, and returns what the script posts to
// found. If strict, the page has the header of its policy. The test fails if chromium reports an error of the page.
func visit(t testing.TB, wasm, script string, files map[string]http.HandlerFunc, width int, strict bool) (posted []byte, log string) {
	t.Helper()
	chromium := infertest.Program(t, "chromium")
	page, err := os.ReadFile("index.html")
	if err != nil {
		t.Fatal(err)
	}
	answer := make(chan []byte, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { // the window of chromium cannot be narrow
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<link rel="icon" href="data:,"><iframe style="width:%dpx;height:2000px;border:0" src="page"></iframe>`, width)
	})
	mux.HandleFunc("GET /page", func(w http.ResponseWriter, _ *http.Request) {
		driven := strings.Replace(string(page), "</body>", script+"</body>", 1)
		w.Header().Set("Content-Type", "text/html")
		if strict {
			w.Header().Set("Content-Security-Policy", policy(driven))
		}
		_, _ = io.WriteString(w, driven)
	})
	mux.HandleFunc("GET /wasm_exec.js", file(support(t, "wasm_exec.js")))
	mux.HandleFunc("GET /shaver.js", file("shaver.js"))
	mux.HandleFunc("GET /shaver.wasm", file(wasm))
	for name, serve := range files {
		mux.HandleFunc("GET /"+name, serve)
	}
	mux.HandleFunc("POST /found", func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		answer <- body
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
	var said strings.Builder
	c := exec.CommandContext(ctx, chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
		"--no-first-run", "--window-size=1400,2000", "--enable-logging=stderr", "--remote-debugging-port=0", "--user-data-dir="+profile, server.URL)
	c.Stdout, c.Stderr, c.WaitDelay = &said, &said, 10*time.Second
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case posted = <-answer:
	case <-ctx.Done():
	}
	cancel()
	_ = c.Wait()
	for line := range strings.Lines(said.String()) {
		if strings.Contains(line, "CONSOLE") {
			t.Error(line)
		}
	}
	return posted, said.String()
}

// build builds the program for browsers, and returns its path.
func build(t testing.TB) string {
	t.Helper()
	wasm := filepath.Join(t.TempDir(), "shaver.wasm")
	infertest.Go(t, []string{"GOOS=js", "GOARCH=wasm", "CGO_ENABLED=0"}, "build", "-ldflags=-s -w", "-o", wasm, ".")
	return wasm
}

// support returns the path of a file that Go has for WebAssembly.
func support(t testing.TB, name string) string {
	t.Helper()
	return filepath.Join(infertest.Go(t, nil, "env", "GOROOT"), "lib", "wasm", name)
}

// file serves a file.
func file(path string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, path) }
}

// found is what the script finds for a model.
type found struct {
	Logits       []float64
	Facts, Text  string
	Errors       []string
	Rate, Memory float64
}

// In chromium, the page gives the logits of package infer to 1e-6, relative to a logit above 1.
func TestPage(t *testing.T) {
	long.Test(t)
	wasm := build(t)
	const rows = 150
	type rowsOf struct {
		IDs   []int32   `json:"ids"`
		Dense []float32 `json:"dense,omitempty"`
	}
	cases, want := map[string]rowsOf{}, map[string][]float64{}
	models := infertest.Models(t, filepath.Join("..", "..", "testdata"))
	fields := map[string]string{"deepfm": "field 1 (2), field 2 (3)", "autoint": "x[0] (7), x[1] (11)"}
	for name, path := range models {
		ids, dense, logits := infertest.Rows(t, path, rows)
		cases[name], want[name] = rowsOf{ids, dense}, logits
	}
	files := map[string]http.HandlerFunc{"cases.json": func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"rows": rows, "models": cases})
	}}
	for name, path := range models {
		files[name+".safetensors"] = file(path)
	}
	posted, log := visit(t, wasm, script, files, 1280, true)
	var all map[string]found
	if err := json.Unmarshal(posted, &all); err != nil {
		t.Fatalf("the page found %q: %v\n%s", posted, err, log)
	}
	if len(all) != len(models) {
		t.Fatalf("the page found %v\n%s", all, log)
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
		first := strings.ReplaceAll(fmt.Sprintf("%.4f", f.Logits[0]), "-", "−")
		if !strings.Contains(f.Text, first) || !strings.Contains(f.Facts, "MiB") || !strings.Contains(f.Facts, fields[name]) {
			t.Errorf("%s: the page shows\n%s\n%s\nexpected the logit %s and the fields %s", name, f.Facts, f.Text, first, fields[name])
		}
		for i, text := range []string{"row 1 has id", "argument 1: expected a Int32Array", "line 1: expected", "model", "the model is closed"} {
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

// sliding scores rows with labels, moves the slider to 1, 2 and 1, and sends the logits, what the page shows, and errors.
const sliding = `<script>(async () => {
	const found = {};
	try {
		const {lines, ...cases} = await (await fetch("cases.json")).json(), ids = Int32Array.from(cases.ids);
		await ready;
		await open(new Uint8Array(await (await fetch("layers.safetensors")).arrayBuffer()));
		found.whole = [...model.logits(ids)];
		at("rows").value = lines.join("\n");
		at("number").value = 2;
		await at("score").onclick();
		for (const [i, n] of [1, 2, 1].entries()) {
			at("layers").value = n;
			at("layers").dispatchEvent(new Event("input"));
			await new Promise(done => setTimeout(done));
			found[i] = {logits: [...model.logits(ids)], said: at("said").textContent, chosen: document.querySelector("#table .chosen").innerText, change: at("change").textContent, hidden: at("slider").hidden};
		}
		const width = document.documentElement.clientWidth;
		found.wide = [...document.querySelectorAll("body *")].filter(e => !e.closest(".wide") && e.getBoundingClientRect().right > width + 1).map(e => e.tagName + " " + e.id);
		if (document.documentElement.scrollWidth > width) found.wide.push("page");
		found.ids = at("ids").innerText;
		found.facts = at("facts").innerText;
		found.areas = [auc([1, 2, 3, 4], [0, 0, 1, 1]), auc([4, 3, 2, 1], [0, 0, 1, 1]), auc([.1, .4, .35, .8], [0, 0, 1, 1]), auc([1, 1, 2, 1], [0, 1, 1, 0]), auc([1, 2], [1, 1]) ?? -1];
		found.errors = [["1 2"], [lines[0]], [lines[0], "2" + lines[1].slice(1)], [lines[0].replace("label", "weight"), lines[1]]].map(l => { try { return parse(l) + "" } catch (e) { return e.message } });
		try { model.upgrade(file.slice(0, 99)) } catch (e) { found.failed = e.message }
	} catch (e) { found.failure = e.stack }
	await fetch("found", {method: "POST", body: JSON.stringify(found)});
})()</script>`

// In chromium, the slider shows the model of each beginning of a file in layers, and upgrades it. The page has the AUC of each layer, and is
// as wide as a phone and as a desk, with a policy and without.
func TestSlider(t *testing.T) {
	long.Test(t)
	c, err := checkpoint.Read(filepath.Join("..", "..", "testdata", "golden", "deepfm.pth"))
	if err != nil {
		t.Fatal(err)
	}
	a := &c.Architecture
	less, path := make([]bool, a.Parameters()), filepath.Join(t.TempDir(), "layers")
	for i := range less {
		less[i] = i%3 > 0
	}
	layers := []checkpoint.Layer{{Sparsity: .66}, {}}
	if _, err := checkpoint.WriteLayers(path, c, layers, [][]bool{less, make([]bool, len(less))}, a.Zero(), compact.Float32); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path+"1", data[:layers[0].Bytes], 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	ids, _, large := infertest.Rows(t, path, 50)
	_, _, small := infertest.Rows(t, path+"1", 50)
	labels, lines, width := make([]float32, 50), []string{`"label","a","b","c","d","e"`}, len(ids)/50
	for i := range labels {
		if i%3 == 0 || i%7 == 0 {
			labels[i] = 1
		}
		line := fmt.Sprint(labels[i])
		for _, id := range ids[i*width:][:width] {
			line += fmt.Sprintf(",%d", id)
		}
		lines = append(lines, line)
	}
	// effects returns those of the fields in row 2 with the model in a file, then the base and the logit. Of 50 rows, 32 are the background.
	effects := func(path string) []float64 {
		m, err := infer.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		mix := func(n uint32) uint32 {
			for range 2 {
				n = (n ^ n>>16) * 0x45d9f3b
			}
			return n ^ n>>16
		}
		found, logits := make([]float64, width+2), make([]float64, width+1)
		for k := range 32 {
			order := []int{0, 1, 2, 3, 4}
			for j := width - 1; j > 0; j-- {
				other := int(mix(uint32(k*width+j)) % uint32(j+1))
				order[j], order[other] = order[other], order[j]
			}
			for range 2 {
				states := slices.Repeat(ids[k*50/32*width:][:width], width+1)
				for at, field := range order {
					for later := at + 1; later <= width; later++ {
						states[later*width+field] = ids[width+field]
					}
				}
				if err := m.Logits(logits, states, nil); err != nil {
					t.Fatal(err)
				}
				for at, field := range order {
					found[field] += (logits[at+1] - logits[at]) / 64
				}
				found[width] += logits[0] / 64
				slices.Reverse(order)
			}
		}
		found[width+1] = logits[width]
		return found
	}
	wasm, files := build(t), map[string]http.HandlerFunc{"layers.safetensors": file(path), "cases.json": func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"ids": ids, "lines": lines})
	}}
	for _, pixels := range []int{390, 1280} {
		posted, log := visit(t, wasm, sliding, files, pixels, pixels == 390)
		type shown struct {
			Logits               []float64
			Said, Chosen, Change string
			Hidden               bool
		}
		var found struct {
			Whole                       []float64
			First                       shown `json:"0"`
			Second                      shown `json:"1"`
			Third                       shown `json:"2"`
			Wide, Errors                []string
			IDs, Facts, Failed, Failure string
			Areas                       []float64
		}
		if err := json.Unmarshal(posted, &found); err != nil || found.Failure != "" || !strings.Contains(found.Failed, "only 91 follow") {
			t.Fatalf("the page found %q: %v\n%s", posted, err, log)
		}
		near := func(x, y float64) bool { return math.Abs(x-y) <= 1e-6*max(1, math.Abs(y)) }
		odds := func(logit float64) string { return fmt.Sprintf("%.4f", 1/(1+math.Exp(-logit))) }
		for i, s := range []shown{found.First, found.Second, found.Third} {
			want, said, layer := small, "opened in", 1
			if i == 1 {
				want, said, layer = large, "upgraded in", 2
			}
			change := fmt.Sprintf("Row 2, with label %g: probability %s with layer 1, %s with %d of 2", labels[1], odds(small[1]), odds(want[1]), layer)
			area := fmt.Sprintf("%.4f", evaluate.AUC(want, labels))
			if !slices.EqualFunc(s.Logits, want, near) || s.Hidden || !strings.HasPrefix(s.Said, fmt.Sprintf("%d of 2 layers: ", layer)) || !strings.Contains(s.Said, said) ||
				!strings.HasPrefix(s.Chosen, fmt.Sprint(layer)) || !strings.Contains(s.Chosen, area) || s.Change != change {
				t.Errorf("%d px, step %d: the page shows\n%+v\nexpected the logits %v, the AUC %s and\n%s", pixels, i, s, want[:3], area, change)
			}
		}
		if !slices.EqualFunc(found.Whole, large, near) || slices.Equal(small, large) {
			t.Errorf("the whole file has the logits %v, expected %v", found.Whole, large)
		}
		if want := []float64{1, 0, .75, .875 - .125, -1}; !slices.Equal(found.Areas, want) {
			t.Errorf("AUC %v, expected %v", found.Areas, want)
		}
		for i, text := range []string{"line 1: expected 5 ids", "expected a row after", "line 2: expected a label of 0 or 1, 5 ids and 0 dense", "line 2: expected 5 ids"} {
			if !strings.Contains(found.Errors[i], text) {
				t.Errorf("error %q, expected %q", found.Errors[i], text)
			}
		}
		if len(found.Wide) > 0 || !strings.Contains(found.Facts, "50, ") {
			t.Errorf("%d px: the page shows\n%s\ntoo wide: %q", pixels, found.Facts, found.Wide)
		}
		// The table has the effects with both models, and the base and all effects sum to the logit of the row.
		table := strings.Split(found.IDs, "\n")[1:]
		if len(table) != width+2 {
			t.Fatalf("%d px: the page shows\n%s\nexpected %d fields, the base and the logit", pixels, found.IDs, width)
		}
		for k, file := range []string{path, path + "1"} {
			sum, want := 0., effects(file)
			for line, text := range table {
				cells := strings.Split(text, "\t")
				shown, err := strconv.ParseFloat(strings.ReplaceAll(cells[2+k], "−", "-"), 64)
				if err != nil || math.Abs(shown-want[line]) > 1e-4 {
					t.Errorf("%d px: line %q, expected %.4f in column %d", pixels, text, want[line], 2+k)
				}
				if line <= width {
					sum += shown
				} else if of := [][]float64{large, small}[k][1]; math.Abs(sum-shown) > 4e-4 || math.Abs(shown-of) > 1e-4 {
					t.Errorf("%d px: the base and the effects sum to %.4f, and the page has the logit %.4f, expected %.4f", pixels, sum, shown, of)
				}
			}
		}
	}
}

var rewrite = flag.Bool("rewrite", false, "copy the style of all pages into index.html")

// The page has the style of all pages.
func TestStyle(t *testing.T) {
	page, err := os.ReadFile("index.html")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(page), "<style>\n")
	_, after, found := strings.Cut(rest, "</style>")
	want := before + "<style>\n" + style.CSS + "</style>" + after
	switch {
	case !found:
		t.Fatal("index.html has no style")
	case want != string(page) && *rewrite:
		if err := os.WriteFile("index.html", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	case want != string(page):
		t.Error("the first style of index.html is not that of package style; copy it with: go test ./infer/browser -run TestStyle -rewrite")
	}
}

// counter counts the bytes that are written.
type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

// edge is JavaScript that measures a model in a Uint8Array: milliseconds to open it, the median of those of a batch of 64 rows, and
// the bytes of WebAssembly's memory, which never shrinks.
const edge = `function edge(bytes, memory) {
	const start = performance.now(), model = shaver.open(bytes), opened = performance.now() - start, width = model.sizes.length, times = [];
	for (let i = 0; i < 60; i++) {
		const ids = Int32Array.from({length: 64 * width}, (_, k) => Math.random() * model.sizes[k % width]), from = performance.now();
		model.logits(ids);
		times.push(performance.now() - from);
	}
	return {open: opened, batch: times.sort((a, b) => a - b)[30], memory: memory.buffer.byteLength};
}`

// The programs that measure with edge, in a page and in node.
const (
	edgePage = `<script>` + edge + `
(async () => {
	await ready;
	const found = edge(new Uint8Array(await (await fetch("m.safetensors")).arrayBuffer()), memory);
	await fetch("found", {method: "POST", body: JSON.stringify(found)});
})()</script>`
	edgeNode = edge + `
const fs = require("fs"), [exec, throwing, wasm, path] = process.argv.slice(2);
globalThis.fs = fs;
globalThis.path = require("path");
require(exec);
require(throwing);
const go = new Go();
WebAssembly.instantiate(fs.readFileSync(wasm), go.importObject).then(({instance}) => {
	go.run(instance);
	console.log(JSON.stringify(edge(new Uint8Array(fs.readFileSync(path)), instance.exports.mem)));
	process.exit(0);
});`
)

// BenchmarkEdge measures the paper's edge table as WebAssembly, in node and in chromium: how large compact files of a model of
// KDD's size are, how much memory they take there, and how fast one thread serves batches of 64 rows. It prints a table.
func BenchmarkEdge(b *testing.B) {
	node, wasm, glue := infertest.Program(b, "node"), build(b), support(b, "wasm_exec.js")
	a := infertest.KDD()
	c := infertest.Random(a)
	throwing, err := filepath.Abs("shaver.js")
	if err != nil {
		b.Fatal(err)
	}
	script, path := filepath.Join(b.TempDir(), "edge.cjs"), filepath.Join(b.TempDir(), "m.safetensors")
	if err := os.WriteFile(script, []byte(edgeNode), 0o600); err != nil {
		b.Fatal(err)
	}
	fmt.Println("| sparsity | file, MiB | node: memory, MiB | open, ms | batch, ms | Chromium: memory, MiB | open, ms | batch, ms |")
	for _, sparsity := range []float64{.8, .9, .95, .99} {
		r := rand.New(rand.NewPCG(1, 2))
		dropped := make([]bool, a.Parameters())
		for i := range dropped {
			dropped[i] = r.Float64() < sparsity
		}
		size, err := checkpoint.WriteCompact(path, c, dropped, a.Zero(), compact.Float32)
		if err != nil {
			b.Fatal(err)
		}
		inNode, err := exec.CommandContext(b.Context(), node, script, glue, throwing, wasm, path).Output()
		if err != nil {
			b.Fatal(err)
		}
		inPage, log := visit(b, wasm, edgePage, map[string]http.HandlerFunc{"m.safetensors": file(path)}, 1280, false)
		line := fmt.Sprintf("| %g | %.1f |", sparsity, float64(size)/(1<<20))
		for _, text := range [][]byte{inNode, inPage} {
			var found struct{ Open, Batch, Memory float64 }
			if err := json.Unmarshal(text, &found); err != nil {
				b.Fatalf("found %q: %v\n%s", text, err, log)
			}
			line += fmt.Sprintf(" %.0f | %.0f | %.1f |", found.Memory/(1<<20), found.Open, found.Batch)
		}
		fmt.Println(line)
	}
}
