package ingest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"shaver/internal/base/long"
	"shaver/internal/data/dense"
)

// logText returns n rows of three fields of 40, 7 and 300 ids. With number, there is a column of numbers, of which some are
// missing. With list, the last field has up to 4 ids. before is what each field adds to its ids, and prefix goes before them.
func logText(n int, seed uint64, number, list bool, before [3]int, prefix string) string {
	r := rand.New(rand.NewPCG(seed, 1))
	var b strings.Builder
	b.WriteString("label,a,b,c")
	if number {
		b.WriteString(",price")
	}
	b.WriteString("\n")
	for range n {
		fmt.Fprintf(&b, "%d,%s%d,%s%d,", r.IntN(2), prefix, before[0]+r.IntN(40), prefix, before[1]+r.IntN(7))
		ids := 1
		if list {
			ids = r.IntN(5)
		}
		for k := range ids {
			if k > 0 {
				b.WriteString("|")
			}
			fmt.Fprintf(&b, "%s%d", prefix, before[2]+r.IntN(300))
		}
		switch price := float64(r.IntN(4000)) / 8; {
		case number && price < 50:
			b.WriteString(",")
		case number:
			fmt.Fprintf(&b, ",%g", price)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// datasetDigest returns the digest of all that a dataset consists of, except the description of its sources.
func datasetDigest(t *testing.T, dir string) string {
	t.Helper()
	m := open(t, dir).Manifest
	m.Sources = nil
	if err := os.WriteFile(filepath.Join(dir, "dataset.json"), m.Marshal(), 0o666); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(folderBytes(t, dir)))
	return hex.EncodeToString(sum[:8])
}

// Each form of import gives the dataset that it always gave, on one core or several, and from compressed files the same one
// as from plain files. If a digest changes, so do the ids of jobs, and scores of earlier imports no longer fit.
func TestDatasetBytes(t *testing.T) {
	long.Test(t)
	const rows = 50_000 // several blocks
	none, global := [3]int{}, [3]int{0, 40, 47}
	sizes := []int{40, 7, 300}
	encoded := func(change func(*EncodedConfig)) func(files []string, out string) error {
		return func(files []string, out string) error {
			c := EncodedConfig{Train: files, Out: out}
			if change != nil {
				change(&c)
			}
			_, err := ImportEncoded(t.Context(), c)
			return err
		}
	}
	raw := func(change func(*RawConfig)) func(files []string, out string) error {
		return func(files []string, out string) error {
			c := RawConfig{Files: files, Out: out, MinCount: 3, Seed: 5}
			if change != nil {
				change(&c)
			}
			_, err := ImportRaw(t.Context(), c)
			return err
		}
	}
	price := Dense{Columns: []DenseColumn{{Name: "price", Input: dense.Input{Rule: dense.Log1p}}}, Missing: MissingMean}
	items := Lists{Columns: []ListColumn{{Name: "c", Length: 3}}, Long: LongLast}
	plain, lists := logText(rows, 1, false, false, none, ""), logText(rows, 2, false, true, none, "")
	numbers, globals := logText(rows, 3, true, false, none, ""), logText(rows, 1, false, false, global, "")
	texts := logText(rows, 4, true, true, none, "v")
	for _, form := range []struct {
		name, digest string
		text         string // of train, or of all rows
		do           func(files []string, out string) error
	}{
		{"local", "ce2a69bd85c14b76", plain, encoded(nil)},
		{"local with sizes", "ce2a69bd85c14b76", plain, encoded(func(c *EncodedConfig) { c.Sizes = sizes })},
		{"global", "85ec932b07dca73c", globals, encoded(func(c *EncodedConfig) { c.Sizes, c.Global = sizes, true })},
		{"lists", "14a3c1a02326c4bd", lists, encoded(func(c *EncodedConfig) { c.Lists = items })},
		{"dense", "0cbb8b71111d3978", numbers, encoded(func(c *EncodedConfig) { c.Dense = price })},
		{"split", "1e6b58790fe882c5", numbers, encoded(func(c *EncodedConfig) { c.Split, c.Seed, c.Dense = "8:1:1", 7, price })},
		{"skip", "f594c57942b41633", strings.ReplaceAll(plain, ",11,", ",x,"), encoded(func(c *EncodedConfig) { c.OnBadRow, c.Split = Skip, "3:1:1" })},
		{"val and test", "95c25188d28b0202", plain, encoded(func(c *EncodedConfig) {
			c.Val, c.Test = []string{write(t, logText(900, 8, false, false, none, ""))}, []string{write(t, logText(800, 9, false, false, none, ""))}
		})},
		{"fresh", "83f2f455d76e2617", plain, encoded(func(c *EncodedConfig) { c.Fresh = []string{write(t, logText(900, 8, false, false, none, ""))} })},
		{"raw", "bca5abd1fed735cc", plain, raw(nil)},
		{"raw, lists and dense", "3862741dc366ce30", texts, raw(func(c *RawConfig) { c.Format.Dense, c.Lists = price, items })},
		{"raw, fresh by ratio", "e7ecc035a949608c", texts, raw(func(c *RawConfig) { c.Format.Dense, c.Lists, c.Split = price, items, "7:1:1:1" })},
		{"raw, fresh by file", "a209b07ae570a007", plain, raw(func(c *RawConfig) { c.Fresh = []string{write(t, logText(900, 8, false, false, none, ""))} })},
	} {
		for kind, text := range map[string]string{"plain": form.text, "gzip": gzipped(t, form.text), "zstd": zstded(t, form.text), "one core": form.text} {
			cores := max(4, runtime.NumCPU())
			if kind == "one core" {
				cores = 1
			}
			before, out := runtime.GOMAXPROCS(cores), filepath.Join(t.TempDir(), "data")
			err := form.do([]string{write(t, text)}, out)
			runtime.GOMAXPROCS(before)
			if err != nil {
				t.Errorf("%s, %s: %v", form.name, kind, err)
			} else if got := datasetDigest(t, out); got != form.digest {
				t.Errorf("%s, %s: digest %s, expected %s", form.name, kind, got, form.digest)
			}
		}
	}
}
