package cut

import (
	"shaver/internal/click/checkpoint"
	"shaver/internal/num/loss"
)

// Layers are choices of one model, from the smallest to the largest, that share a file.
type Layers struct {
	All   []checkpoint.Layer
	masks [][]bool // dropped entries of the layers, [n, d]
}

// Add adds a choice whose budget is a sparsity, and its calibration, or nil.
func (l *Layers) Add(c *Choice, k *loss.Calibration) {
	layer := checkpoint.Layer{Sparsity: c.options.Budget.Amount}
	if k != nil {
		layer.Calibration = &checkpoint.LayerCalibration{Scale: k.Scale, Offset: k.Offset}
	}
	l.All, l.masks = append(l.All, layer), append(l.masks, c.dropped)
}

// Write writes the layers to a file. c is the last one. The sizes are those of the whole file.
func (l *Layers) Write(out string, c *Choice) (r Sizes, err error) {
	ck := c.source.Checkpoint
	r.DenseTableBytes, r.DenseBytes = ck.Footprint().Table, ck.Size()
	r.TableBytes, err = checkpoint.WriteLayers(out, ck, l.All, l.masks, c.baseline(), c.options.Form.Values)
	r.Bytes = l.All[len(l.All)-1].Bytes
	return r, err
}
