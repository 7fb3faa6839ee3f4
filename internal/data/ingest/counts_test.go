package ingest

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/data/dataset"
	"shaver/internal/data/lake"
)

// Each setting that determines the counts changes the identity of an import, and no two
// configurations have the same identity.
func TestIdentityOfCounts(t *testing.T) {
	identity := func(change func(f *Format, c *RawConfig, names []string) []string) string {
		f, err := Criteo(LnSquared)
		if err != nil {
			t.Fatal(err)
		}
		config := RawConfig{Split: "8:1:1", Seed: 1, Counted: CountTrain, OnBadRow: Fail}
		names := change(&f, &config, slices.Clone(f.columns))
		config.Format = f
		l, err := f.layout(names)
		if err != nil {
			t.Fatal(err)
		}
		return (&importer{scans: &scans{bad: badRows{policy: config.OnBadRow}}, config: config, layout: l}).identity()
	}
	same := func(_ *Format, _ *RawConfig, names []string) []string { return names }
	seen := map[string]int{identity(same): -1}
	for k, change := range []func(f *Format, c *RawConfig, names []string) []string{
		func(f *Format, _ *RawConfig, names []string) []string { *f, _ = Criteo(Log2); return names },
		func(f *Format, _ *RawConfig, names []string) []string { f.From = 1; return names },
		func(f *Format, _ *RawConfig, names []string) []string { f.Positive = "Y"; return names },
		func(f *Format, _ *RawConfig, names []string) []string { f.Numbers = true; return names },
		func(f *Format, _ *RawConfig, names []string) []string {
			f.Columns, f.integer = []Column{{Name: "C1"}}, 0
			return names
		},
		func(f *Format, _ *RawConfig, names []string) []string {
			f.Columns, f.integer, f.Weight = []Column{{Name: "C1"}}, 0, "I1"
			return names
		},
		func(f *Format, _ *RawConfig, names []string) []string {
			f.Columns, f.integer, f.Others = []Column{{Name: "C1"}}, 0, []string{"I1"}
			return names
		},
		func(f *Format, _ *RawConfig, names []string) []string { f.comma = true; return names },
		func(f *Format, _ *RawConfig, names []string) []string { f.tables = true; return names },
		func(f *Format, _ *RawConfig, names []string) []string { f.integer = 12; return names },
		func(f *Format, _ *RawConfig, names []string) []string { f.drop = "C1"; return names },
		func(f *Format, _ *RawConfig, names []string) []string { f.Label = "I1"; names[0] = "x"; return names },
		func(f *Format, _ *RawConfig, names []string) []string { names[5] = "x"; return names },
		func(_ *Format, _ *RawConfig, names []string) []string { return append(names, "x", "y") },
		func(_ *Format, _ *RawConfig, names []string) []string { return append(names, `x" "y`) },
		func(_ *Format, _ *RawConfig, names []string) []string { return append(names, "x\", \"y") },
		func(f *Format, _ *RawConfig, names []string) []string {
			f.Dense.Columns = denseColumns("I1:none")
			return names
		},
		func(f *Format, _ *RawConfig, names []string) []string {
			f.Dense.Columns = denseColumns("I1:log1p")
			return names
		},
		func(f *Format, _ *RawConfig, names []string) []string {
			f.Dense.Columns = denseColumns("I1:zscore")
			return names
		},
		func(f *Format, _ *RawConfig, names []string) []string {
			f.Dense.Columns = denseColumns("I2:none")
			return names
		},
		func(f *Format, _ *RawConfig, names []string) []string {
			f.Dense = Dense{denseColumns("I1:none"), "0"}
			return names
		},
		func(f *Format, _ *RawConfig, names []string) []string {
			f.Dense = Dense{denseColumns("I1:none"), MissingMean}
			return names
		},
		func(_ *Format, c *RawConfig, names []string) []string { c.Split = "8:1:2"; return names },
		func(_ *Format, c *RawConfig, names []string) []string { c.Seed = 2; return names },
		func(_ *Format, c *RawConfig, names []string) []string { c.Counted = CountAll; return names },
		func(_ *Format, c *RawConfig, names []string) []string { c.OnBadRow = Skip; return names },
	} {
		id := identity(change)
		if before, ok := seen[id]; ok {
			t.Errorf("changes %d and %d give the same identity", before, k)
		}
		seen[id] = k
		if id != identity(change) {
			t.Errorf("change %d gives two identities", k)
		}
	}
}

