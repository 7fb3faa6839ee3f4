package dataset

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"shaver/internal/fault"
	"shaver/internal/model"
)

func smallDataset(t testing.TB) *Dataset {
	t.Helper()
	text := "label,a,b\n" + strings.Repeat("0,1,2\n1,3,4\n0,0,0\n", 100)
	out := filepath.Join(t.TempDir(), "dataset")
	if _, err := ImportRaw(t.Context(), RawConfig{Files: []string{write(t, text)}, Out: out}); err != nil {
		t.Fatal(err)
	}
	return open(t, out)
}

func readAll(ctx context.Context, dir string) error {
	d, err := Open(dir)
	if err != nil {
		return err
	}
	if _, err := d.Frequencies(); err != nil {
		return err
	}
	for j := range d.Fields() {
		if _, err := d.Vocabulary(j); err != nil {
			return err
		}
	}
	return d.Scan(ctx, nil, 100, func(*model.Rows) error { return nil })
}

// Any changed, missing, cut or swapped file is bad input that names it.
func TestCorruptDataset(t *testing.T) {
	for _, name := range []string{"train.arrow", "val.arrow", "test.arrow", "frequencies.arrow", "vocabulary/0-a.txt", "vocabulary/1-b.txt"} {
		d := smallDataset(t)
		path := filepath.Join(d.dir, filepath.FromSlash(name))
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for at := range data {
			if at%7 != 0 && at > 100 {
				continue
			}
			changed := bytes.Clone(data)
			changed[at] ^= 0x10
			if err := os.WriteFile(path, changed, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := readAll(t.Context(), d.dir); !fault.IsInput(err) || !strings.Contains(err.Error(), path) {
				t.Fatalf("%s, byte %d of %d changed: %v", name, at, len(data), err)
			}
		}
		if err := os.WriteFile(path, data[:len(data)-1], 0o644); err != nil {
			t.Fatal(err)
		}
		wantInput(t, readAll(t.Context(), d.dir), path)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		wantInput(t, readAll(t.Context(), d.dir), path+" is missing")
	}
	_, err := Open(t.TempDir())
	wantInput(t, err, "is no dataset")
}

func TestManifestRefuses(t *testing.T) {
	good := smallDataset(t).marshal()
	for _, c := range []struct{ old, new, want string }{
		{`"shaver.dataset/1"`, `"shaver.dataset/2"`, `version is "shaver.dataset/2"`},
		{`"size": 4`, `"size": 0`, "field 0 (a) has size 0"},
		{`"name": "b"`, `"name": "a"`, "fields 0 and 1 have the same name"},
		{`"name": "val"`, `"name": "train"`, `split "train"`},
		{`"name": "val"`, `"name": "dev"`, `split "dev"`},
		{`"file": "val.arrow"`, `"file": "../val.arrow"`, "names stay in the folder"},
		{`"file": "val.arrow"`, `"file": "/val.arrow"`, "names stay in the folder"},
		{`"skipped": 0`, `"skipped": 0, "more": 1`, "more"},
		{`"version"`, `version`, "not JSON"},
		{`"size": 4`, `"size": 4, "oov": 3`, "field 0 (a) has the id 3 for unseen values: that is one before the last of 4, or -1, in a dataset with a vocabulary"},
		{`"size": 4`, `"size": 4, "oov": -2`, "field 0 (a) has the id -2 for unseen values"},
		{`"skipped"`, `"vocabulary": [], "skipped"`, "vocabulary of 0 fields"},
	} {
		text := strings.Replace(string(good), c.old, c.new, 1)
		if text == string(good) {
			t.Fatalf("%q is not in %s", c.old, good)
		}
		_, err := parseManifest([]byte(text))
		wantInput(t, err, c.want)
	}
	m, err := parseManifest([]byte(strings.Replace(string(good), `"size": 4`, `"size": 4, "oov": 0`, 1)))
	if err != nil || m.Fields[0].OOVID() != 0 || m.Fields[1].OOVID() != m.Fields[1].Size-1 {
		t.Fatalf("ids of unseen values: %v", err)
	}
	m.Vocabulary = nil
	_, err = parseManifest(m.marshal())
	wantInput(t, err, "field 0 (a) has the id 0 for unseen values")
}

func TestReaderAndScanAgree(t *testing.T) {
	d := smallDataset(t)
	want := rowsOf(t, d, 1<<16)
	for i, number := range want.Number {
		if number != int64(i) {
			t.Fatalf("row %d has number %d", i, number)
		}
	}
	if got := rowsOf(t, d, 7); !reflect.DeepEqual(got, want) {
		t.Error("batches of 7 give other rows")
	}
	r, err := d.NewReader(Test)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var rows model.Rows
	if err := r.Next(&rows); err != nil || int64(rows.Len()) != d.Rows(Test) || rows.Number[0] != d.Rows(Train)+d.Rows(Val) {
		t.Errorf("the first batch of test has %d rows from %d: %v", rows.Len(), rows.Number, err)
	}
	for range 2 {
		if err := r.Next(&rows); err != io.EOF {
			t.Errorf("after the end: %v", err)
		}
	}
}

func TestScanStops(t *testing.T) {
	d := smallDataset(t)
	enough := errors.New("enough")
	if err := d.Scan(t.Context(), nil, 10, func(*model.Rows) error { return enough }); err != enough {
		t.Errorf("visit's error became %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := d.Scan(ctx, nil, 10, func(*model.Rows) error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	wantUsage(t, d.Scan(t.Context(), []string{"dev"}, 10, nil), `no split "dev": it has [train val test]`)
}

// A manifest that parses is one that we could have written.
func FuzzManifest(f *testing.F) {
	good := string(smallDataset(f).marshal())
	f.Add([]byte(good))
	f.Add([]byte(strings.Replace(good, `"size": 4`, `"size": 4, "oov": -1`, 1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parseManifest(data)
		if err != nil {
			if !fault.IsInput(err) {
				t.Fatalf("not bad input: %v", err)
			}
			return
		}
		again, err := parseManifest(m.marshal())
		if err != nil || !bytes.Equal(again.marshal(), m.marshal()) {
			t.Fatalf("did not survive: %v", err)
		}
	})
}
