package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/base/seal"
	"shaver/internal/click/checkpoint/family"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
)

// The compact form of a pruned model is a safetensors file in which the tensors below
// replace the embedding table [n, d], or all tables of a model with look-ups. Their bytes
// are those of compact.Parts. The metadata hold the key of the tables' tensor and how each
// field is stored.
const (
	tensorValues   = "shaver.values"   // F32, F16, or U8 for Int8: [kept]
	tensorSteps    = "shaver.steps"    // F32 [fields, 2]; only for Int8
	tensorCodebook = "shaver.codebook" // F32 [m, d]; [values of the baseline] if there are look-ups or several words
	tensorRows     = "shaver.rows"     // U8 [bytes]
	tensorColumns  = "shaver.columns"  // U8 [bytes]
	tensorWords    = "shaver.words"    // U8 [bytes]; only if a field has several words

	metaCompact      = "shaver.compact" // version of the compact form
	metaEmbeddingKey = "shaver.embedding_key"
	metaFields       = "shaver.fields" // JSON array with one compact.Field for each span of the architecture
	metaDigest       = "shaver.digest" // digest of the file; see package seal

	wordsVersion    = "6" // of a model of any kind and encoding, with several words
	graphVersion    = "4" // of a model of Kind Graph
	compactVersion  = "3" // of any other model
	unsealedVersion = "2" // an older version, which is still read; its files have no digest
	ownTensors      = "shaver."
)

// valueTypes maps each encoding of the kept values to its tensor type.
var valueTypes = map[compact.Encoding]DType{compact.Float32: F32, compact.Float16: F16, compact.Int8: U8}

// compactFile returns the compact file of c with the given fields and compact.Parts.Words. values is the number of values of the
// baseline. The other tensors that replace the table have no data yet.
func (c *Checkpoint) compactFile(fields []compact.Field, v compact.Encoding, words []byte, values int) *tensor.File {
	a := &c.Architecture
	spans := a.Spans()
	rows, columns, kept := 0, 0, 0
	for j, f := range fields {
		r, c := f.Sizes(spans[j].Rows, spans[j].Dim)
		rows, columns, kept = rows+r, columns+c, kept+f.Kept
	}
	tensors := maps.Clone(c.Tensors)
	delete(tensors, c.EmbeddingKey)
	tensors[tensorValues] = Tensor{DType: valueTypes[v], Shape: []int{kept}}
	tensors[tensorCodebook] = Tensor{DType: F32, Shape: codebookShape(a)}
	tensors[tensorRows] = Tensor{DType: U8, Shape: []int{rows}}
	tensors[tensorColumns] = Tensor{DType: U8, Shape: []int{columns}}
	if v == compact.Int8 {
		tensors[tensorSteps] = Tensor{DType: F32, Shape: []int{len(fields), 2}}
	}
	version := compactVersion
	if a.Kind == model.Graph {
		version = graphVersion
	}
	if len(words) > 0 {
		tensors[tensorCodebook] = Tensor{DType: F32, Shape: []int{values}}
		tensors[tensorWords], version = bytesTensor(words), wordsVersion
	}
	return c.compactWith(tensors, version, map[string]string{metaFields: string(mustMarshal(fields))})
}

// compactWith returns the compact file of c with the given tensors and some of its metadata.
func (c *Checkpoint) compactWith(tensors map[string]Tensor, version string, some map[string]string) *tensor.File {
	metadata := c.metadata(map[string]string{
		metaCompact:      version,
		metaEmbeddingKey: c.EmbeddingKey,
		metaDigest:       seal.Blank, // file.seal replaces it
	})
	maps.Copy(metadata, some)
	c.describe(metadata)
	return tensor.NewFile(tensors, metadata)
}

// bytesTensor returns a tensor of bytes.
func bytesTensor(data []byte) Tensor { return Tensor{DType: U8, Shape: []int{len(data)}, Data: data} }

// codebookShape returns the shape of the values that stand for dropped entries.
func codebookShape(a *model.Architecture) []int {
	if a.Plain() {
		return []int{a.Fields(), a.Dim}
	}
	return []int{a.BaselineSize()}
}

