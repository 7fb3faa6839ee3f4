package dataset_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/data/dense"
	"shaver/internal/data/ingest"
)

// day imports rows of two fields of the given sizes and one dense input, and returns the
// folder. Days with other seeds have other rows.
func day(t testing.TB, rows int, sizes []int, seed int, split string, rule string) string {
	t.Helper()
	var text strings.Builder
	text.WriteString("label,a,b,x\n")
	for i := range rows {
		k := i*7 + seed
		fmt.Fprintf(&text, "%d,%d,%d,%d\n", k%3%2, k%sizes[0], k*k%sizes[1], k)
	}
	out := filepath.Join(t.TempDir(), "day")
	config := ingest.EncodedConfig{Train: []string{write(t, text.String())}, Split: split, Seed: uint64(seed), Sizes: sizes, Out: out}
	config.Dense.Columns = []ingest.DenseColumn{{Name: "x", Input: dense.Input{Rule: rule}}}
	if _, err := ingest.ImportEncoded(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	return out
}

func openDays(t testing.TB, dirs ...string) *dataset.Dataset {
	t.Helper()
	d, err := dataset.OpenDays(dirs)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// collect reads all rows of splits with all dense inputs.
func collect(t testing.TB, d *dataset.Dataset, first int64, splits ...string) *model.Rows {
	t.Helper()
	d, err := d.Choose([]string{"x"})
	if err != nil {
		t.Fatal(err)
	}
	all := &model.Rows{}
	err = d.ScanFrom(t.Context(), splits, first, 17, func(rows *model.Rows) error {
		all.AppendAll(rows)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A window has the rows of its days, split by split and day by day, with the global ids of
// the newest day. Sums are those of the days.
func TestWindowIsTheSumOfItsDays(t *testing.T) {
	sizes := [][]int{{4, 5}, {4, 7}, {6, 7}}
	dirs := []string{day(t, 90, sizes[0], 1, "2:1:1", dense.None), day(t, 60, sizes[1], 2, "1:0:0", dense.None), day(t, 80, sizes[2], 3, "2:0:1", dense.None)}
	d := openDays(t, dirs...)
	if !slices.Equal(d.FieldDims(), sizes[2]) || !slices.Equal(d.SplitNames(), []string{dataset.Train, dataset.Val, dataset.Test}) || d.Features() != 13 {
		t.Errorf("the window has the sizes %v and the splits %v", d.FieldDims(), d.SplitNames())
	}
	want := &model.Rows{}
	frequencies := make([]int64, 13)
	inSplit := func(name string) *model.Rows {
		all := &model.Rows{}
		for k, dir := range dirs {
			one := open(t, dir)
			if one.Rows(name) == 0 {
				continue
			}
			rows := collect(t, one, 0, name)
			for i := range rows.Len() {
				if rows.Row(i)[1] += int32(sizes[2][0] - sizes[k][0]); name != dataset.Test {
					frequencies[rows.Row(i)[0]]++
					frequencies[rows.Row(i)[1]]++
				}
				digest := one.Digest()
				var bits int64
				fmt.Sscanf(digest[:7], "%x", &bits)
				rows.Number[i] += bits >> 2 << 37
			}
			all.AppendAll(rows)
		}
		return all
	}
	for _, name := range d.SplitNames() {
		rows := inSplit(name)
		if d.Rows(name) != int64(rows.Len()) {
			t.Errorf("split %s has %d rows, want %d", name, d.Rows(name), rows.Len())
		}
		if got := collect(t, d, 0, name); !reflect.DeepEqual(got, rows) {
			t.Errorf("the rows of split %s differ from those of the days", name)
		}
		want.AppendAll(rows)
	}
	for first := range want.Len() {
		rest := want.Slice(first, want.Len())
		if got := collect(t, d, int64(first)); !reflect.DeepEqual(*got, rest) {
			t.Fatalf("from row %d: the rows differ from those of the days", first)
		}
	}
	if got, err := d.Frequencies(dataset.Train, dataset.Val); err != nil || !slices.Equal(got, frequencies) {
		t.Errorf("the frequencies are %v, %v; want %v", got, err, frequencies)
	}
	facts, err := d.Inspect(1)
	if err != nil || facts.Rows != 230 || facts.Dense[0].Values.Max != 89*7+1 || facts.Dense[0].Values.Min != 1 {
		t.Errorf("%+v, %v", facts, err)
	}
	if mean := facts.Dense[0].Values.Mean; mean < 273.89 || mean > 273.9 { // (90*312.5 + 60*208.5 + 80*279.5) / 230
		t.Errorf("the mean of x is %v", mean)
	}
	positives := int64(0)
	for _, label := range want.Label {
		positives += int64(label)
	}
	if *facts.Positives != positives {
		t.Errorf("%d rows with label 1, want %d", *facts.Positives, positives)
	}
}

// The number of a row and its features do not depend on the other days of equal sizes.
func TestRowsDoNotDependOnTheWindow(t *testing.T) {
	a, b, c := day(t, 30, []int{4, 5}, 1, "2:1:1", dense.None), day(t, 40, []int{4, 5}, 2, "2:1:1", dense.None), day(t, 50, []int{6, 5}, 3, "2:1:1", dense.None)
	rowsIn := func(digest string, dirs ...string) *model.Rows {
		d := openDays(t, dirs...)
		days := d.Days()
		if len(days) != len(dirs) || len(d.DayDigests()) != len(dirs) {
			t.Fatalf("%d days of %d", len(days), len(dirs))
		}
		at := slices.Index(d.DayDigests(), digest)
		alone, err := dataset.Join([]*dataset.Dataset{open(t, dirs[at])})
		if err != nil {
			t.Fatal(err)
		}
		if days[at].Digest() != alone.Digest() || !slices.Equal(days[at].DayDigests(), []string{digest}) || !slices.Equal(days[at].FieldDims(), d.FieldDims()) {
			t.Errorf("day %d of %v is wrong", at, dirs)
		}
		if counts, err := days[at].Frequencies(); err != nil || len(counts) != d.Features() {
			t.Errorf("%d frequencies, want %d: %v", len(counts), d.Features(), err)
		}
		return collect(t, days[at], 0)
	}
	digest := open(t, b).Digest()
	want := rowsIn(digest, b)
	for _, dirs := range [][]string{{a, b}, {b, a}} {
		if !reflect.DeepEqual(rowsIn(digest, dirs...), want) {
			t.Errorf("the rows of a day in %v differ from those in a window of its own", dirs)
		}
	}
	wider := rowsIn(digest, a, b, c)
	if !slices.Equal(wider.Number, want.Number) || wider.Row(3)[0] != want.Row(3)[0] || wider.Row(3)[1] != want.Row(3)[1]+2 {
		t.Error("a newer day changed the numbers or the local ids of an earlier one")
	}
	digests := map[string]bool{open(t, a).Digest(): true}
	for _, dirs := range [][]string{{a}, {a, b}, {b, a}, {a, b, c}} {
		digests[openDays(t, dirs...).Digest()] = true
	}
	if len(digests) != 5 {
		t.Errorf("5 datasets have %d digests", len(digests))
	}
	for _, dirs := range [][]string{{a}, {a, b}} {
		d, err := dataset.OpenAll(dirs)
		if err != nil || (len(d.Days()) > 0) != (len(dirs) > 1) {
			t.Errorf("OpenAll of %d folders: %v", len(dirs), err)
		}
	}
	if d := open(t, a); d.Days() != nil || d.DayDigests() != nil {
		t.Error("a folder has days")
	}
}

// Each reason why folders are not a window is bad input that names the folder.
func TestJoinRefuses(t *testing.T) {
	base := day(t, 30, []int{4, 5}, 1, "1:0:0", dense.None)
	raw := func(text string, config ingest.RawConfig) string {
		config.Files, config.Out = []string{write(t, text)}, filepath.Join(t.TempDir(), "day")
		if _, err := ingest.ImportRaw(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		return config.Out
	}
	ab, ba := raw("label,a\n0,u\n1,v\n", ingest.RawConfig{Split: "1:0:0"}), raw("label,a\n0,w\n1,z\n", ingest.RawConfig{Split: "1:0:0"})
	missing := day(t, 30, []int{4, 5}, 8, "1:0:0", dense.None)
	if err := os.Remove(filepath.Join(missing, "train.arrow")); err != nil {
		t.Fatal(err)
	}
	few := filepath.Join(t.TempDir(), "few")
	if _, err := ingest.ImportEncoded(t.Context(), ingest.EncodedConfig{Train: []string{write(t, "label,a,b\n0,1,2\n")}, Sizes: []int{4, 5}, Out: few}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dirs []string
		at   int // folder that the error names
		want string
	}{
		{[]string{base, base}, 0, "the same dataset"},
		{[]string{day(t, 30, []int{6, 5}, 2, "1:0:0", dense.None), base}, 0, "field 0 (a) has 6 features, expected at most 4"},
		{[]string{day(t, 30, []int{4, 5}, 2, "1:0:0", dense.Log1p), base}, 0, "dense input 0 (x) has the rule log1p, expected none"},
		{[]string{day(t, 30, []int{4, 5}, 2, "1:0:0", dense.ZScore), day(t, 30, []int{4, 5}, 3, "1:0:0", dense.ZScore)}, 0, "import the day with --vocabulary and without --dense-missing, so that it gets the statistics of an earlier day"},
		{[]string{few, base}, 0, "it has 0 dense inputs, expected 1"},
		{[]string{ab, few}, 0, `it has the fields ["a"], expected ["a" "b"]`},
		{[]string{ab, ba}, 0, "the id 0 of field 0 (a) has another value in each of them"},
		{[]string{base, missing}, 1, "train.arrow is missing"},
		{[]string{base, t.TempDir()}, 1, "is not a dataset"},
	} {
		_, err := dataset.OpenDays(c.dirs)
		wantInput(t, err, c.want)
		if err != nil && !strings.Contains(err.Error(), c.dirs[c.at]) {
			t.Errorf("the error %q does not name %s", err, c.dirs[c.at])
		}
	}
	if _, err := dataset.OpenDays(nil); !fault.IsUsage(err) {
		t.Errorf("no days: %v", err)
	}
	if err := os.WriteFile(filepath.Join(base, "train.arrow"), make([]byte, 10), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := dataset.OpenDays([]string{day(t, 30, []int{4, 5}, 2, "1:0:0", dense.None), base})
	wantInput(t, err, filepath.Join(base, "train.arrow"))
}