// If two imports to one folder run at the same time, the second is refused and does not
// affect the counts of the first.
func TestImportIsAlone(t *testing.T) {
	s := shapes(t, 500, "kdd")[0]
	stream, in := io.Pipe()
	out := filepath.Join(t.TempDir(), "x")
	first := make(chan error, 1)
	go func() {
		_, err := ImportRaw(t.Context(), RawConfig{Format: s.format, Files: []string{Stdin}, Stdin: stream, Out: out})
		stream.CloseWithError(err)
		first <- err
	}()
	if _, err := io.WriteString(in, s.lines[0]); err != nil { // returns once the first import reads
		t.Fatal(err)
	}
	config := RawConfig{Format: s.format, Files: s.files(t, 1, plain), Out: out}
	_, err := ImportRaw(t.Context(), config)
	if err == nil || fault.IsUsage(err) || !strings.Contains(err.Error(), "another import to "+out+" is running") {
		t.Errorf("a second import at the same time: %v", err)
	}
	if _, err := io.WriteString(in, strings.Join(s.lines[1:], "")); err != nil {
		t.Fatal(err)
	}
	in.Close()
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(filepath.Dir(out)); err != nil || len(entries) != 1 {
		t.Errorf("files next to the dataset: %v, %v", entries, err)
	}
	config.Out = filepath.Join(t.TempDir(), "y")
	if _, err := ImportRaw(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if contents(t, config.Out) != contents(t, out) {
		t.Error("the first import made a different dataset than an import that runs alone")
	}
}

// An import that ended early resumes after the files that were counted completely.
func TestImportGoesOn(t *testing.T) {
	s := shapes(t, 3000, "criteo")[0]
	files := s.files(t, 5, plain)
	whole, out := filepath.Join(t.TempDir(), "x"), filepath.Join(t.TempDir(), "x")
	config := RawConfig{Format: s.format, Files: files, MinCount: 5, KeepEvery: 1, Out: whole}
	first, err := ImportRaw(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	if KeptCounts(whole) != "" {
		t.Error("the counts are kept after a complete import")
	}
	size := func(files []string) (sum int64) {
		for _, path := range files {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			sum += info.Size()
		}
		return sum
	}
	config.Out = out
	stopAt := func(bytes int64) (first int64) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		first = -1
		config.Progress = func(_, read, _ int64) {
			if first < 0 {
				first = read
			}
			if read >= bytes {
				cancel()
			}
		}
		if _, err := ImportRaw(ctx, config); !errors.Is(err, context.Canceled) {
			t.Fatalf("cancelled: %v", err)
		}
		return first
	}
	stopAt(size(files[:3]) + 1) // in the fourth file
	if KeptCounts(out) == "" {
		t.Fatal("the counts are not kept")
	}
	if first := stopAt(size(files) + 1); first <= size(files[:3]) { // in the second scan
		t.Errorf("the second run started at byte %d", first)
	}
	config.Progress = nil
	third, err := ImportRaw(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	for k, want := range [][2]int64{{size(files), size(files)}, {0, size(files)}} {
		p := []*Summary{first, third}[k].Scans
		if len(p) != 2 || p[0].Bytes != want[0] || p[1].Bytes != want[1] || p[1].Time <= 0 {
			t.Errorf("run %d: scans %v, want bytes %v", 1+2*k, p, want)
		}
	}
	if folderBytes(t, whole) != folderBytes(t, out) || KeptCounts(out) != "" {
		t.Error("the third run gives a different dataset, or keeps the counts")
	}
	// With another seed, other conditions, another snapshot, a changed file or a truncated spill, the import starts from the
	// beginning.
	for k, change := range []func(){
		func() {
			spills, err := filepath.Glob(filepath.Join(countsFolder(config.Out), "2-*"))
			if err != nil || len(spills) == 0 {
				t.Fatal(spills, err)
			}
			if err := os.Truncate(spills[0], 10); err != nil {
				t.Fatal(err)
			}
		},
		func() { config.Seed = 99 },
		func() { config.Where = lake.Conditions{{Column: "day", Operator: "=", Value: "1"}} },
		func() { config.Tables = []Table{{Table: dataset.Table{Snapshot: "2"}}} },
		func() {
			if err := os.WriteFile(files[0], []byte(s.lines[0]), 0o644); err != nil {
				t.Fatal(err)
			}
		},
	} {
		config.Out = filepath.Join(t.TempDir(), "y")
		stopAt(size(files[:3]) + 1)
		change()
		if first := stopAt(1); first > size(files[:1]) {
			t.Errorf("change %d: the second run started at byte %d", k, first)
		}
		os.RemoveAll(countsFolder(config.Out))
	}
}