// CompactDrop returns the least number of entries to drop, at least least, from the front of order,
// [Parameters], so that the file of WriteCompact has at most the given number of bytes. Dropped entries
// read baseline, and values are stored as v. If even the file without any entry is larger, the error gives its
// size. With several words the number may be a few above the least, because the size of their numbers is not computed for each.
//
// CompactDrop examines every smaller number too, because a file with more dropped entries
// may be larger. A field that keeps everything stores no structure, but a field that
// lacks one entry does. A table that keeps almost nothing has to be as large as
// compact.MaxInflation requires.
func (c *Checkpoint) CompactDrop(order []int32, least int, baseline model.Baseline, v compact.Encoding, bytes int64) (int, error) {
	a := &c.Architecture
	if len(order) != a.Parameters() {
		panic(fmt.Sprintf("checkpoint: CompactDrop: order of %d entries, expected %d", len(order), a.Parameters()))
	}
	planner, dropped := compact.NewPlanner(a), make([]bool, len(order))
	var words []byte // of the last number for which they were computed
	size := func() int64 { return c.compactFile(planner.Fields(), v, words, len(baseline.Values)).Size() }
	// Besides the planner's bytes every file has at least floor bytes, because no other
	// file has a shorter header.
	floor := c.compactFile(slices.Repeat([]compact.Field{{Form: compact.None}}, len(a.Spans())), v, nil, 0).Size()
	for drop := 0; ; drop++ {
		last := drop == len(order)
		if last || drop >= least && floor+int64(planner.Bytes(v)+len(words)) <= bytes && size() <= bytes {
			b := baseline
			words = compact.Words(a, dropped, &b)
			if n := size(); n <= bytes {
				return drop, nil
			} else if last {
				return 0, fmt.Errorf("the model without any embedding entry takes %d", n)
			}
		}
		planner.Drop(int(order[drop]))
		dropped[order[drop]] = true
	}
}

// TableParameters returns the number of parameters of the embedding tables in the form in which
// the file stores them. A dense file has all entries. A compact file has the kept entries, and
// the values of the baseline unless they are zero. A file with a composed table has the
// values from which the table is computed.
func (c *Checkpoint) TableParameters() int {
	switch {
	case c.Composed != nil:
		return c.Composed.Parameters()
	case c.Compact == nil:
		return c.Architecture.Parameters()
	}
	n := c.Compact.Kept()
	if b := c.Compact.Baseline(); !b.IsZero() {
		n += len(b.Values)
	}
	return n
}

// Footprint is the number of bytes that a model's tables take.
type Footprint struct {
	File   int64 // the whole file, with the rest of the model
	Table  int64 // the part of the file that stores the tables: values, positions and the codebook
	Memory int64 // what package infer needs for the tables while it serves rows; see compact.Memory
}

// CompactFootprint returns the footprint of the file of WriteCompact.
func (c *Checkpoint) CompactFootprint(dropped []bool, baseline model.Baseline, v compact.Encoding) Footprint {
	a := &c.Architecture
	fields := compact.Plan(a, dropped)
	words := compact.Words(a, dropped, &baseline)
	f := c.compactFile(fields, v, words, len(baseline.Values))
	size := Footprint{File: f.Size(), Memory: compact.Memory(a, fields, baseline.Words, v)}
	for _, e := range f.Entries {
		if strings.HasPrefix(e.Key, ownTensors) {
			size.Table += int64(e.Elements() * e.DType.Size())
		}
	}
	return size
}

// Footprint returns the footprint of the file of WriteDense. In memory each entry is a
// float32.
func (c *Checkpoint) Footprint() Footprint {
	t := c.Tensors[c.EmbeddingKey]
	return Footprint{c.Size(), int64(t.Elements() * t.DType.Size()), 4 * int64(t.Elements())}
}

// WriteCompact writes the pruned c to path in compact form, all of it or nothing, and
// returns the file's length in bytes. dropped, [Parameters], is true for dropped entries.
// The dropped entries read baseline. Kept entries come from c's tables and
// are stored as v. A value that v cannot hold is an input error.
func WriteCompact(path string, c *Checkpoint, dropped []bool, baseline model.Baseline, v compact.Encoding) (int64, error) {
	f, err := c.compact(dropped, baseline, v)
	if err != nil {
		return 0, err
	}
	if err := f.Seal(metaDigest); err != nil {
		return 0, err
	}
	return writeWhole(path, f)
}

