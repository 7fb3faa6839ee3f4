package worth_test

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/data/columnfile"
	"shaver/internal/data/dataset"
	"shaver/internal/data/ingest"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/scores"
	"shaver/internal/jobs/scores/scorestest"
	"shaver/internal/num/layout"
	"shaver/internal/prune/worth"
	"shaver/internal/value/estimator"
	"shaver/internal/value/tally"
)

// ofPath returns the scores of a path over two fields of 2 and 3 ids and two columns.
func ofPath() *scores.File {
	f := &scores.File{
		Fields: []string{"x", "y"}, Layout: model.Architecture{FieldDims: []int{2, 3}, Dim: 2}, Path: &scores.Path{},
		Spec:   job.Spec{Options: estimator.Options{Estimator: estimator.Path}},
		Result: tally.Result{Scores: tally.Scores{Shape: layout.Of(5, 2), Count: []int64{5, 4, 3, 2, 1}, Values: tally.NewRanks(10)}},
	}
	copy(f.Rank, []int32{0, 9, 1, 2, 3, 8, 4, 5, 6, 7})
	return f
}

// The worth of an id of a path is the sparsity at which its last entry goes.
func TestPath(t *testing.T) {
	ids, err := worth.IDs(ofPath(), scores.ByPath)
	if err != nil {
		t.Fatal(err)
	}
	want := []columnfile.WorthID{
		{Table: "x", Field: "x", ID: 0, Count: 5, Worth: 1, Score: 5, Bytes: 8, Key: 0},
		{Table: "x", Field: "x", ID: 1, Count: 4, Worth: .3, Score: 1, Bytes: 8, Key: 1},
		{Table: "y", Field: "y", ID: 0, Count: 3, Worth: .9, Score: 4, Bytes: 8, Key: 0},
		{Table: "y", Field: "y", ID: 1, Count: 2, Worth: .6, Score: 2, Bytes: 8, Key: 1},
		{Table: "y", Field: "y", ID: 2, Count: 1, Worth: .8, Score: 3, Bytes: 8, Key: 2},
	}
	if !slices.Equal(ids, want) {
		t.Errorf("%+v, expected %+v", ids, want)
	}
	for _, c := range []struct {
		ids, bytes int64
		want       worth.Threshold
	}{
		{3, 0, worth.Threshold{Score: 3, Worth: .8, IDs: 3, Bytes: 24}},
		{0, 39, worth.Threshold{Score: 2, Worth: .6, IDs: 4, Bytes: 32}},
		{0, 7, worth.Threshold{Score: 6}},
		{9, 0, worth.Threshold{Score: 1, Worth: .3, IDs: 5, Bytes: 40}},
	} {
		if got, err := worth.Cut(ids, c.ids, c.bytes); err != nil || *got != c.want {
			t.Errorf("%d ids, %d bytes: %+v, %v, expected %+v", c.ids, c.bytes, got, err, c.want)
		}
	}
}

// The worth of an id of values is the sum over its entries. Ids of the same worth have one score, and stay or go
// together.
func TestValues(t *testing.T) {
	f := scorestest.Tables()
	for i := range f.Phi {
		f.Phi[i] = .25
	}
	ids, err := worth.IDs(f, scores.Sum)
	if err != nil {
		t.Fatal(err)
	}
	entries := 0
	for _, id := range ids {
		if d := id.Bytes / 4; id.Worth != .25*float64(d) {
			t.Errorf("%+v", id)
		}
		entries += int(id.Bytes / 4)
		for _, other := range ids {
			if (id.Worth == other.Worth) != (id.Score == other.Score) || (id.Worth < other.Worth) != (id.Score < other.Score) {
				t.Errorf("%+v and %+v", id, other)
			}
		}
	}
	if entries != len(f.Phi) {
		t.Errorf("the ids have %d entries, expected %d", entries, len(f.Phi))
	}
	// Each table has ids of its own, from 0.
	for i, id := range ids {
		if i > 0 && ids[i-1].Table == id.Table && ids[i-1].ID+1 != id.ID || (i == 0 || ids[i-1].Table != id.Table) && id.ID != 0 {
			t.Errorf("id %d: %+v", i, id)
		}
	}
}

// Pads have the largest score, and a limit that they exceed is refused.
func TestPads(t *testing.T) {
	f := &scores.File{
		Fields: []string{"x"}, Layout: model.Architecture{FieldDims: []int{3}, Dim: 1, Lists: []model.List{{Field: 0, Length: 2, Pad: 0}}},
		Result: tally.Result{Scores: tally.Scores{Shape: layout.Of(3, 1), Count: make([]int64, 3), Values: tally.NewValues(3)}},
	}
	copy(f.Phi, []float64{-1, 3, 2})
	ids, err := worth.IDs(f, scores.Sum)
	if err != nil {
		t.Fatal(err)
	}
	if ids[0].Score != 3 || ids[1].Score != 2 || ids[2].Score != 1 {
		t.Errorf("%+v", ids)
	}
	if got, err := worth.Cut(ids, 2, 0); err != nil || got.Score != 2 || got.Worth != 3 || got.IDs != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := worth.Cut(ids, 0, 3); !fault.IsInput(err) {
		t.Errorf("a limit below the pads: %v", err)
	}
}

