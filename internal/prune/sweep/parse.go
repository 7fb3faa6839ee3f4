package sweep

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/num/loss"
	"shaver/internal/value/estimator"
	"shaver/internal/value/mask"
)

// mostPoints and mostModels limit the work that a document can cause. To label a point, Series
// compares it with all points.
const (
	mostPoints = 10_000
	mostModels = 1000
)

// Read reads a document of at most 64 MiB from a file; see Parse. The errors of Parse do not name
// the file.
func Read(path string) (*Document, error) {
	data, err := files.Small(path, 64, "the JSON of shaver sweep")
	if err != nil {
		return nil, err
	}
	return Parse(data)
}

// Written reports whether the file at path was written by shaver sweep --out.
func Written(path string) bool {
	return bytes.HasPrefix(files.Beginning(path, 64), []byte("{\n  \"version\": \"shaver.sweep/"))
}

// Parse decodes a document of the format Version, SquaredVersion or ModelsVersion. The document has at least one point. The
// method of a point is one of Rivals, or it ranks by its Source, which is an index in
// Sources, or the point is that of its Model, which is an index in Models. Sparsities, AUCs and probabilities are in [0, 1], and intervals contain their
// values. All metrics are those of the loss. Settings are valid. All measures have the metrics of all slices, or none has. Any
// other document is bad input.
func Parse(data []byte) (*Document, error) {
	var head struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fault.Inputf("not the JSON of shaver sweep: %w", err)
	}
	if head.Version != Version && head.Version != SquaredVersion && head.Version != ModelsVersion {
		return nil, fault.Inputf("the version of the sweep is %q, this program reads %s, %s and %s", head.Version, Version, SquaredVersion, ModelsVersion)
	}
	var d Document
	if err := files.Strict(data, &d); err != nil {
		return nil, fault.Inputf("not the JSON of shaver sweep: %w", err)
	}
	if n := len(d.Models); (d.Version == ModelsVersion) != (n > 0) || n > mostModels {
		return nil, fault.Inputf("the version of the sweep is %q, and it has %d models: expected 1 to %d models with %s, and none with others", d.Version, n, mostModels, ModelsVersion)
	}
	if d.Version != VersionOf(d.Loss, len(d.Models) > 0) || d.Loss != loss.Logistic && d.Loss != loss.Squared {
		return nil, fault.Inputf("the version of the sweep is %q, but its loss is %q: expected the loss %q with %s, and none with %s", d.Version, d.Loss, loss.Squared, SquaredVersion, Version)
	}
	if len(d.Points) == 0 || len(d.Points) > mostPoints {
		return nil, fault.Inputf("the sweep has %d points, expected 1 to %d", len(d.Points), mostPoints)
	}
	for i := range d.Models {
		if err := d.Models[i].Check(); err != nil {
			return nil, fault.Inputf("model %d: %w", i, err)
		}
	}
	for i := range d.Points {
		p := &d.Points[i]
		if err := d.checkMethod(p); err != nil {
			return nil, fault.Inputf("point %d: %w", i, err)
		}
		if !(p.Sparsity >= 0 && p.Sparsity <= 1) {
			return nil, fault.Inputf("point %d: sparsity %v is outside [0, 1]", i, p.Sparsity)
		}
		if err := p.Measure.check(d.Loss, len(d.Slices)); err != nil {
			return nil, fault.Inputf("point %d: %w", i, err)
		}
		if err := p.Difference.check(d.Loss); err != nil {
			return nil, fault.Inputf("point %d: %w", i, err)
		}
	}
	if s := d.Settings; s != nil {
		if !slices.Contains(mask.Ranks(), s.Rank) {
			return nil, fault.Inputf("settings: rank %q: the ranks are %s", s.Rank, strings.Join(mask.Ranks(), " and "))
		}
		if !(s.FieldMinimum >= 0 && s.FieldMinimum <= 1) {
			return nil, fault.Inputf("settings: field minimum %v is outside [0, 1]", s.FieldMinimum)
		}
	}
	if err := d.Unpruned.check(d.Loss, len(d.Slices)); err != nil {
		return nil, fault.Inputf("unpruned: %w", err)
	}
	return &d, nil
}

// mostLoss is larger than any loss with float32 weights. Without this limit, drawing the
// axis of a picture might never end.
const mostLoss = 1e100