func (c *Checkpoint) compact(dropped []bool, baseline model.Baseline, v compact.Encoding) (*tensor.File, error) {
	table, err := c.floats(c.EmbeddingKey)
	if err != nil {
		return nil, err
	}
	parts, err := compact.Encode(&c.Architecture, table, dropped, baseline, v)
	if err != nil {
		return nil, c.inputf("%w", err)
	}
	f := c.compactFile(parts.Fields, v, parts.Words, len(baseline.Values))
	data := map[string][]byte{
		tensorValues: parts.Values, tensorRows: parts.Rows, tensorColumns: parts.Columns,
		tensorCodebook: tensor.FromFloat32s(nil, baseline.Values).Data, tensorSteps: tensor.FromFloat32s(nil, parts.Steps).Data,
	}
	for i := range f.Entries {
		if own, ok := data[f.Entries[i].Key]; ok {
			f.Entries[i].Data = own
		}
	}
	return f, nil
}

// Pruned returns the dropped entries of c's tables, [Parameters], and the baseline that they
// read. For a compact file both come from the file, and for a dense one from
// compact.Find.
func (c *Checkpoint) Pruned() (dropped []bool, baseline model.Baseline, err error) {
	if c.Compact == nil {
		table, err := c.floats(c.EmbeddingKey)
		if err != nil {
			return nil, baseline, err
		}
		dropped, baseline = compact.Find(&c.Architecture, table)
		return dropped, baseline, nil
	}
	dropped = make([]bool, 0, c.Architecture.Parameters())
	c.Compact.Rows(func(_ []float32, row []bool) { dropped = append(dropped, row...) })
	return dropped, c.Compact.Baseline(), nil
}

// takeCompact sets Compact from the tensors of the compact form. In Tensors it replaces
// them by the table's tensor, without data.
func (c *Checkpoint) takeCompact(metadata map[string]string) error {
	version, key, a := metadata[metaCompact], metadata[metaEmbeddingKey], &c.Architecture
	if c.graph != nil { // whose architecture is known
		if version != graphVersion && version != mixedVersion && version != wordsVersion && version != layersVersion {
			return fault.Inputf("version %s, expected %s to %s for a model of kind %s", tensor.Quote(version), graphVersion, layersVersion, model.Graph)
		}
		if key != graphEmbedding {
			return fault.Inputf("metadata %s is %s, expected %s", metaEmbeddingKey, tensor.Quote(key), graphEmbedding)
		}
	} else {
		if version != compactVersion && version != unsealedVersion && version != mixedVersion && version != wordsVersion && version != layersVersion {
			return fault.Inputf("version %s, expected %s, %s, %s or %s", tensor.Quote(version), compactVersion, mixedVersion, wordsVersion, layersVersion)
		}
		s, err := layoutIn(metadata)
		if err != nil {
			return err
		}
		if err := tensor.CheckKey(key); err != nil || strings.HasPrefix(key, ownTensors) {
			return fault.Inputf("metadata %s is %s, expected the key of the embedding table", metaEmbeddingKey, tensor.Quote(key))
		}
		if dim := *s.Dim; dim < 1 || dim > 1<<16 {
			return fault.Inputf("dim is %d, expected 1 to 65536", dim)
		}
		a = &model.Architecture{FieldDims: s.FieldDims, Dim: *s.Dim}
	}
	if c.has(key) {
		return fault.Inputf("tensor %s is stored both as a tensor and in compact form", key)
	}
	parts := &compact.Parts{}
	if version == wordsVersion {
		t, ok := c.Tensors[tensorWords]
		if !ok || t.DType != U8 || len(t.Data) == 0 {
			return fault.Inputf("expected tensor %s of type U8 with at least one byte, found %s %s", tensorWords, t.DType, tensor.ShapeText(t.Shape))
		}
		parts.Words = t.Data
		delete(c.Tensors, tensorWords)
	}
	take := c.takeFields
	switch {
	case c.Layers != nil:
		take = c.takeLayers
	case version == layersVersion:
		return fault.Inputf("version %s without metadata %s", version, metaLayers)
	case isMixed(metadata):
		take = c.takeMixed
	}
	if err := take(a, metadata, parts); err != nil {
		return err
	}
	c.keepKeys()
	c.add(key, Tensor{DType: F32, Shape: embeddingShape(a)})
	return nil
}

