package cut

import (
	"slices"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/num/layout"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/baseline"
	"shaver/internal/value/mask"
)

// Table says what a table of a pruned model keeps. A model whose fields are rows of one table has one for each field.
type Table struct {
	Name          string
	Rows          int
	Entries, Kept int
	Bytes         int64 // of the kept entries and their positions in the compact file
}

// Tables returns what the tables keep, unless nothing was chosen by entries or the bits of values differ from row to row.
func (c *Choice) Tables() (all []Table) {
	v := c.options.Form.Values
	if c.dropped == nil || v == compact.Mixed {
		return nil
	}
	a := &c.source.Checkpoint.Architecture
	fields := compact.Plan(a, c.dropped)
	for j, s := range a.Spans() {
		name, f := c.source.Scores[0].Fields[s.Field], fields[j]
		if !a.Plain() {
			name = a.Tables[s.Table].Name
		}
		n := slices.IndexFunc(all, func(t Table) bool { return t.Name == name })
		if n < 0 {
			n, all = len(all), append(all, Table{Name: name})
		}
		rows, columns := f.Sizes(s.Rows, s.Dim)
		t := &all[n]
		t.Rows, t.Entries, t.Kept, t.Bytes = t.Rows+s.Rows, t.Entries+s.Rows*s.Dim, t.Kept+f.Kept, t.Bytes+int64(rows+columns+f.Kept*v.Size())
	}
	return all
}

// SetSize sets the size of the point p of the model ck: that of its table as its file stores it. entries is the number of
// entries of the unpruned table. If one of the named sparsities drops as many entries, the point has exactly that sparsity.
func SetSize(p *sweep.Point, ck *checkpoint.Checkpoint, entries int, named ...float64) error {
	footprint, values := ck.Footprint(), compact.Float32
	p.Parameters, p.Baseline = ck.TableParameters(), baseline.Zero
	kept := p.Parameters
	switch {
	case ck.Composed != nil:
		var err error
		if footprint, err = ck.ComposedFootprint(); err != nil {
			return err
		}
	case ck.Compact != nil:
		if kept = ck.Compact.Kept(); kept < p.Parameters {
			p.Baseline = baseline.Codebook
		}
		if b := ck.Compact.Baseline(); b.Words != nil {
			p.Baseline = baseline.Words
		}
		values = ck.Compact.Encoding()
		dropped, baseline, err := ck.Pruned()
		if err != nil {
			return err
		}
		p.EmptyFeatures = mask.EmptyFeatures(&ck.Architecture, dropped)
		if values != compact.Mixed {
			footprint = ck.CompactFootprint(dropped, baseline, values)
		} else if footprint, err = ck.MixedFootprint(dropped, baseline, ck.Compact.Palette()); err != nil {
			return err
		}
		if n := len(ck.Layers); n > 0 {
			footprint.File = ck.Layers[n-1].Bytes
		}
	}
	p.Values, p.Bits = string(values), 8*values.Size()
	if values == compact.Mixed {
		p.Bits = ck.Compact.MeanBits()
	}
	p.Bytes, p.TableBytes, p.MemoryBytes = &footprint.File, &footprint.Table, &footprint.Memory
	drop := max(0, entries-kept)
	p.Sparsity = float64(drop) / float64(entries)
	for _, t := range named {
		if n, err := layout.Dropped(entries, t); err == nil && n == drop {
			p.Sparsity = t
		}
	}
	return nil
}
