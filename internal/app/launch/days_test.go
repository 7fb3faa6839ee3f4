package launch

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap/zaptest"

	"shaver/internal/base/long"
	"shaver/internal/data/dataset"
	"shaver/internal/data/ingest"
	"shaver/internal/jobs/bus/embedded"
	"shaver/internal/jobs/job"
)

// A job over a window of days has the same scores for all sizes of shards, in place and over
// the wire, in one round and in several. They differ from those of other windows.
func TestRunDays(t *testing.T) {
	long.Test(t)
	plain, _ := tiny(t)
	dims := plain.Dataset.FieldDims()
	store := t.TempDir()
	var dirs []string
	for day := range 3 {
		sizes := slices.Clone(dims)
		if day == 0 {
			sizes[0]-- // the field has grown since
		}
		text := "label,a,b\n"
		for i := range 50 + 7*day {
			text += fmt.Sprintf("%d,%d,%d\n", (i+day)%3%2, (i*5+day)%sizes[0], i*i%sizes[1])
		}
		file, folder := filepath.Join(t.TempDir(), "rows.csv"), filepath.Join(store, fmt.Sprint("day", day))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ingest.ImportEncoded(t.Context(), ingest.EncodedConfig{Train: []string{file}, Split: "2:1:0", Seed: uint64(day), Sizes: sizes, Out: folder}); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, folder)
	}
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	seen := map[string]bool{}
	windows := [][]string{dirs[:2], dirs}
	if !long.All() {
		windows = windows[1:]
	}
	for _, window := range windows {
		d, err := dataset.OpenDays(window)
		if err != nil {
			t.Fatal(err)
		}
		plain.Dataset, plain.Splits, plain.RowsPerShard = d, []string{dataset.Train, dataset.Val}, 13
		for _, until := range []*job.Until{nil, {Rule: job.Overlap, Bound: .5, Sparsity: .5}} {
			plain.Until = until
			plain.Out = filepath.Join(t.TempDir(), "s.arrow")
			report, want := run(t, &plain)
			if until == nil && report.Rows != d.Rows(dataset.Train)+d.Rows(dataset.Val) {
				t.Errorf("%d rows", report.Rows)
			}
			if seen[string(want)] {
				t.Error("two windows have the same scores")
			}
			seen[string(want)] = true
			for name, change := range map[string]func(*Job){
				"small shards": func(j *Job) { j.RowsPerShard = 3 },
				"one shard":    func(j *Job) { j.RowsPerShard = 1000 },
				"in place":     func(j *Job) { j.Store, j.Workers = "dir:"+store, 2 },
				"a server":     func(j *Job) { j.NATS, j.Workers = server.URL(), 2 },
				"both":         func(j *Job) { j.NATS, j.Store, j.RowsPerShard, j.Workers = server.URL(), "dir:"+store, 5, 1 },
			} {
				j := plain
				j.Out, j.Log = filepath.Join(t.TempDir(), "s.arrow"), zaptest.NewLogger(t)
				change(&j)
				if _, got := run(t, &j); !bytes.Equal(got, want) {
					t.Errorf("%d days, %s, until %v: the scores have different bytes", len(window), name, until)
				}
			}
		}
	}
	plain.Until, plain.Store, plain.Out = nil, "dir:"+dirs[0], filepath.Join(t.TempDir(), "s.arrow")
	if _, err := plain.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "--store must contain --dataset or a copy: store "+dirs[0]+": no dataset") {
		t.Errorf("a store without all days: %v", err)
	}
}
