package worth

import (
	"cmp"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/data/columnfile"
	"shaver/internal/jobs/scores"
)

// IDs returns what each id of the tables is worth, in the order of the rows of the tables. From the order of a
// path, the worth of an id is the sparsity at which its last entry goes, above 0 and at most 1. From values it is the sum of
// the named aggregate over its entries, nat; with scores.Sum this is the loss without the id, on average over all rows.
//
// The score of an id is its position in the order of worth, from 1, where ids of the same worth have the same
// score. The pads of lists have the largest score, because no method drops them. The key of an id is the id.
func IDs(f *scores.File, aggregate string) ([]columnfile.WorthID, error) {
	if err := f.CheckEntries(); err != nil {
		return nil, err
	}
	values, err := f.Aggregate(aggregate)
	if err != nil {
		return nil, err
	}
	a := &f.Layout
	pads := map[int]bool{}
	for _, row := range a.FixedRows() {
		pads[row] = true
	}
	var ids []columnfile.WorthID
	byTable := 0 // rows of the tables before
	table := 0
	for _, s := range a.Spans() {
		name := f.Fields[s.Field]
		first := 0
		if !a.Plain() {
			for ; table < s.Table; table++ {
				byTable += a.Tables[table].Rows
			}
			name, first = a.Tables[s.Table].Name, s.Row-byTable
		}
		for id := range s.Rows {
			w := columnfile.WorthID{Table: name, Field: f.Fields[s.Field], ID: int64(first + id), Key: int64(first + id), Count: f.Count[s.Row+id], Bytes: 4 * int64(s.Dim), Pad: pads[s.Row+id]}
			for _, v := range values[s.Entry+id*s.Dim:][:s.Dim] {
				if f.Path != nil {
					w.Worth = max(w.Worth, (v+1)/float64(len(values)))
				} else {
					w.Worth += v
				}
			}
			ids = append(ids, w)
		}
	}
	order := make([]int, len(ids))
	for i := range order {
		order[i] = i
	}
	less := func(i, j int) int {
		x, y := &ids[i], &ids[j]
		if x.Pad || y.Pad {
			return boolean(x.Pad) - boolean(y.Pad)
		}
		return cmp.Compare(x.Worth, y.Worth)
	}
	slices.SortFunc(order, less)
	for k, i := range order {
		ids[i].Score = int64(k + 1)
		if k > 0 && less(order[k-1], i) == 0 {
			ids[i].Score = ids[order[k-1]].Score
		}
	}
	return ids, nil
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Threshold says which ids a store keeps.
type Threshold struct {
	Score int64   `json:"score"` // the least score of an id that is kept
	Worth float64 `json:"worth"` // the least worth of an id that is kept, pads excepted; 0 without any
	IDs   int64   `json:"ids"`   // number of ids with at least this score
	Bytes int64   `json:"bytes"` // of their rows, as float32
}

// Cut returns the threshold that keeps as many ids as possible, but at most a number of ids, and rows of at most a
// number of bytes. 0 means no limit. If the pads alone exceed a limit, it is bad input.
func Cut(ids []columnfile.WorthID, mostIDs, mostBytes int64) (*Threshold, error) {
	order := slices.Clone(ids)
	slices.SortFunc(order, func(x, y columnfile.WorthID) int { return -cmp.Compare(x.Score, y.Score) })
	t := &Threshold{}
	if len(order) > 0 {
		t.Score = order[0].Score + 1
	}
	for from := 0; from < len(order); {
		next := Threshold{Score: order[from].Score, IDs: t.IDs, Bytes: t.Bytes, Worth: t.Worth}
		to := from
		for ; to < len(order) && order[to].Score == next.Score; to++ {
			next.IDs++
			next.Bytes += order[to].Bytes
			if !order[to].Pad {
				next.Worth = order[to].Worth
			}
		}
		if mostIDs > 0 && next.IDs > mostIDs || mostBytes > 0 && next.Bytes > mostBytes {
			if order[from].Pad {
				return nil, fault.Inputf("the pads of the lists alone take %d ids and %d bytes: expected a larger limit", next.IDs, next.Bytes)
			}
			break
		}
		*t, from = next, to
	}
	return t, nil
}