// The files of each store have the names, the types and the order of its documentation. In all of them a larger score
// means worth more, and the threshold separates the same ids.
func TestStores(t *testing.T) {
	ids, err := worth.IDs(ofPath(), scores.ByPath)
	if err != nil {
		t.Fatal(err)
	}
	for store, c := range map[string]struct{ keys, scores string }{
		worth.HierarchicalKV: {".keys.uint64", ".scores.uint64"},
		worth.TFRA:           {".keys.int64", ".scores.int64"},
		worth.DynamicEmb:     {"_emb_keys.rank_0.world_size_1", "_emb_scores.rank_0.world_size_1"},
		worth.TorchRec:       {".keys.int64", ".weights.float32"},
	} {
		out := filepath.Join(t.TempDir(), "out")
		if err := worth.WriteStore(store, ids, out); err != nil {
			t.Fatal(err)
		}
		if files, err := os.ReadDir(out); err != nil || len(files) != 4 {
			t.Errorf("%s: %d files, %v", store, len(files), err)
		}
		for table, want := range map[string][]uint64{"x": {5, 1}, "y": {4, 2, 3}} {
			keys, err := os.ReadFile(filepath.Join(out, table+c.keys))
			if err != nil || len(keys) != 8*len(want) {
				t.Fatalf("%s: %d bytes of keys, %v", store, len(keys), err)
			}
			values, err := os.ReadFile(filepath.Join(out, table+c.scores))
			if err != nil {
				t.Fatal(err)
			}
			size := len(values) / len(want)
			for i, score := range want {
				if k := binary.LittleEndian.Uint64(keys[8*i:]); k != uint64(i) {
					t.Errorf("%s: key %d of table %s is %d", store, i, table, k)
				}
				if store == worth.TorchRec {
					if got := math.Float32frombits(binary.LittleEndian.Uint32(values[4*i:])); size != 4 || got != float32(score)/5 {
						t.Errorf("%s: weight %v of %d bytes, expected %d/5", store, got, size, score)
					}
				} else if got := binary.LittleEndian.Uint64(values[8*i:]); size != 8 || got != score {
					t.Errorf("%s: score %d of %d bytes, expected %d", store, got, size, score)
				}
			}
		}
		if err := worth.WriteStore(store, ids, out); !fault.IsUsage(err) {
			t.Errorf("%s: a folder that is there: %v", store, err)
		}
	}
	ids[0].Table = "a/b"
	if err := worth.WriteStore(worth.TFRA, ids, filepath.Join(t.TempDir(), "out")); !fault.IsInput(err) || !strings.Contains(err.Error(), `"a/b"`) {
		t.Error(err)
	}
	if err := worth.WriteStore("memcached", ids, filepath.Join(t.TempDir(), "out")); !fault.IsUsage(err) {
		t.Error(err)
	}
}

// The keys are the imported values, also those of uint64. Ids without a value are left out, and values that are no integers of 64 bits
// are refused.
func TestKeyed(t *testing.T) {
	keyed := func(rows, digest string) ([]columnfile.WorthID, error) {
		dir := t.TempDir()
		log, out := filepath.Join(dir, "log.csv"), filepath.Join(dir, "data")
		if err := os.WriteFile(log, []byte("click,x,y\n"+rows), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := ingest.ImportRaw(t.Context(), ingest.RawConfig{Format: ingest.Format{Label: "click"}, Files: []string{log}, Split: "1:0:0", Out: out}); err != nil {
			t.Fatal(err)
		}
		d, err := dataset.Open(out)
		if err != nil {
			t.Fatal(err)
		}
		f := ofPath()
		if f.Spec.Dataset = d.Digest(); digest != "" {
			f.Spec.Dataset = digest
		}
		sizes := []int{}
		for _, field := range d.Manifest.Fields {
			sizes = append(sizes, field.Size)
		}
		f.Layout.FieldDims, f.Count, f.Values = sizes, make([]int64, sizes[0]+sizes[1]), tally.NewRanks(2*(sizes[0]+sizes[1]))
		f.Shape = layout.Of(sizes[0]+sizes[1], 2)
		ids, err := worth.IDs(f, scores.ByPath)
		if err != nil {
			t.Fatal(err)
		}
		return worth.Keyed(f, ids, []string{out})
	}
	got, err := keyed("1,7,18446744073709551615\n0,-5,3\n1,7,\n", "")
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string][]int64{}
	for _, id := range got {
		keys[id.Table] = append(keys[id.Table], id.Key)
	}
	slices.Sort(keys["y"])
	if !slices.Equal(keys["x"], []int64{-5, 7}) || !slices.Equal(keys["y"], []int64{-1, 3}) {
		t.Errorf("keys %v", keys)
	}
	for rows, want := range map[string]string{"1,7,a\n0,8,b\n": `field y has the value "a"`, "1,7,1\n0,8,1.5\n": `"1.5"`, "1,18446744073709551616,1\n0,8,2\n": `field x has the value "18446744073709551616"`} {
		if _, err := keyed(rows, ""); !fault.IsInput(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %s", err, want)
		}
	}
	if _, err := keyed("1,7,1\n0,8,2\n", strings.Repeat("0", 64)); !fault.IsInput(err) || !strings.Contains(err.Error(), "another dataset") {
		t.Error(err)
	}
}
