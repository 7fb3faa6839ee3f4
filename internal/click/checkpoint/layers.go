package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/base/seal"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
)

// The compact form of version 7 has several pruned models in layers, of which each adds entries to those before. The
// beginning of the file through the end of any layer is a model. The tensors below, followed by the number of a layer, replace
// those of the entries and the words. The digest of the file covers the header, which has those of the layers.
const (
	tensorLayerValues    = "shaver.values."    // F32 or F16 [entries of the layer]
	tensorLayerPositions = "shaver.positions." // U8 [bytes]: compact.Layer.Positions
	tensorLayerWords     = "shaver.words."     // U8 [bytes]: compact.Parts.Words of the model

	metaLayers = "shaver.layers" // JSON array with one Layer for each layer

	layersVersion = "7"
)

// Layer describes a layer, and the model that it makes with those before.
type Layer struct {
	Bytes       int64             `json:"bytes,omitempty"` // number of bytes of the file through the layer; not in the file
	End         int64             `json:"end"`             // Bytes without those of the header
	SHA256      string            `json:"sha256"`          // digest of the bytes from the end of the header, or of the layer before, to End
	Sparsity    float64           `json:"sparsity"`        // that the user asked for
	Kept        int               `json:"kept"`            // number of kept entries
	Calibration *LayerCalibration `json:"calibration,omitempty"`
}

// LayerCalibration says how the weights of the file become those of the model: by Checkpoint.Calibrated.
type LayerCalibration struct {
	Scale  float64 `json:"scale"`
	Offset float64 `json:"offset"`
	Table  float32 `json:"table"` // factor of the tables
}

// WriteLayers writes c, pruned in several ways, to path, all of it or nothing. masks have the dropped entries of each layer,
// [Parameters], which read baseline. The model of a layer is that of WriteCompact for its mask and for c after its calibration. Of
// layers WriteLayers reads the sparsity, scale and offset, and sets everything else. It returns the number of bytes of the tables.
func WriteLayers(path string, c *Checkpoint, layers []Layer, masks [][]bool, baseline model.Baseline, v compact.Encoding) (tables int64, err error) {
	table, err := c.floats(c.EmbeddingKey)
	if err != nil {
		return 0, err
	}
	added, err := compact.EncodeLayers(&c.Architecture, table, masks, baseline, v)
	if err != nil {
		return 0, c.inputf("%w", err)
	}
	tensors := maps.Clone(c.Tensors)
	delete(tensors, c.EmbeddingKey)
	tensors[tensorCodebook] = tensor.FromFloat32s([]int{len(baseline.Values)}, baseline.Values)
	f := c.compactWith(tensors, layersVersion, nil)
	from, end, kept := 0, int64(0), 0
	for k := range layers {
		add := func(key string, t Tensor) {
			f.Entries = append(f.Entries, tensor.Entry{Key: fmt.Sprint(key, k), Tensor: t})
		}
		l, b := &layers[k], baseline
		if l.Calibration != nil {
			if _, l.Calibration.Table, err = c.Calibrated(l.Calibration.Scale, l.Calibration.Offset); err != nil {
				return 0, err
			}
			if l.Calibration.Table != 1 && v != compact.Float32 {
				return 0, fault.Usagef("the calibration of a %s multiplies its table, and %s would round the values of each layer otherwise: expected %s, or no calibration", c.Architecture.Kind, v, compact.Float32)
			}
		}
		if words := compact.Words(&c.Architecture, masks[k], &b); len(words) > 0 {
			add(tensorLayerWords, bytesTensor(words))
		}
		n := len(added[k].Values) / v.Size()
		add(tensorLayerValues, Tensor{DType: valueTypes[v], Shape: []int{n}, Data: added[k].Values})
		add(tensorLayerPositions, bytesTensor(added[k].Positions))
		sum := sha256.New()
		for _, e := range f.Entries[from:] {
			_, _ = sum.Write(e.Data) // a hash returns no error
			if end += int64(len(e.Data)); strings.HasPrefix(e.Key, ownTensors) {
				tables += int64(len(e.Data))
			}
		}
		from, kept = len(f.Entries), kept+n
		l.End, l.SHA256, l.Kept = end, hex.EncodeToString(sum.Sum(nil)), kept
	}
	f.Metadata[metaLayers] = string(mustMarshal(layers))
	head := f.Header()
	f.Metadata[metaDigest], _ = seal.Of(func(w io.Writer) error { // a hash returns no error
		_, err := w.Write(head)
		return err
	})
	for k := range layers {
		layers[k].Bytes = int64(len(head)) + layers[k].End
	}
	_, err = writeWhole(path, f)
	return tables, err
}

// inLayers reports whether the text of a header may be that of a file of WriteLayers.
func inLayers(text []byte) bool { return bytes.Contains(text, []byte(`"`+metaLayers+`"`)) }

