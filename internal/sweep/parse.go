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

// mostPoints limits the work that a document can cause. To label a point, Series compares it
// with all points.
const mostPoints = 10_000

// Parse decodes a document of the format Version. The document has at least one point, and
// every Source is an index in Sources. Either all points of a method have a Source or
// none has. Sparsities and AUCs are in [0, 1], and Settings are valid. Any other document
// is bad input.
func Parse(data []byte) (*Document, error) {
	var head struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fault.Inputf("not the JSON of shaver sweep: %w", err)
	}
	if head.Version != Version {
		return nil, fault.Inputf("the version of the sweep is %q, this program reads %s", head.Version, Version)
	}
	var d Document
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		return nil, fault.Inputf("not the JSON of shaver sweep: %w", err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, fault.Inputf("unexpected data after the JSON of shaver sweep")
	}
	if len(d.Points) == 0 || len(d.Points) > mostPoints {
		return nil, fault.Inputf("the sweep has %d points, expected 1 to %d", len(d.Points), mostPoints)
	}
	ranks := map[string]bool{} // by method: whether its points have a source
	for i := range d.Points {
		p := &d.Points[i]
		if by, ok := ranks[p.Method]; ok && by != (p.Source != nil) {
			return nil, fault.Inputf("point %d: some points of method %q have a source and some do not", i, p.Method)
		}
		ranks[p.Method] = p.Source != nil
		if p.Source != nil && (*p.Source < 0 || *p.Source >= len(d.Sources)) {
			return nil, fault.Inputf("point %d: source %d, expected an index below %d", i, *p.Source, len(d.Sources))
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
			return nil, fault.Inputf("settings: field minimum %v is outside [0, 1]", s.FieldMinimum)
		}
	}
	if err := d.Unpruned.check(); err != nil {
		return nil, fault.Inputf("unpruned: %w", err)
	}
	return &d, nil
}

// mostLoss is larger than any loss with float32 weights. Without this limit, drawing the
// axis of a picture might never end.
const mostLoss = 1e100

// check returns an error if m has impossible values.
func (m *Measure) check() error {
	if m.AUC != nil && !(*m.AUC >= 0 && *m.AUC <= 1) {
		return fault.Inputf("AUC %v is outside [0, 1]", *m.AUC)
	}
	losses := []float64{m.LogLoss}
	if m.CalibratedLogLoss != nil {
		losses = append(losses, *m.CalibratedLogLoss)
	}
	for _, loss := range losses {
		if !(loss >= 0 && loss <= mostLoss) {
			return fault.Inputf("LogLoss %v is outside [0, %g]", loss, mostLoss)
		}
	}
	return nil
}
