package sweep

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"

	"shaver/internal/fault"
	"shaver/internal/prune"
)

// mostPoints bounds what a document can ask for: to label what differs, Series looks at
// all of them.
const mostPoints = 10_000

// Parse reads a document of Version. What it returns has at least one point, every
// point's source among its sources, a source for all points of a method or for none,
// sparsities in [0, 1], and settings that there are; everything else is bad input.
func Parse(data []byte) (*Document, error) {
	var head struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fault.Inputf("not the JSON of shaver sweep: %w", err)
	}
	if head.Version != Version {
		return nil, fault.Inputf("its version is %q, this program reads %s", head.Version, Version)
	}
	var d Document
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		return nil, fault.Inputf("not the JSON of shaver sweep: %w", err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, fault.Inputf("there is more behind the document")
	}
	if len(d.Points) == 0 || len(d.Points) > mostPoints {
		return nil, fault.Inputf("it has %d points, expected 1 to %d", len(d.Points), mostPoints)
	}
	ranks := map[string]bool{} // of a method, by scores
	for i := range d.Points {
		p := &d.Points[i]
		if by, ok := ranks[p.Method]; ok && by != (p.Source != nil) {
			return nil, fault.Inputf("point %d: of method %q some points have a source and some have none", i, p.Method)
		}
		ranks[p.Method] = p.Source != nil
		if p.Source != nil && (*p.Source < 0 || *p.Source >= len(d.Sources)) {
			return nil, fault.Inputf("point %d: source %d is none of its %d sources", i, *p.Source, len(d.Sources))
		}
		if !(p.Sparsity >= 0 && p.Sparsity <= 1) {
			return nil, fault.Inputf("point %d: sparsity %v is outside [0, 1]", i, p.Sparsity)
		}
		if err := p.check(); err != nil {
			return nil, fault.Inputf("point %d: %w", i, err)
		}
	}
	if s := d.Settings; s != nil {
		if !slices.Contains(prune.Ranks(), s.Rank) {
			return nil, fault.Inputf("settings: rank %q: the ranks are %s", s.Rank, strings.Join(prune.Ranks(), " and "))
		}
		if !(s.FieldMinimum >= 0 && s.FieldMinimum <= 1) {
			return nil, fault.Inputf("settings: a field's minimum of %v is outside [0, 1]", s.FieldMinimum)
		}
	}
	if err := d.Unpruned.check(); err != nil {
		return nil, fault.Inputf("unpruned: %w", err)
	}
	return &d, nil
}

// mostLoss is beyond every loss of float32 weights. A picture's axis up to the largest
// float64 would never be drawn.
const mostLoss = 1e100

// check reports what no measure can be.
func (m *Measure) check() error {
	if m.AUC != nil && !(*m.AUC >= 0 && *m.AUC <= 1) {
		return fault.Inputf("an AUC of %v is outside [0, 1]", *m.AUC)
	}
	losses := []float64{m.LogLoss}
	if m.CalibratedLogLoss != nil {
		losses = append(losses, *m.CalibratedLogLoss)
	}
	for _, loss := range losses {
		if !(loss >= 0 && loss <= mostLoss) {
			return fault.Inputf("a LogLoss of %v is outside [0, %g]", loss, mostLoss)
		}
	}
	return nil
}