// ReadLayers returns the layers of a file of WriteLayers, of which data has at least the header, and the header with its length. Another
// file has no layers. ReadLayers does not check the digests of layers.
func ReadLayers(name string, data []byte) (layers []Layer, head []byte, err error) {
	if len(data) < 8 {
		return nil, nil, fault.Inputf("%s has %d bytes, expected at least the 8 bytes that say how many the header has", name, len(data))
	}
	length := binary.LittleEndian.Uint64(data)
	if length > min(tensor.MaxHeader, uint64(len(data)-8)) {
		return nil, nil, fault.Inputf("%s has %d bytes, expected at least %d with those of its header", name, len(data), 8+length)
	}
	if head = data[:8+length]; !inLayers(head) {
		return nil, nil, nil
	}
	_, _, metadata, err := tensor.ParseHeader(head[8:])
	if err != nil || metadata[metaCompact] != layersVersion {
		return nil, nil, nil // a reader of other files says what is wrong
	}
	if err := seal.Check("the header of "+name, bytes.NewReader(head), metadata[metaDigest]); err != nil {
		return nil, nil, err
	}
	if layers, err = arrayIn[Layer](metadata, metaLayers, "layers"); err != nil {
		return nil, nil, fault.Inputf("%s: %w", name, err)
	}
	end := int64(0)
	for k := range layers {
		l := &layers[k]
		if s := l.Calibration; k >= compact.MaxLayers || l.End < end || l.End > 1<<60 || s != nil && !(s.Scale > 0 && s.Table > 0) {
			return nil, nil, fault.Inputf("%s: layer %d ends at byte %d after byte %d, with the calibration %+v: expected at most %d layers with ascending ends, and factors above 0", name, k, l.End, end, s, compact.MaxLayers)
		}
		end, l.Bytes = l.End, int64(len(head))+l.End
	}
	return layers, head, nil
}

// parseLayers returns what tensor.Parse does of a file of WriteLayers, or of the beginning of one, without the tensors after the last
// whole layer. It sets Layers. There are no entries if data is another file.
func (c *Checkpoint) parseLayers(data []byte) (entries []tensor.Entry, metadata map[string]string, err error) {
	layers, head, err := ReadLayers(c.name, data)
	if err != nil || layers == nil {
		return nil, nil, err
	}
	from, last := int64(len(head)), layers[len(layers)-1]
	for k, l := range layers {
		if l.Bytes > int64(len(data)) {
			break
		}
		if sum := sha256.Sum256(data[from:l.Bytes]); hex.EncodeToString(sum[:]) != l.SHA256 {
			return nil, nil, c.inputf("is damaged: the content of layer %d does not match its digest", k)
		}
		from, c.Layers = l.Bytes, layers[:k+1]
	}
	if c.Layers == nil || int64(len(data)) > last.Bytes {
		return nil, nil, c.inputf("the file has %d bytes, expected %d for the first layer to %d for all", len(data), layers[0].Bytes, last.Bytes)
	}
	all, places, metadata, err := tensor.Placed(c.name, head[8:], last.End)
	for i, e := range all {
		if at := int64(places[i][1]) + int64(len(head)); at <= from {
			e.Data = data[at-int64(places[i][1]-places[i][0]) : at : at]
			entries = append(entries, e)
		}
	}
	return entries, metadata, err
}

// takeLayers sets Compact from the tensors of version 7, and removes them.
func (c *Checkpoint) takeLayers(a *model.Architecture, _ map[string]string, _ *compact.Parts) (err error) {
	take := func(key string, t DType) Tensor {
		found, ok := c.Tensors[key]
		if err == nil && (!ok || found.DType != t) {
			err = fault.Inputf("expected tensor %s of type %s, found %s", key, t, found.DType)
		}
		return found
	}
	v, factor := compact.Float32, float32(1)
	if c.Tensors[fmt.Sprint(tensorLayerValues, 0)].DType == F16 {
		v = compact.Float16
	}
	var layers []compact.Layer
	for k, l := range c.Layers {
		layers = append(layers, compact.Layer{Values: take(fmt.Sprint(tensorLayerValues, k), valueTypes[v]).Data, Positions: take(fmt.Sprint(tensorLayerPositions, k), U8).Data})
		if factor = 1; l.Calibration != nil {
			factor = l.Calibration.Table
		}
	}
	codebook := take(tensorCodebook, F32)
	if err == nil && factor != 1 && v != compact.Float32 {
		err = fault.Inputf("values of type %s have the factor %v, expected 1", v, factor)
	}
	if err != nil {
		return err
	}
	values, err := codebook.Float32s()
	if err != nil {
		return fault.Inputf("tensor %s %w", tensorCodebook, err)
	}
	parts, err := compact.Union(a, v, layers, factor)
	if err == nil {
		parts.Baseline, parts.Words = model.Baseline{Values: values}.Scaled(factor), c.Tensors[fmt.Sprint(tensorLayerWords, len(layers)-1)].Data
		c.Compact, err = compact.New(a, v, parts)
	}
	if err != nil {
		return fault.Inputf("%w", err)
	}
	maps.DeleteFunc(c.Tensors, func(key string, _ Tensor) bool { return strings.HasPrefix(key, ownTensors) })
	return nil
}

// calibrateLayer returns c, whose tables are those of its last layer, with the other weights of this layer.
func (c *Checkpoint) calibrateLayer() (*Checkpoint, error) {
	if len(c.Layers) == 0 || c.Layers[len(c.Layers)-1].Calibration == nil {
		return c, nil
	}
	k := c.Layers[len(c.Layers)-1].Calibration
	changed, table, err := c.Calibrated(k.Scale, k.Offset)
	if err == nil && table != k.Table {
		err = c.inputf("the calibration multiplies the tables by %v, expected %v", table, k.Table)
	}
	if err != nil {
		return nil, err
	}
	changed.Compact = c.Compact
	return changed, nil
}
