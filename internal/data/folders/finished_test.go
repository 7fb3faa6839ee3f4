package folders

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/base/fault"
)

// Names of files that Spark wrote in two jobs.
const (
	partA = "part-00000-3f1c2d5e-0000-4000-8000-000000000001-c000.parquet"
	partB = "part-00000-9a8b7c6d-0000-4000-8000-000000000002-c000.parquet"
	tidA  = "part-00000-tid-12-3f1c2d5e-0000-4000-8000-000000000001-c000.csv"
)

// A folder is refused if it or a folder above it belongs to a table with a log of its files, or to a job that has not
// ended, whatever the format of its files.
func TestFinished(t *testing.T) {
	for name, c := range map[string]struct {
		files string // separated by spaces; TEXT of NAME=>TEXT is the content
		given string // below the folder; "" is the folder itself
		want  string // part of the error; "" if the files are those of one finished table
	}{
		"Delta":                  {"a.parquet _delta_log/0.json", "", "_delta_log belongs to a Delta table"},
		"Delta's partition":      {"day=1/a.parquet _delta_log/0.json", "day=1", "Delta"},
		"Delta's inner one":      {"a=1/b=2/c=3/d=4/a.parquet _delta_log/0.json", "a=1/b=2/c=3/d=4", "Delta"},
		"Delta's file":           {"a.parquet _delta_log/0.json", "a.parquet", "Delta"},
		"Delta's file by a link": {"a.parquet=>@t/day=1/a.parquet t/day=1/a.parquet t/_delta_log/0.json", "a.parquet", "Delta"},
		"links to a Delta table": {"x/a.parquet=>@t/day=1/a.parquet t/day=1/a.parquet t/_delta_log/0.json", "x", "Delta"},
		"links to Spark's files": {"x/" + partA + "=>@store/a x/_SUCCESS store/a", "x", ""},
		"Delta's second level":   {"x/y/a.parquet _delta_log/0.json", "x/y", "Delta"},
		"one of several tables":  {"a.parquet t/day=1/a.parquet t/_delta_log/0.json", "", "Delta"},
		"Hudi":                   {"a.parquet .hoodie/hoodie.properties", "", "a Hudi table"},
		"Hudi's partition":       {"2026/01/02/a.parquet 2026/01/02/.hoodie_partition_metadata", "2026/01/02", "a Hudi table"},
		"Iceberg":                {"data/a.parquet metadata/v1.metadata.json", "", "an Iceberg table"},
		"Iceberg's data":         {"data/day=1/a.parquet metadata/v1.metadata.json", "data", "an Iceberg table"},
		"Iceberg's partition":    {"data/day=1/a.parquet metadata/v1.metadata.json", "data/day=1", "an Iceberg table"},
		"Paimon":                 {"bucket-0/a.parquet snapshot/LATEST", "bucket-0", "a Paimon table"},
		"a stream's sink":        {"a.csv _spark_metadata/0", "", "a sink of Spark"},
		"unfinished":             {"a.csv _temporary/0/b.csv", "", "has not ended"},
		"unfinished and started": {"a.csv _SUCCESS _temporary/0/b.csv", "", "has not ended"},
		"only temporary files":   {"_temporary/0/b.csv", "", "has not ended"},
		"started":                {"a.csv _started_12", "", "there is no _committed_12"},
		"not committed":          {tidA + ` b.csv _started_12 _committed_12=>{"added":["` + tidA + `"],"removed":[]}`, "", "b.csv: no file _committed_N lists it"},
		"removed": {tidA + ` b.csv _committed_12=>{"added":["` + tidA + `","b.csv"],"removed":[]} _committed_13=>{"added":[],"removed":["b.csv"]}`,
			"", "b.csv: no file _committed_N lists it"},
		"a broken list":       {"a.csv _committed_12=>[]", "", "expected a JSON object"},
		"written by Presto":   {"a.parquet tmp.b.parquet", "", "tmp.b.parquet is a file of a job that has not ended"},
		"compressed":          {"a.csv.gz tmp.b.csv.gz", "", "has not ended"},
		"without success":     {partA, "", "there is no _SUCCESS"},
		"success elsewhere":   {"day=1/" + partA + " day=2/_SUCCESS", "", "there is no _SUCCESS"},
		"Spark":               {partA + " _SUCCESS", "", ""},
		"Spark's partition":   {"a=1/b=2/c=3/" + partA + " _SUCCESS", "a=1/b=2/c=3", ""},
		"Spark's partitions":  {"a=1/" + partA + " a=2/" + partB + " _SUCCESS", "", ""},
		"one file of Spark":   {partA, partA, ""},
		"committed":           {tidA + ` _started_12 _committed_12=>{"added":["` + tidA + `"],"removed":["old.csv"]}`, "", ""},
		"a user's folders":    {"data/a.csv metadata/notes.json snapshot/x.json", "data", ""},
		"a user's name":       {"tmp.csv.gz", "", ""},
		"a log three above":   {"x/y/z/a.csv _delta_log/0.json", "x/y/z", ""},
		"a table next to it":  {"log/a.csv delta/_delta_log/0.json", "log", ""},
		"staging of a writer": {"a.csv .spark-staging-1/b.csv", "", ""},
	} {
		texts := map[string]string{}
		for _, file := range strings.Fields(c.files) {
			name, text, _ := strings.Cut(file, "=>")
			texts[name] = text
		}
		folder := filesOf(t, texts)
		for name, text := range texts {
			if target, ok := strings.CutPrefix(text, "@"); ok { // a link
				at := filepath.Join(folder, filepath.FromSlash(name))
				if err := errors.Join(os.Remove(at), os.Symlink(filepath.Join(folder, filepath.FromSlash(target)), at)); err != nil {
					t.Skip(err)
				}
			}
		}
		_, err := Files([]string{filepath.Join(folder, filepath.FromSlash(c.given))})
		if (err == nil) != (c.want == "") || err != nil && (!fault.IsInput(err) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(filepath.Join(folder, filepath.FromSlash(c.given)), link); err != nil {
			t.Skip(err)
		}
		if _, linked := Files([]string{link}); (linked == nil) != (c.want == "") {
			t.Errorf("%s by a link: %v, want %q", name, linked, c.want)
		}
	}
}

// Runs names each folder with the files of several jobs once.
func TestRuns(t *testing.T) {
	got := Runs([]string{"a/" + partA, "a/" + partB, "a/" + partB, "b/" + partA, "c/" + partB, "c/part-0.parquet"})
	if len(got) != 1 || got[0] != "a" {
		t.Errorf("%q, want a", got)
	}
}

// Any list of a job is read or is bad input.
func FuzzList(f *testing.F) {
	f.Add([]byte(`{"added":["a"],"removed":[]}`))
	f.Add([]byte(`[]`))
	path := filepath.Join(f.TempDir(), "list")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := readList(path); err != nil && !fault.IsInput(err) {
			t.Error(err)
		}
	})
}
