package main

import (
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/app/cli"
	"shaver/internal/base/long"
)

// readPage returns the sections of the page at a URL, or its events up to their end.
func readPage(t *testing.T, url string) string {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, answer.Status, err)
	}
	if _, main, ok := strings.Cut(string(body), "<main>"); ok {
		main, _, _ = strings.Cut(main, "</main>")
		return main
	}
	return string(body)
}

// A local job has a page with --page, and its health and metrics are on the same port. Who looks sees the last
// figures before the process ends.
func TestScorePage(t *testing.T) {
	long.Test(t)
	t.Parallel()
	_, flags := plantedJob(t, 1500)
	out := filepath.Join(t.TempDir(), "mine.arrow")
	p := start(t, nil, "shaver", slices.Concat([]string{"score", "--out", out, "--page", ":0", "--log", "json", "--estimator", "permutation", "--passes", "80", "--rows-per-shard", "240"}, flags)...)
	url := p.await("page", 1).URL
	if !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Fatalf("the page is at %q", url)
	}
	if code, text := fetch(t, url+"healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d %s", code, text)
	}
	if code, text := fetch(t, url+"metrics"); code != http.StatusOK || !strings.Contains(text, "shaver_rows_total ") {
		t.Errorf("/metrics: %d %s", code, text)
	}
	events := readPage(t, url+"events")
	p.wantExit(cli.ExitDone)
	for _, want := range []string{"mine.arrow", ">finished.</strong> All is merged, and the scores are at " + out, "local-1", "6 of 6 shards are computed", "event: end"} {
		if !strings.Contains(events, want) {
			t.Errorf("the events lack %q:\n%s", want, events)
		}
	}
}
