// Package deltatest makes the pruned models of consecutive nights for tests.
package deltatest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/click/train"
	"shaver/internal/data/redisrows"
)

// Churn is the portion of the rows of a model that change in a night.
const Churn = .1

// Nights writes n pruned DeepFMs to compact files in a new folder, and returns their paths. Each is a little
// different from the one before: the field items has three more ids, a portion Churn of the rows has other
// values or keeps other entries, and the head and the baseline are others. words is as in Write.
func Nights(t testing.TB, n int, v compact.Encoding, words ...int) []string {
	t.Helper()
	r := rand.New(rand.NewPCG(11, 12))
	a := model.Architecture{Kind: model.DeepFM, FieldDims: []int{40, 25, 300}, Dim: 4, Hidden: []int{6}}
	p := train.Initial(&a, false, 1)
	dropped := Mask(r, a.Parameters())
	var paths []string
	for night := range n {
		if night > 0 {
			a, p, dropped = grow(a, p, dropped, 1, 3, r)
			Change(r, p.Embedding, dropped, a.Dim)
			for i := range p.FirstOrder {
				p.FirstOrder[i] += float32(r.NormFloat64()) / 100
			}
			p.Output.Weight[0] += .01
		}
		ck := checkpoint.New(a, p)
		ck.Fields = []string{"user", "items", "site"}
		paths = append(paths, Write(t, ck, dropped, r, v, night, words...))
	}
	return paths
}

// Mask drops about three of four entries.
func Mask(r *rand.Rand, n int) []bool {
	dropped := make([]bool, n)
	for i := range dropped {
		dropped[i] = r.IntN(4) > 0
	}
	return dropped
}

// Change changes a portion Churn of the rows of a table: their values, or which entries they keep.
func Change(r *rand.Rand, table []float32, dropped []bool, dim int) {
	for row := range len(table) / dim {
		if r.Float64() >= Churn {
			continue
		}
		for i := row * dim; i < (row+1)*dim; i++ {
			switch r.IntN(3) {
			case 0:
				table[i] += float32(r.NormFloat64()) / 10
			case 1:
				dropped[i] = r.IntN(4) > 0
			case 2:
				dropped[i] = true
			}
		}
	}
}

// Write writes a night's model to a compact file in a new folder, and returns its path. The baseline differs
// from night to night. words has the largest number of words of nights in turn (default 1). One range of rows in three has one word.
// A tenth of the rows reads another word than in the night before.
func Write(t testing.TB, ck *checkpoint.Checkpoint, dropped []bool, r *rand.Rand, v compact.Encoding, night int, words ...int) string {
	t.Helper()
	baseline := ck.Architecture.Zero()
	spans := ck.Architecture.Spans()
	for i := range spans {
		for c := range spans[i].Dim {
			b := float32(r.IntN(256)) / 512
			for _, reader := range spans[i].Readers() {
				baseline.Values[reader.Baseline+c] = b
			}
		}
	}
	for i := 0; len(words) > 0 && i < len(spans); i++ {
		n := words[night%len(words)]
		if i%3 == 1 {
			n = 1
		}
		baseline.Words = append(baseline.Words, n)
		for range (n - 1) * spans[i].Dim {
			baseline.Values = append(baseline.Values, float32(r.IntN(256))/512)
		}
		for row := range spans[i].Rows {
			baseline.Numbers = append(baseline.Numbers, uint8((row/3+(night+row)/10)%n))
		}
	}
	path := filepath.Join(t.TempDir(), fmt.Sprintf("night%02d.safetensors", night))
	if v == compact.Mixed {
		writeMixed(t, path, ck, dropped, baseline)
	} else if _, err := checkpoint.WriteCompact(path, ck, dropped, baseline, v); err != nil {
		t.Fatal(err)
	}
	return path
}

// writeMixed writes a file whose rows have 8 bits, but those of pads 32, and whose network has 8 bits.
func writeMixed(t testing.TB, path string, ck *checkpoint.Checkpoint, dropped []bool, baseline model.Baseline) {
	t.Helper()
	types := map[string]checkpoint.DType{}
	for _, key := range ck.Packable() {
		types[key] = checkpoint.I8
	}
	packed, err := ck.Pack(types)
	if err != nil {
		t.Fatal(err)
	}
	spans := ck.Architecture.Spans()
	last := &spans[len(spans)-1]
	p := &compact.Palette{Quantizers: []compact.Quantizer{{Bits: 8, Origin: -8, Step: 1. / 16}, {Bits: 32}}, Rows: make([]uint8, last.Row+last.Rows)}
	for _, row := range ck.Architecture.FixedRows() {
		p.Rows[row] = 1
	}
	if _, err := checkpoint.WriteMixed(path, packed, dropped, baseline, p); err != nil {
		t.Fatal(err)
	}
}

// grow adds ids to a field of a model with one table.
func grow(a model.Architecture, p *model.Parameters, dropped []bool, field, ids int, r *rand.Rand) (model.Architecture, *model.Parameters, []bool) {
	a.FieldDims = slices.Clone(a.FieldDims)
	at := 0
	for _, n := range a.FieldDims[:field+1] {
		at += n
	}
	a.FieldDims[field] += ids
	values, mask := make([]float32, ids*a.Dim), make([]bool, ids*a.Dim)
	for i := range values {
		values[i], mask[i] = float32(r.NormFloat64()), r.IntN(2) == 0
	}
	other := *p
	other.Embedding = slices.Insert(slices.Clone(p.Embedding), at*a.Dim, values...)
	other.FirstOrder = slices.Insert(slices.Clone(p.FirstOrder), at, make([]float32, ids)...)
	return a, &other, slices.Insert(slices.Clone(dropped), at*a.Dim, mask...)
}

// WantRows compares every row in the store with the file of a night.
func WantRows(t testing.TB, s *redisrows.Store, path string) {
	t.Helper()
	ck, err := checkpoint.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	table, err := ck.Embedding()
	if err != nil {
		t.Fatal(err)
	}
	state, _, err := s.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if state.Model != ck.Digest() {
		t.Errorf("the store has the model %.12s, expected %.12s", state.Model, ck.Digest())
	}
	book := ck.Architecture.Book(ck.Compact.Baseline())
	for _, p := range ck.Pieces() {
		span := slices.IndexFunc(book.Spans, func(s model.Span) bool { return s.Row == p.Row })
		rows := make([]redisrows.Place, p.Rows)
		for i := range rows {
			rows[i] = redisrows.Place{Piece: p.Number, ID: i, Values: slices.Clone(book.Of(span, i)[p.Column:][:p.Width])}
		}
		if _, err := s.Fill(t.Context(), state, len(rows), func(i int) redisrows.Place { return rows[i] }); err != nil {
			t.Fatal(err)
		}
		for i, r := range rows {
			want := table[p.Entry+i*p.Dim+p.Column:][:p.Width]
			if !slices.EqualFunc(r.Values, want, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
				t.Fatalf("table %s, field %s, id %d: %v, expected %v", p.Name, p.Label, i, r.Values, want)
			}
		}
	}
}
