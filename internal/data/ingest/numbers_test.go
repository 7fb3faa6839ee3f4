package ingest_test

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/data/dense"
	"shaver/internal/data/ingest"
)

// labelsOf returns the labels of all rows of a dataset, in order.
func labelsOf(t *testing.T, d *dataset.Dataset) (labels []float32) {
	t.Helper()
	err := d.Scan(context.Background(), nil, 100, func(rows *model.Rows) error {
		labels = append(labels, rows.Label...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return labels
}

// Labels that are numbers come through every form of input: encoded text with and without a
// header, raw text, and Arrow with several types of columns. The manifest describes them.
func TestNumberLabels(t *testing.T) {
	want := []float32{3.5, -1, 0.1, 1e-20, 5}
	const encoded = "3.5,0,1\n-1,1,0\n0.1,0,0\n1e-20,1,1\n5.0,0,1\n"
	const raw = "rating,user,item\n3.5,a,x\n-1,b,y\n0.1,a,x\n1e-20,b,y\n5.0,a,x\n"
	imports := map[string]func(file, out string) error{
		"encoded, no header": func(file, out string) error {
			write(t, file, encoded)
			_, err := ingest.ImportEncoded(t.Context(), ingest.EncodedConfig{Train: []string{file}, Numbers: true, Out: out})
			return err
		},
		"encoded, header": func(file, out string) error {
			write(t, file, "rating,user,item\n"+encoded)
			_, err := ingest.ImportEncoded(t.Context(), ingest.EncodedConfig{Train: []string{file}, Numbers: true, Out: out})
			return err
		},
		"encoded, dense": func(file, out string) error {
			write(t, file, "rating,user,age\n"+encoded)
			_, err := ingest.ImportEncoded(t.Context(), ingest.EncodedConfig{Train: []string{file}, Numbers: true, Out: out, Dense: ingest.Dense{Columns: []ingest.DenseColumn{{Name: "age", Input: dense.Input{Rule: dense.None}}}}})
			return err
		},
		"raw": func(file, out string) error {
			write(t, file, raw)
			_, err := ingest.ImportRaw(t.Context(), ingest.RawConfig{Files: []string{file}, Format: ingest.Format{Label: "rating", Numbers: true}, Split: "1:0:0", Out: out})
			return err
		},
		"raw, tabs": func(file, out string) error {
			write(t, file, strings.ReplaceAll(raw, ",", "\t"))
			_, err := ingest.ImportRaw(t.Context(), ingest.RawConfig{Files: []string{file}, Format: ingest.Format{Label: "rating", Numbers: true}, Split: "1:0:0", Workers: 2, Out: out})
			return err
		},
	}
	for name, do := range imports {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			if err := do(filepath.Join(t.TempDir(), "rows.csv"), out); err != nil {
				t.Fatal(err)
			}
			d, err := dataset.Open(out)
			if err != nil {
				t.Fatal(err)
			}
			if got := labelsOf(t, d); !slices.Equal(got, want) {
				t.Errorf("labels %v, expected %v", got, want)
			}
			mean, square := 0.0, 0.0
			for _, label := range want {
				mean += float64(label) / 5
			}
			for _, label := range want {
				square += (float64(label) - mean) * (float64(label) - mean) / 5
			}
			l := d.Splits[0].Labels
			if d.Labels != dataset.NumberLabels || d.Splits[0].Positives != nil || l == nil || l.Min != -1 || l.Max != 5 || math.Abs(l.Mean-mean) > 1e-12 || math.Abs(l.Deviation-math.Sqrt(square)) > 1e-12 {
				t.Errorf("labels %q, %+v, expected the mean %v and the deviation %v", d.Labels, l, mean, math.Sqrt(square))
			}
		})
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A window of days has the labels of all days, and describes them as one import does.
func TestNumberLabelsOfDays(t *testing.T) {
	dir := t.TempDir()
	day := func(name, text string) string {
		file, out := filepath.Join(dir, name+".csv"), filepath.Join(dir, name)
		write(t, file, "rating,a,b\n"+text)
		if _, err := ingest.ImportEncoded(t.Context(), ingest.EncodedConfig{Train: []string{file}, Sizes: []int{2, 2}, Numbers: true, Out: out}); err != nil {
			t.Fatal(err)
		}
		return out
	}
	const one, two = "1.5,0,1\n4,1,0\n2,0,0\n", "-3,1,1\n10,0,1\n"
	window, err := dataset.OpenDays([]string{day("one", one), day("two", two)})
	if err != nil {
		t.Fatal(err)
	}
	whole, err := dataset.Open(day("all", one+two))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := labelsOf(t, window), labelsOf(t, whole); !slices.Equal(got, want) {
		t.Errorf("labels %v, expected %v", got, want)
	}
	got, want := window.Splits[0].Labels, whole.Splits[0].Labels
	if got.Min != want.Min || got.Max != want.Max || math.Abs(got.Mean-want.Mean) > 1e-12 || math.Abs(got.Deviation-want.Deviation) > 1e-12 {
		t.Errorf("%+v, expected %+v", got, want)
	}
}