// checkMethod returns an error unless the point's method exists and matches its source.
func (d *Document) checkMethod(p *Point) error {
	if p.Model != nil {
		return d.checkModel(p)
	}
	if p.Source == nil {
		if p.Method != Nothing && !slices.Contains(Rivals(), p.Method) {
			return fault.Inputf("method %q without a source: expected one of %s", p.Method, strings.Join(Rivals(), ", "))
		}
		return nil
	}
	if *p.Source < 0 || *p.Source >= len(d.Sources) {
		return fault.Inputf("source %d, expected an index below %d", *p.Source, len(d.Sources))
	}
	by := &d.Sources[*p.Source].Options
	if _, ok := estimator.Lookup(by.Estimator); !ok {
		return fault.Inputf("source %d has the estimator %q: expected one of %s", *p.Source, by.Estimator, strings.Join(estimator.Names(), ", "))
	}
	_, err := d.AggregateOf(p)
	return err
}

// check returns an error if m has impossible values. n is the number of slices.
func (m *Measure) check(kind loss.Kind, n int) error {
	if err := m.Metrics.check(kind); err != nil {
		return err
	}
	for _, bytes := range []*int64{m.Bytes, m.TableBytes, m.MemoryBytes} {
		if bytes != nil && *bytes < 0 {
			return fault.Inputf("a size of %d bytes", *bytes)
		}
	}
	if (m.Bytes == nil) != (m.TableBytes == nil) || (m.Bytes == nil) != (m.MemoryBytes == nil) {
		return fault.Inputf("only some of bytes, table_bytes and memory_bytes, expected all or none")
	}
	for i, bin := range m.CalibrationCurve {
		for _, p := range []*float64{&bin.Predicted, &bin.Observed, bin.Calibrated} {
			if p != nil && kind == loss.Squared && math.Abs(*p) > mostLoss {
				return fault.Inputf("calibration curve, bin %d: the output %v is outside ±%g", i, *p, mostLoss)
			}
			if p != nil && kind != loss.Squared && !(*p >= 0 && *p <= 1) || bin.Rows < 1 {
				return fault.Inputf("calibration curve, bin %d: %d rows and the probability %v, expected at least 1 row and a probability in [0, 1]", i, bin.Rows, *p)
			}
		}
	}
	if len(m.Slices) > 0 && len(m.Slices) != n {
		return fault.Inputf("metrics of %d slices, expected %d", len(m.Slices), n)
	}
	for i := range m.Slices {
		s := &m.Slices[i]
		if err := cmp.Or(s.Metrics.check(kind), s.Difference.check(kind)); err != nil {
			return fault.Inputf("slice %d: %w", i, err)
		}
	}
	return nil
}

// check returns an error if m has impossible values.
func (m *Metrics) check(kind loss.Kind) error {
	own, other := []*float64{m.LogLoss, m.CalibratedLogLoss}, []*float64{m.RMSE, m.MAE, m.CalibratedRMSE, m.AUC, m.GAUC}
	name := "LogLoss"
	if kind == loss.Squared {
		own, other = []*float64{m.RMSE, m.MAE, m.CalibratedRMSE}, []*float64{m.LogLoss, m.CalibratedLogLoss, m.AUC, m.GAUC}
		name = "RMSE or MAE"
	} else {
		other = other[:3]
	}
	if own[0] == nil || slices.ContainsFunc(other, func(v *float64) bool { return v != nil }) {
		return fault.Inputf("the metrics are not those of the loss %s", kind.Name())
	}
	for _, auc := range []*float64{m.AUC, m.GAUC} {
		if auc != nil && !(*auc >= 0 && *auc <= 1) {
			return fault.Inputf("AUC %v is outside [0, 1]", *auc)
		}
	}
	for _, v := range own {
		if v != nil && !(*v >= 0 && *v <= mostLoss) {
			return fault.Inputf("%s %v is outside [0, %g]", name, *v, mostLoss)
		}
	}
	return nil
}

// check returns an error if d has impossible values.
func (d *Differences) check(kind loss.Kind) error {
	if d == nil {
		return nil
	}
	if (d.RMSE != nil) != (kind == loss.Squared) || (d.LogLoss != nil) == (kind == loss.Squared) {
		return fault.Inputf("the differences are not those of the loss %s", kind.Name())
	}
	for _, of := range []*Interval{d.AUC, d.GAUC, d.LogLoss, d.CalibratedLogLoss, d.RMSE, d.CalibratedRMSE} {
		switch {
		case of == nil:
		case (of.Low == nil) != (of.High == nil):
			return fault.Inputf("an interval has only one end, expected both or none")
		case of.Low != nil && !(*of.Low <= of.Value && of.Value <= *of.High && *of.Low >= -mostLoss && *of.High <= mostLoss):
			return fault.Inputf("interval [%v, %v] of the difference %v: expected an interval that contains it, within ±%g", *of.Low, *of.High, of.Value, mostLoss)
		case !(math.Abs(of.Value) <= mostLoss):
			return fault.Inputf("difference %v is outside ±%g", of.Value, mostLoss)
		}
	}
	return nil
}
