package checkpoint

import (
	"maps"

	"shaver/internal/base/fault"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
)

// The compact form of version 5 is that of compact.Mixed. The tensors below replace the
// tables. What the other versions say in metaFields and the codebook, the positions say.
const (
	tensorPalette   = "shaver.palette"   // U8 [9 * quantizers]: compact.PackQuantizers
	tensorPositions = "shaver.positions" // U8 [bytes]
	// tensorValues is U8 [bytes].

	mixedVersion = "5" // of a model of any kind
)

// WriteMixed is WriteCompact for compact.Mixed, with the palette p.
func WriteMixed(path string, c *Checkpoint, dropped []bool, baseline model.Baseline, p *compact.Palette) (int64, error) {
	f, _, err := c.mixed(dropped, baseline, p)
	if err != nil {
		return 0, err
	}
	if err := f.Seal(metaDigest); err != nil {
		return 0, err
	}
	return writeWhole(path, f)
}

// MixedFootprint returns the footprint of the file of WriteMixed, or its error.
func (c *Checkpoint) MixedFootprint(dropped []bool, baseline model.Baseline, p *compact.Palette) (Footprint, error) {
	f, parts, err := c.mixed(dropped, baseline, p)
	if err != nil {
		return Footprint{}, err
	}
	table, err := compact.New(&c.Architecture, compact.Mixed, parts)
	if err != nil {
		return Footprint{}, err
	}
	return Footprint{File: f.Size(), Table: int64(parts.Bytes()), Memory: table.Memory()}, nil
}

// mixed returns the file of WriteMixed without its digest.
func (c *Checkpoint) mixed(dropped []bool, baseline model.Baseline, p *compact.Palette) (*tensor.File, *compact.Parts, error) {
	table, err := c.floats(c.EmbeddingKey)
	if err != nil {
		return nil, nil, err
	}
	parts, err := compact.EncodeMixed(&c.Architecture, table, dropped, baseline, p)
	if err != nil {
		return nil, nil, c.inputf("%w", err)
	}
	tensors := maps.Clone(c.Tensors)
	delete(tensors, c.EmbeddingKey)
	for key, data := range map[string][]byte{tensorPalette: compact.PackQuantizers(parts.Quantizers), tensorPositions: parts.Positions, tensorValues: parts.Values} {
		tensors[key] = bytesTensor(data)
	}
	version := mixedVersion
	if len(parts.Words) > 0 {
		tensors[tensorWords], version = bytesTensor(parts.Words), wordsVersion
	}
	some := map[string]string{}
	c.pack(tensors, some)
	return c.compactWith(tensors, version, some), parts, nil
}

// isMixed reports whether metadata are those of a compact file of compact.Mixed.
func isMixed(metadata map[string]string) bool {
	_, fields := metadata[metaFields]
	return metadata[metaCompact] == mixedVersion || metadata[metaCompact] == wordsVersion && !fields
}

// takeMixed sets Compact from the tensors of version 5 and the words in parts, and removes them.
func (c *Checkpoint) takeMixed(a *model.Architecture, metadata map[string]string, parts *compact.Parts) (err error) {
	if _, ok := metadata[metaFields]; ok {
		return fault.Inputf("metadata %s: version %s has none", metaFields, mixedVersion)
	}
	take := func(key string) (data []byte) {
		t, ok := c.Tensors[key]
		if err == nil && (!ok || t.DType != U8 || len(t.Shape) != 1) {
			err = fault.Inputf("expected tensor %s of type U8 and shape %s, found %s %s", key, tensor.ShapeText([]int{tensor.AnySize}), t.DType, tensor.ShapeText(t.Shape))
		}
		delete(c.Tensors, key)
		return t.Data
	}
	palette := take(tensorPalette)
	parts.Positions, parts.Values = take(tensorPositions), take(tensorValues)
	if err != nil {
		return err
	}
	if parts.Quantizers, err = compact.UnpackQuantizers(palette); err != nil {
		return fault.Inputf("tensor %s has %w", tensorPalette, err)
	}
	if c.Compact, err = compact.New(a, compact.Mixed, parts); err != nil {
		return fault.Inputf("%w", err)
	}
	return nil
}
