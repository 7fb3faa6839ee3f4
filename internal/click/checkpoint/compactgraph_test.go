package checkpoint

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/base/seal"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
)

// graphOf reads an exported model as a model of Kind Graph.
func graphOf(t testing.TB, name string) *Checkpoint {
	t.Helper()
	c, err := ReadPart(filepath.Join(exports, name+".onnx"), Options{Generic: true})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// bookOf returns a baseline with one word for each span, whose values differ.
func bookOf(c *Checkpoint) model.Baseline {
	baseline := c.Architecture.Zero()
	for i := range baseline.Values {
		baseline.Values[i] = float32(i)/32 - 0.25
	}
	return baseline
}

// wordsOf returns a baseline with up to 256 words for a span, whose values differ.
func wordsOf(c *Checkpoint) model.Baseline {
	b := bookOf(c)
	for j, s := range c.Architecture.Spans() {
		words := []int{3, 1, 256}[j%3]
		for range (words - 1) * s.Dim {
			b.Values = append(b.Values, float32(len(b.Values)%41)/32-0.5)
		}
		b.Words = append(b.Words, words)
		for i := range s.Rows {
			b.Numbers = append(b.Numbers, uint8(i*7%words))
		}
	}
	return b
}

// readOf returns the baseline of a file that drops the given entries: rows that drop nothing have the number 0.
func readOf(c *Checkpoint, dropped []bool, b model.Baseline) model.Baseline {
	shape := c.Architecture.Shape()
	b.Numbers = slices.Clone(b.Numbers)
	for row := range b.Numbers {
		if from, to := shape.Row(row); !slices.Contains(dropped[from:to], true) {
			b.Numbers[row] = 0
		}
	}
	return b
}

// resealed returns the bytes of a compact file of the current versions with a fresh digest.
func resealed(entries []tensor.Entry, metadata map[string]string) []byte {
	metadata = maps.Clone(metadata)
	metadata[metaDigest] = seal.Blank
	if err := (&tensor.File{Entries: entries, Metadata: metadata}).Seal(metaDigest); err != nil {
		panic(err) // writing to a hash does not fail
	}
	return fileBytes(entries, metadata)
}

// The models of these tests have one table, several tables of one width, tables of two
// widths, and dense inputs.
var graphs = []string{"recbole-autoint.dynamo", "fuxictr-dcnv2-mixture.dynamo", "ncf.dynamo", "ncf.legacy", "deepctr-torch-xdeepfm.dynamo"}

// The compact file of a model of Kind Graph reads as the pruned tables with their logits, at
// every sparsity.
func TestCompactGraph(t *testing.T) {
	plain, several, dense := 0, 0, 0
	for _, name := range graphs {
		c := graphOf(t, name)
		a := &c.Architecture
		switch {
		case a.Plain():
			plain++
		default:
			several++
		}
		dense += len(a.Dense)
		n := a.Parameters()
		for _, kept := range []int{0, 1, n / 8, n - 1, n} {
			dropped := make([]bool, n)
			for i := range dropped {
				dropped[i] = (i*7919)%n >= kept // 7919 is coprime to every length here
			}
			checkCompact(t, c, dropped, bookOf(c), kept)
			checkCompact(t, c, dropped, wordsOf(c), kept)
		}
	}
	if plain == 0 || several == 0 || dense == 0 {
		t.Errorf("%d models with one table, %d with several, %d dense inputs", plain, several, dense)
	}
}

// CompactDrop finds the least number of drops for tables of two widths.
func TestCompactDropGraph(t *testing.T) {
	c := graphOf(t, "ncf.dynamo")
	n := c.Architecture.Parameters()
	order, dropped := make([]int32, n), make([]bool, n)
	for i := range order {
		order[i] = int32(i * 7919 % n)
	}
	var sizes []int64
	for drop := 0; ; drop++ {
		f, err := c.compact(dropped, bookOf(c), compact.Int8)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.CompactFootprint(dropped, bookOf(c), compact.Int8).File; got != f.Size() {
			t.Fatalf("%d drops: a footprint of %d bytes, expected %d", drop, got, f.Size())
		}
		if sizes = append(sizes, f.Size()); drop == n {
			break
		}
		dropped[order[drop]] = true
	}
	for at := 0; at <= n; at += 7 {
		want := slices.IndexFunc(sizes, func(size int64) bool { return size <= sizes[at] })
		if got, err := c.CompactDrop(order, 0, bookOf(c), compact.Int8, sizes[at]); err != nil || got != want {
			t.Fatalf("for %d bytes got %d drops (%v), expected %d", sizes[at], got, err, want)
		}
	}
}

func TestCompactGraphRefuses(t *testing.T) {
	for _, name := range []string{"ncf.dynamo", "recbole-autoint.dynamo"} {
		c := graphOf(t, name)
		f, err := c.compact(every(c.Architecture.Parameters(), 3), bookOf(c), compact.Float16)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse("m", resealed(f.Entries, f.Metadata)); err != nil {
			t.Fatal(err)
		}
		for key, test := range map[string]struct{ value, want string }{
			metaCompact:      {"3", `m: compact form: version "3", expected 4 to 7 for a model of kind graph`},
			metaEmbeddingKey: {"head.x", `m: compact form: metadata shaver.embedding_key is "head.x", expected embedding`},
			metaFields:       {`[{"form":"none"}]`, "m: compact form: parts have 1 fields"},
			metaArchitecture: {strings.Replace(f.Metadata[metaArchitecture], `"field_dims":[`, `"field_dims":[0,`, 1), "m: metadata shaver.architecture: "},
		} {
			metadata := maps.Clone(f.Metadata)
			metadata[key] = test.value
			_, err := Parse("m", resealed(f.Entries, metadata))
			wantInput(t, err, test.want)
		}
		entries := append(slices.Clone(f.Entries), tensor.Entry{Key: graphEmbedding, Tensor: tensor.FromFloat32s([]int{1}, []float32{1})})
		_, err = Parse("m", resealed(entries, f.Metadata))
		wantInput(t, err, "m: compact form: tensor embedding is stored both as a tensor and in compact form")
		for i, e := range f.Entries {
			if e.Key != tensorCodebook {
				continue
			}
			entries := slices.Clone(f.Entries)
			entries[i] = tensor.Entry{Key: tensorCodebook, Tensor: tensor.FromFloat32s([]int{1}, []float32{1})}
			_, err := Parse("m", resealed(entries, f.Metadata))
			wantInput(t, err, "m: compact form: expected tensor shaver.codebook of type [F32] and shape ")
		}
		bare := maps.Clone(f.Metadata)
		delete(bare, metaDigest)
		_, err = Parse("m", fileBytes(f.Entries, bare))
		wantInput(t, err, "m is damaged: its digest is missing")
		bare[metaCompact] = unsealedVersion
		_, err = Parse("m", fileBytes(f.Entries, bare))
		wantInput(t, err, `m: compact form: version "2", expected 4 to 7 for a model of kind graph`)
	}
	c := fmOf(t, 4, 2)
	f, err := c.compact(make([]bool, 8), c.Architecture.Zero(), compact.Float32)
	if err != nil {
		t.Fatal(err)
	}
	f.Metadata[metaCompact] = graphVersion
	_, err = Parse("m", resealed(f.Entries, f.Metadata))
	wantInput(t, err, `m: compact form: version "4", expected 3`)
}

// A file that claims tables thousands of times its own size is not inflated. ParseModel
// reads it in memory that its own size bounds.
func TestCompactGraphBomb(t *testing.T) {
	c := graphOf(t, "ncf.dynamo")
	f, err := c.compact(slices.Repeat([]bool{true}, c.Architecture.Parameters()), bookOf(c), compact.Float32)
	if err != nil {
		t.Fatal(err)
	}
	a := c.Architecture
	a.FieldDims, a.Tables = slices.Clone(a.FieldDims), slices.Clone(a.Tables)
	a.FieldDims[1] = 1_500_000_000 / len(a.Tables)
	for _, l := range a.LookUps {
		a.Tables[l.Table].Rows = a.FieldDims[l.Field]
	}
	f.Metadata[metaArchitecture] = string(mustMarshal(a))
	f.Metadata[metaFields] = string(mustMarshal(slices.Repeat([]compact.Field{{Form: compact.None}}, len(a.LookUps))))
	for i, e := range f.Entries {
		if e.Key == tensorRows || e.Key == tensorColumns || e.Key == tensorValues {
			f.Entries[i].Tensor = Tensor{DType: e.DType, Shape: []int{0}, Data: nil}
		}
	}
	data := resealed(f.Entries, f.Metadata)
	_, err = Parse("m", data)
	wantInput(t, err, "m: compact form: claims 4 tables of ")
	var small *model.Model
	bytes := testing.Benchmark(func(b *testing.B) {
		for range b.N {
			if small, _, err = ParseModel("m", data); err != nil {
				b.Fatal(err)
			}
		}
	}).AllocedBytesPerOp()
	if bytes > 4<<20 {
		t.Errorf("a file of %d bytes takes %d bytes of memory", len(data), bytes)
	}
	scoreLast(small)
}

// FuzzCompactGraph gives ParseModel, which package infer uses, and Parse the compact file
// of a model of Kind Graph with any descriptions and any bytes. Both return a model that
// scores rows, or an input error.
func FuzzCompactGraph(f *testing.F) {
	books := []func(*Checkpoint) model.Baseline{bookOf, wordsOf}
	for i := range 2 * len(graphs) {
		c := graphOf(f, graphs[i/2])
		for gap := 1; gap < 30; gap += 13 {
			file, err := c.compact(every(c.Architecture.Parameters(), gap), books[i%2](c), compact.Encodings()[i/2%3])
			if err != nil {
				f.Fatal(err)
			}
			data := map[string][]byte{}
			var rest []byte
			for _, e := range file.Entries {
				data[e.Key] = e.Data
				if !strings.HasPrefix(e.Key, ownTensors) || e.Key == tensorWords {
					rest = append(rest, e.Data...)
				}
			}
			f.Add(uint8(i), file.Metadata[metaArchitecture], file.Metadata[metaGraph], file.Metadata[metaFields],
				data[tensorValues], data[tensorCodebook], data[tensorSteps], data[tensorRows], data[tensorColumns], rest)
		}
	}
	var files []*tensor.File
	for i := range 2 * len(graphs) {
		c := graphOf(f, graphs[i/2])
		file, err := c.compact(every(c.Architecture.Parameters(), 14), books[i%2](c), compact.Int8)
		if err != nil {
			f.Fatal(err)
		}
		files = append(files, file)
	}
	f.Fuzz(func(t *testing.T, which uint8, architecture, graph, fields string, values, codebook, steps, rows, columns, rest []byte) {
		from := files[int(which)%len(files)]
		own := map[string][]byte{tensorValues: values, tensorCodebook: codebook, tensorSteps: steps, tensorRows: rows, tensorColumns: columns}
		v := valueTypes[compact.Encodings()[int(which)/2%3]]
		var entries []tensor.Entry
		for _, e := range from.Entries {
			data, is := own[e.Key]
			switch {
			case !is: // another tensor, whose shape stays
				e.Data = make([]byte, e.Elements()*e.DType.Size())
				rest = rest[copy(e.Data, rest):]
			case e.Key == tensorSteps && v != U8:
				continue
			default:
				if e.Key == tensorValues {
					e.DType = v
				}
				size := e.DType.Size()
				e.Data = data[:len(data)/size*size]
				if e.Shape = []int{len(data) / size}; e.Key == tensorSteps {
					e.Shape, e.Data = []int{len(data) / 8, 2}, data[:len(data)/8*8]
				}
				if a := architectureOf(architecture); e.Key == tensorCodebook && a != nil && len(e.Data) == 4*a.Players() {
					e.Shape = codebookShape(a)
				}
			}
			entries = append(entries, e)
		}
		metadata := maps.Clone(from.Metadata)
		metadata[metaArchitecture], metadata[metaGraph], metadata[metaFields] = architecture, graph, fields
		data := resealed(entries, metadata)
		m, _, err := ParseModel("m", data)
		if err != nil && !fault.IsInput(err) {
			t.Fatalf("not an input error: %v", err)
		}
		if err == nil && m.Players() < 1<<12 {
			scoreLast(m)
		}
		if err != nil || m.Parameters() < 1<<20 {
			c, err := Parse("m", data)
			checkFuzzed(t, c, err)
		}
	})
}

// architectureOf returns the architecture that text describes, or nil if it is invalid.
func architectureOf(text string) *model.Architecture {
	var a model.Architecture
	if json.Unmarshal([]byte(text), &a) != nil || a.Validate() != nil {
		return nil
	}
	return &a
}