// layoutIn returns the statement in our metadata about a model without look-ups. It has dim and field_dims.
func layoutIn(metadata map[string]string) (*family.Statement, error) {
	s := &family.Statement{}
	if err := unmarshalArchitecture(metadata, s); err != nil {
		return nil, err
	}
	if s.Dim == nil || len(s.FieldDims) == 0 {
		return nil, fault.Inputf("metadata %s lacks dim or field_dims", metaArchitecture)
	}
	if err := model.CheckSizes(nil, s.FieldDims); err != nil {
		return nil, fault.Inputf("field_dims: %w", err)
	}
	return s, nil
}

// checkDigest returns an input error unless the content of a compact file, or of one with a
// composed table, matches its digest. A file of the version without a digest is not checked.
func checkDigest(name string, data []byte, metadata map[string]string) error {
	digest, sealed := metadata[metaDigest]
	version := metadata[metaCompact]
	_, isComposed := metadata[metaComposed]
	switch {
	case !sealed && !isComposed && version != compactVersion && version != graphVersion && version != mixedVersion && version != wordsVersion: // takeCompact refuses unknown versions
		return nil
	case sealed && version == unsealedVersion:
		return fault.Inputf("%s is damaged: compact files of version %s have no digest", name, unsealedVersion)
	}
	return seal.Check(name, bytes.NewReader(data), digest)
}

// takeFields sets Compact from the tensors of the versions up to 4 and the words in parts, and removes them.
func (c *Checkpoint) takeFields(a *model.Architecture, metadata map[string]string, parts *compact.Parts) error {
	if err := json.Unmarshal([]byte(metadata[metaFields]), &parts.Fields); err != nil {
		return fault.Inputf("metadata %s: %w", metaFields, err)
	}
	var failed error
	take := func(key string, types []DType, shape ...int) Tensor {
		t, ok := c.Tensors[key]
		fits := len(t.Shape) == len(shape)
		for i := 0; fits && i < len(shape); i++ {
			fits = shape[i] == t.Shape[i] || shape[i] == tensor.AnySize
		}
		known := false
		for _, dtype := range types {
			known = known || t.DType == dtype
		}
		if failed == nil && (!ok || !fits || !known) {
			failed = fault.Inputf("expected tensor %s of type %v and shape %s, found %s %s", key, types, tensor.ShapeText(shape), t.DType, tensor.ShapeText(t.Shape))
		}
		delete(c.Tensors, key)
		return t
	}
	values := take(tensorValues, []DType{F32, F16, U8}, tensor.AnySize)
	shape := codebookShape(a)
	if len(parts.Words) > 0 {
		shape = []int{tensor.AnySize} // which compact.New checks
	}
	codebook := take(tensorCodebook, []DType{F32}, shape...)
	parts.Values, parts.Rows, parts.Columns = values.Data, take(tensorRows, []DType{U8}, tensor.AnySize).Data, take(tensorColumns, []DType{U8}, tensor.AnySize).Data
	v := compact.Float32
	switch values.DType {
	case F16:
		v = compact.Float16
	case U8:
		v = compact.Int8
		steps := take(tensorSteps, []DType{F32}, len(a.Spans()), 2)
		if failed == nil {
			parts.Steps, failed = steps.Float32s()
		}
	}
	if failed != nil {
		return failed
	}
	var err error
	if parts.Baseline.Values, err = codebook.Float32s(); err != nil {
		return fault.Inputf("tensor %s %w", tensorCodebook, err)
	}
	if c.Compact, err = compact.New(a, v, parts); err != nil {
		return fault.Inputf("%w", err)
	}
	return nil
}

// inflate adds the data of the table's tensor. fileSize, in bytes, bounds the size of the
// table.
func (c *Checkpoint) inflate(fileSize int64) error {
	t := c.Tensors[c.EmbeddingKey]
	bytes := 4 * int64(t.Elements())
	if bytes > compact.MaxInflation*fileSize {
		return c.inputf("compact form: claims %s in a file of %d bytes", c.Architecture.Size(), fileSize)
	}
	t.Data = make([]byte, 0, bytes)
	c.Compact.Rows(func(x []float32, _ []bool) {
		for _, v := range x {
			t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(v))
		}
	})
	c.Tensors[c.EmbeddingKey] = t
	return nil
}
