package columnfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"shaver/internal/base/fault"
)

// nestedRow returns row i of testdata/nested.parquet.
func nestedRow(i int) map[string]any {
	row := map[string]any{"id": fmt.Sprint(i)}
	if i%3 != 0 {
		add := map[string]any{"path": fmt.Sprint("p", i%5), "size": fmt.Sprint(i)}
		if i%4 != 0 {
			values := map[string]any{}
			for k := range i % 4 {
				if values[fmt.Sprint("k", k)] = fmt.Sprint(k); k == 2 {
					values["k2"] = nil
				}
			}
			add["values"] = values
		}
		if i%5 != 0 {
			parsed := map[string]any{"day": fmt.Sprintf("2026-01-%02d", 1+i%7), "price": FloatText(float64(i)/2, 64)}
			if i%2 == 0 {
				parsed["at"] = fmt.Sprintf("2026-01-01 00:00:%02d.005+00:00", i%60)
			}
			add["parsed"] = parsed
		}
		row["add"] = add
	}
	var names, pairs []any
	for k := range i%7 - 1 {
		if names = append(names, fmt.Sprint("n", k)); k == 1 {
			names[k] = nil
		}
	}
	for k := range i % 5 {
		if k == 3 {
			pairs = append(pairs, nil)
			continue
		}
		pair, list := map[string]any{"x": fmt.Sprint(k % 2)}, []any(nil)
		for y := range k {
			list = append(list, fmt.Sprint(y))
		}
		if k > 1 {
			pair["y"] = list
		}
		pairs = append(pairs, pair)
	}
	if names != nil {
		row["names"] = names
	}
	if pairs != nil {
		row["pairs"] = pairs
	}
	return row
}

// Nested returns the values of structures, lists and maps, across batches and row groups.
func TestNested(t *testing.T) {
	i := 0
	err := Nested("testdata/nested.parquet", []string{"id", "add", "names", "pairs", "unknown"}, func(row map[string]any) error {
		if want := nestedRow(i); !reflect.DeepEqual(row, want) {
			return fmt.Errorf("row %d is %v, expected %v", i, row, want)
		}
		i++
		return nil
	})
	if err != nil || i != 1300 {
		t.Errorf("%d rows, %v", i, err)
	}
}

// Nested reads only the fields that are named.
func TestNestedColumns(t *testing.T) {
	stop := errors.New("stop")
	err := Nested("testdata/nested.parquet", []string{"add.parsed.price", "pairs.list.element.x"}, func(row map[string]any) error {
		if row["add"] == nil {
			return nil
		}
		if want := map[string]any{"add": map[string]any{"parsed": map[string]any{"price": "0.5"}}, "pairs": []any{map[string]any{"x": "0"}}}; !reflect.DeepEqual(row, want) {
			t.Errorf("%v, expected %v", row, want)
		}
		return stop
	})
	if err != stop {
		t.Error(err)
	}
	err = Nested("testdata/nested.parquet", []string{"unknown"}, func(row map[string]any) error { return stop })
	if err != nil {
		t.Error(err)
	}
	err = Nested("testdata/nested.parquet", []string{"id", "add.amount"}, func(row map[string]any) error { return stop })
	if !fault.IsInput(err) || !strings.Contains(err.Error(), `column "add.amount" is of decimals`) {
		t.Error(err)
	}
}

// Malformed bytes are bad input.
func FuzzNested(f *testing.F) {
	data, err := os.ReadFile("testdata/nested.parquet")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	for _, data := range variants(f, "*-list.parquet") {
		f.Add(data)
	}
	enough := errors.New("enough rows")
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		table, err := Open(path)
		if err != nil {
			return
		}
		defer table.Close()
		rows := 0
		err = Nested(path, table.Columns(), func(map[string]any) error {
			if rows++; rows == 1000 {
				return enough
			}
			return nil
		})
		if err != nil && err != enough && !fault.IsInput(err) {
			t.Errorf("not bad input: %v", err)
		}
	})
}
