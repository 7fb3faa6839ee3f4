package cut

import (
	"context"
	"fmt"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/data/measure"
	"shaver/internal/num/loss"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/mask"
)

// Calibration fits the calibration of the pruned model on the validation split of the dataset, with the values that the file
// stores. read takes the number of rows that were read, and that of all.
func (c *Choice) Calibration(ctx context.Context, read func(done, rows int64)) (*loss.Calibration, error) {
	o, s := c.options, c.source
	m, table, err := c.pruned()
	if err != nil {
		return nil, err
	}
	kind := "" // that of the labels
	if o.Scores != "" {
		kind = s.loss()
	}
	b, err := measure.Open(o.Dataset, dataset.Val, kind, m, s.Checkpoint.Known())
	if err != nil {
		return nil, err
	}
	done := int64(0)
	predictions, err := b.Predict(ctx, m.WithEmbedding(table), func(rows int) {
		done += int64(rows)
		read(done, b.Rows)
	})
	if err != nil {
		return nil, err
	}
	if predictions.OneKind() {
		return nil, fault.Inputf("the labels of the validation split are all the same: calibration needs both")
	}
	if !c.measured && predictions.Doubt() != "" {
		whole, err := b.Predict(ctx, m, nil)
		if err != nil {
			return nil, err
		}
		o.doubt(whole)
	}
	calibration := evaluate.Calibrate(predictions)
	if calibration.Scale <= evaluate.LeastScale && o.Warn != nil {
		o.Warn(fmt.Sprintf("dataset %s: the labels of the validation split do not rise with the output of the pruned model, so the calibrated model predicts nearly the same for all rows: check that the labels are what the model was trained to predict, or prune less", strings.Join(o.Dataset, ", ")))
	}
	return &calibration, nil
}

// doubt warns if predictions of the whole model are worse than a constant.
func (o *Options) doubt(whole *evaluate.Predictions) { o.warn(o.Model+" ", whole.Doubt()) }

// pruned returns the model and the tables that a reader of the file gets.
func (c *Choice) pruned() (*model.Model, []float32, error) {
	s := c.source
	ck := s.Checkpoint
	if c.rounded != nil {
		var err error
		if ck, err = packed(ck, c.rounded.types, c.options.Form.CompactONNX); err != nil {
			return nil, nil, err
		}
	}
	m, err := ck.Model()
	if err != nil {
		return nil, nil, err
	}
	var table []float32
	if c.rounded != nil {
		table, _, err = values(s, c.rounded.Found)
	} else {
		table, err = sweep.Pruned(&m.Architecture, s.Table, c.dropped, s.Scores[0].Baseline, c.options.Form.Values)
	}
	return m, table, err
}

// baseline returns what dropped entries read, before rounding.
func (c *Choice) baseline() (b model.Baseline) {
	if c.rounded != nil {
		return c.rounded.Baseline
	}
	if c.source.Scores != nil {
		b = c.source.Scores[0].Baseline
	}
	return b
}

// Model returns the digest of the model that is pruned.
func (c *Choice) Model() string {
	origins := c.source.Checkpoint.Origins
	return origins[len(origins)-1]
}

// Write writes the pruned model to a file, calibrated by k unless that is nil. The sizes before are those of the whole model.
func (c *Choice) Write(out string, k *loss.Calibration) (r Sizes, err error) {
	s, form, factor, whole := c.source, &c.options.Form, float32(1), c.source.Checkpoint
	ck, onnx := s.Checkpoint, checkpoint.ONNXOptions{}
	if s.part != nil {
		whole = s.part.whole.Checkpoint
	}
	baseline := c.baseline()
	r = form.sizes(ck, c.dropped, baseline, out)
	r.DenseTableBytes, r.DenseBytes = whole.Footprint().Table, whole.Size()
	switch {
	case k == nil:
	case checkpoint.NamedONNX(out):
		onnx.Scale, onnx.Offset = k.Scale, k.Offset
	default: // multiplies each row by a number
		if ck, factor, err = ck.Calibrated(k.Scale, k.Offset); err != nil {
			return r, err
		}
		baseline = baseline.Scaled(factor)
	}
	switch {
	case s.Scores == nil && checkpoint.NamedONNX(out):
		r.Bytes, err = checkpoint.WriteNewONNX(out, ck)
	case s.Scores == nil:
		r.Bytes, err = checkpoint.WriteDense(out, ck)
	case checkpoint.NamedONNX(out) && form.CompactONNX:
		onnx.Kept = &checkpoint.Kept{Dropped: c.dropped, Baseline: baseline, Values: form.Values}
		if c.rounded != nil {
			onnx.Kept.Palette, onnx.Kept.Weights8 = c.rounded.Palette, weights8(c.rounded.types)
		}
		err = r.writeONNX(out, ck, onnx)
	case c.rounded != nil:
		r.TableBytes, r.Bytes, err = c.writeRounded(out, ck, baseline, factor)
	case form.compact(out):
		r.Bytes, err = checkpoint.WriteCompact(out, ck, c.dropped, baseline, form.Values)
	default:
		var table []float32
		if table, err = ck.Embedding(); err != nil {
			return r, err
		}
		if ck = ck.WithEmbedding(mask.Apply(&ck.Architecture, table, c.dropped, baseline)); checkpoint.NamedONNX(out) {
			err = r.writeONNX(out, ck, onnx)
		} else {
			r.Bytes, err = checkpoint.WriteDense(out, ck)
		}
	}
	switch {
	case c.Sliced == nil:
	case c.options.bounded():
		c.Path[len(c.Path)-1].Bytes = r.Bytes
	default:
		c.After.Bytes = r.Bytes
	}
	return r, err
}

// writeRounded writes ck, whose tables were multiplied by a factor, with the bits of c, and returns the bytes of the tables and of the file.
func (c *Choice) writeRounded(out string, ck *checkpoint.Checkpoint, baseline model.Baseline, factor float32) (table, file int64, err error) {
	if ck, err = ck.Pack(c.rounded.types); err != nil {
		return 0, 0, err
	}
	palette := c.rounded.scaled(factor)
	size, err := ck.MixedFootprint(c.dropped, baseline, palette)
	if err != nil {
		return 0, 0, err
	}
	file, err = checkpoint.WriteMixed(out, ck, c.dropped, baseline, palette)
	return size.Table, file, err
}
