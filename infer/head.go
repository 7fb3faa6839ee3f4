package infer

import (
	"sync"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
)

// Head is a model whose embedding rows are in a store, such as a parameter server. Any number of
// goroutines may use it at once. OpenHead returns a Head.
type Head struct {
	model   *Model
	pieces  [][]checkpoint.Piece // by the number of the span
	batches sync.Pool            // *batch
}

// batch is temporary memory for one call of Head.Logits.
type batch struct {
	*model.Scorer
	rows     model.Rows
	gathered *compact.Gathered
	stored   []Row
}

// Row is a row of an embedding table that a batch reads.
type Row struct {
	Piece int    // number of the line in baseline.parquet of the delta, from 0
	Table string // name of the table
	First int    // number of the table's row that has the id 0
	ID    int    // within the piece, so that First + ID is the number of the row in its table
	// Values is what Logits reads. It has the values of the baseline, and the function that fetches rows sets the
	// entries that the store has.
	Values []float32
}

// OpenHead opens the head of a delta, which is the file head.safetensors. name stands for it in errors. data must
// not be changed afterwards.
func OpenHead(name string, data []byte) (*Head, error) {
	ck, err := checkpoint.ParseHead(name, data)
	if err != nil {
		return nil, err
	}
	if ck.Compact == nil {
		return nil, fault.Inputf("%s is not the head of a delta: expected a compact model", name)
	}
	m, err := ck.Model()
	if err != nil {
		return nil, err
	}
	book := m.Book(ck.Compact.Baseline())
	h := &Head{model: newModel(name, newServed(m, ck.Known())), pieces: make([][]checkpoint.Piece, len(book.Spans))}
	number := map[int]int{} // of the spans, by their first rows
	for i, s := range book.Spans {
		number[s.Row] = i
	}
	for _, p := range ck.Pieces() {
		h.pieces[number[p.Row]] = append(h.pieces[number[p.Row]], p)
	}
	h.batches.New = func() any {
		g := compact.NewGathered(&m.Architecture, book)
		return &batch{Scorer: m.WithEmbedder(g).NewScorer(), rows: model.Rows{Width: m.Width(), Inputs: len(m.Dense)}, gathered: g}
	}
	return h, nil
}

// Model returns what Fields, Sizes, Lengths, Pads, PadsFront and DenseInputs say of the model. Its Logits return ErrClosed.
func (h *Head) Model() *Model { return h.model }

// Logits is like Model.Logits. It calls fetch once with the distinct rows of the tables that the batch reads, and
// reads the values that fetch has set. If fetch returns an error, Logits returns it and leaves dst
// unchanged. The rows belong to Logits again when fetch returns.
func (h *Head) Logits(dst []float64, ids []int32, dense []float32, fetch func(rows []Row) error) error {
	b := h.batches.Get().(*batch)
	defer h.batches.Put(b)
	if err := h.model.take(&b.rows, len(dst), ids, dense); err != nil {
		return err
	}
	b.gathered.Collect(b.rows.Features)
	b.stored = b.stored[:0]
	for i := range b.gathered.Len() {
		span, row, values := b.gathered.Row(i)
		for _, p := range h.pieces[span] {
			b.stored = append(b.stored, Row{p.Number, p.Name, p.From, row, values[p.Column:][:p.Width]})
		}
	}
	if err := fetch(b.stored); err != nil {
		return err
	}
	b.Scorer.Logits(dst, &b.rows)
	return nil
}
