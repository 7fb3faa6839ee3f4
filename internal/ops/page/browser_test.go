package page

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// seen is what the script look finds in a page.
type seen struct {
	Width, Scroll int      // widths of the window and of the page's content
	Runaway       []string // elements that extend beyond the window and cannot be scrolled
	Cells, Shards int      // cells of the strip that can be seen, and the shards that they stand for
	Link          string   // what the page says about its connection
	Parts         int      // sections that can be seen
}

// look measures the pages in all frames when those with scripts are live, and sends what it finds.
const look = `<script>
addEventListener("load", async () => {
  const frames = [...document.querySelectorAll("iframe")];
  const text = f => f.contentDocument.getElementById("link").textContent;
  for (let i = 0; i < 200 && frames.some(f => !f.sandbox.length && text(f) !== "live"); i++) await new Promise(done => setTimeout(done, 20));
  const found = frames.map(f => {
    const page = f.contentDocument, root = page.documentElement, width = root.clientWidth;
    const shown = e => { const box = e.getBoundingClientRect(); return box.width > 4 && box.height > 4 && box.left >= 0 && box.right <= width + 1; };
    const cells = [...page.querySelectorAll(".strip i")].filter(shown);
    return {
      Width: width, Scroll: root.scrollWidth, Link: text(f), Cells: cells.length,
      Shards: cells.reduce((sum, c) => sum + Number((c.title.match(/^([0-9]+) shards/) || [0, 1])[1]), 0),
      Runaway: [...page.querySelectorAll("body *")].filter(e => !e.closest(".wide") && e.getBoundingClientRect().right > width + 1).map(e => e.tagName + " " + e.textContent.slice(0, 60)),
      Parts: [...page.querySelectorAll("main > section")].filter(s => s.getBoundingClientRect().height > 20).length,
    };
  });
  await fetch("found", {method: "POST", body: JSON.stringify(found)});
});
</script>`

// In chromium the page of 10,000 shards is as wide as a phone and as a desk, shows all shards, becomes live without
// an error of its script, and can be read without scripts.
func TestBrowser(t *testing.T) {
	t.Parallel()
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("chromium is required on CI: %v", err)
		}
		t.Skip(err)
	}
	s := snapshot(t)
	j := &s.Jobs[0]
	long := strings.Repeat("a-long-name-without-any-space", 8)
	j.Name, j.Out, j.Progress.Aside[0].Reason, j.Progress.Retries[0].Why, j.Progress.Lost[0].Worker, j.Workers[0].Name = long, "/data/"+long, long, long, long, long
	pages := NewHandler(&fixed{now: s}, nil)
	defer pages.Close()
	var frames strings.Builder
	ids := []string{j.ID, ""} // each has two pages that are live, and chromium opens at most six connections
	for _, id := range ids {
		for _, width := range []int{390, 1280} {
			for _, sandbox := range []string{"", `sandbox="allow-same-origin"`} { // the second one allows no scripts
				fmt.Fprintf(&frames, `<iframe style="width:%dpx;height:3000px;border:0" %s src="/%s"></iframe>`, width, sandbox, strings.TrimSuffix("job/"+id, "job/"))
			}
		}
	}
	answer := make(chan []byte, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /frames", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, `<!DOCTYPE html><html><head><link rel="icon" href="data:,"></head><body>`+frames.String()+look+"</body></html>")
	})
	mux.HandleFunc("POST /found", func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		answer <- body
	})
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) { pages.ServeHTTP(framed{w}, r) })
	server := httptest.NewServer(mux)
	defer server.Close()
	defer server.CloseClientConnections() // the events have no end
	profile, err := os.MkdirTemp("", "shaver-browser-*")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(profile) // helper processes may still write, so this may leave files in the temporary folder
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var log strings.Builder
	c := exec.CommandContext(ctx, chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
		"--no-first-run", "--hide-scrollbars", "--enable-logging=stderr", "--remote-debugging-port=0", "--user-data-dir="+profile, "--window-size=1400,3000", server.URL+"/frames")
	c.Stdout, c.Stderr, c.WaitDelay = io.Discard, &log, 10*time.Second
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var posted []byte
	select {
	case posted = <-answer:
	case <-ctx.Done():
	}
	cancel()
	_ = c.Wait()
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "CONSOLE") && !strings.Contains(line, "sandboxed") /* the pages without scripts */ {
			t.Error(line)
		}
	}
	var found []seen
	if err := json.Unmarshal(posted, &found); err != nil || len(found) != 4*len(ids) {
		t.Fatalf("%d pages, expected %d (%v)", len(found), 4*len(ids), err)
	}
	for i, f := range found {
		width, scripts := []int{390, 1280}[i/2%2], i%2 == 0
		what := fmt.Sprintf("page of %.8q, %d px, scripts: %v", ids[i/4], width, scripts)
		if f.Width != width || f.Scroll > width || len(f.Runaway) > 0 {
			t.Errorf("%s: %d px wide, its content %d px; too wide: %q", what, f.Width, f.Scroll, f.Runaway)
		}
		if ids[i/4] == j.ID && (f.Cells != 400 || f.Shards != 10_000) {
			t.Errorf("%s: the strip shows %d cells with %d shards, expected 400 with 10,000", what, f.Cells, f.Shards)
		}
		if want := map[bool]string{true: "live", false: "This page loads again every 5 seconds."}[scripts]; f.Link != want {
			t.Errorf("%s: the page says %q, expected %q", what, f.Link, want)
		}
		if f.Parts < 2 {
			t.Errorf("%s: %d sections", what, f.Parts)
		}
	}
}

// framed is a response whose page another page of the test may show in a frame, because the window of chromium
// cannot be narrow.
type framed struct{ http.ResponseWriter }

func (f framed) WriteHeader(code int) {
	f.open()
	f.ResponseWriter.WriteHeader(code)
}

func (f framed) Write(p []byte) (int, error) {
	f.open()
	return f.ResponseWriter.Write(p)
}

// Unwrap makes deadlines and flushes reach the connection.
func (f framed) Unwrap() http.ResponseWriter { return f.ResponseWriter }

func (f framed) open() {
	h := f.Header()
	h.Del("X-Frame-Options")
	h.Set("Content-Security-Policy", strings.Replace(h.Get("Content-Security-Policy"), "frame-ancestors 'none'", "frame-ancestors 'self'", 1))
}
