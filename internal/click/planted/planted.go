// Package planted makes a click model whose structure is known, and rows that the model
// generates. Demonstrations and tests that use it need no other data.
//
// Some columns of the embedding table carry all the information. The network does not
// read the other columns, although their numbers are at least as large, as in an
// over-parameterised table. A method that looks at the weights cannot distinguish the two
// kinds of columns. A method that looks at the loss can.
package planted

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/num/random"
)

// Config is the shape of a planted model.
type Config struct {
	Fields      []string
	FieldDims   []int
	Informative int // number of columns that the network reads
	Silent      int // number of columns that the network does not read
	Seed        uint64
}

// Default is the configuration of the quickstart: 10 fields, 3,600 features, 8 columns.
var Default = Config{
	Fields:      []string{"user", "item", "category", "brand", "device", "hour", "city", "query", "position", "campaign"},
	FieldDims:   []int{1200, 1000, 40, 300, 6, 24, 180, 600, 10, 240},
	Informative: 4, Silent: 4, Seed: 1,
}

// Planted is a model and the distribution of its rows.
type Planted struct {
	Config
	Checkpoint *checkpoint.Checkpoint
	Model      *model.Model
	zipf       []cumulative // distribution of the features of each field
}

// New makes a DCNv2 with one cross layer and two hidden layers.
func New(c Config) (*Planted, error) {
	a := model.Architecture{
		Kind: model.DCNv2, FieldDims: c.FieldDims, Dim: c.Informative + c.Silent,
		Hidden: []int{24, 12}, CrossLayers: 1, Structure: model.Stacked,
	}
	p := &Planted{Config: c}
	for _, size := range c.FieldDims {
		p.zipf = append(p.zipf, newZipf(size))
	}
	tensors := p.tensors(&a)
	p.Checkpoint = &checkpoint.Checkpoint{Architecture: a, Tensors: map[string]checkpoint.Tensor{}, EmbeddingKey: "embedding.weight"}
	for _, t := range tensors {
		p.Checkpoint.Keys = append(p.Checkpoint.Keys, t.key)
		p.Checkpoint.Tensors[t.key] = checkpoint.Tensor{DType: checkpoint.F32, Shape: t.shape, Data: littleEndian(t.values)}
	}
	for _, name := range c.Fields {
		p.Checkpoint.Identities = append(p.Checkpoint.Identities, model.Identity{Name: name, Vocabulary: model.OwnIDs})
	}
	var err error
	p.Model, err = p.Checkpoint.Model()
	return p, err
}

const outputBias = "_last_fc.bias"

type tensor struct {
	key    string
	shape  []int
	values []float32
}

// tensors draws the state dict. All weights of inputs from silent columns are 0.
func (p *Planted) tensors(a *model.Architecture) []tensor {
	stream := random.At(p.Seed, random.Quickstart, 0, 0)
	normal := func(n int, scale float64) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(scale * stream.Normal())
		}
		return v
	}
	silent := func(column int) bool { return column%a.Dim >= p.Informative }
	mute := func(weight []float32, in int) []float32 {
		for i := range weight {
			if silent(i % in) {
				weight[i] = 0
			}
		}
		return weight
	}
	table := normal(a.Parameters(), 1)
	for i := range table {
		if silent(i) {
			table[i] *= 1.2
		}
	}
	players := a.Players()
	read := float64(a.Fields() * p.Informative) // number of inputs that the network reads
	tensors := []tensor{
		{"embedding.weight", []int{a.Features(), a.Dim}, table},
		{"cross_head.layers.0.weight", []int{players, players}, mute(normal(players*players, 0.6/math.Sqrt(read)), players)},
		{"cross_head.layers.0.bias", []int{players}, normal(players, 0.1)},
	}
	in := players
	for l, out := range a.Hidden {
		scale := 1.5 / math.Sqrt(float64(in))
		if l == 0 {
			scale = 1.5 / math.Sqrt(read)
		}
		weight := normal(out*in, scale)
		if l == 0 {
			weight = mute(weight, in)
		}
		tensors = append(tensors,
			tensor{fmt.Sprintf("_dnn.%d.weight", 3*l), []int{out, in}, weight},
			tensor{fmt.Sprintf("_dnn.%d.bias", 3*l), []int{out}, normal(out, 0.1)})
		in = out
	}
	return append(tensors,
		tensor{"_last_fc.weight", []int{1, in}, normal(in, 2.2/math.Sqrt(float64(in)))},
		tensor{outputBias, []int{1}, []float32{-1.2}})
}

func littleEndian(values []float32) []byte {
	data := make([]byte, 0, 4*len(values))
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return data
}

// Rows appends n rows to rows, with global row numbers from first on. Features follow
// Zipf's law, independently for each field. Labels are drawn with the model's own
// probabilities.
func (p *Planted) Rows(rows *model.Rows, first int64, n int) {
	rows.Width = len(p.FieldDims)
	offsets := model.Offsets(p.FieldDims)
	logits := make([]float64, 1)
	scorer := p.Model.NewScorer()
	for number := first; number < first+int64(n); number++ {
		stream := random.At(p.Seed, random.Quickstart, 1, uint64(number))
		for j := range p.FieldDims {
			rows.Features = append(rows.Features, offsets[j]+p.zipf[j].draw(stream.Float64()))
		}
		rows.Number = append(rows.Number, number)
		rows.Label = append(rows.Label, 0)
		last := rows.Slice(rows.Len()-1, rows.Len())
		scorer.Logits(logits, &last)
		if stream.Float64() < 1/(1+math.Exp(-logits[0])) {
			last.Label[0] = 1
		}
	}
}

// cumulative is a distribution over 0, 1, ..., given by the running sums of its weights.
type cumulative []float64

// newZipf returns Zipf's law for size features: the feature of rank k has the weight 1/k.
func newZipf(size int) cumulative {
	c := make(cumulative, size)
	sum := 0.0
	for k := range c {
		sum += 1 / float64(k+1)
		c[k] = sum
	}
	return c
}

// draw returns the element at the portion u, in [0, 1), of the total weight.
func (c cumulative) draw(u float64) int32 {
	at := u * c[len(c)-1]
	i, _ := slices.BinarySearchFunc(c, at, func(sum, at float64) int {
		if sum <= at {
			return -1
		}
		return cmp.Compare(sum, at)
	})
	return int32(min(i, len(c)-1))
}

// WriteCSV writes n rows of p as CSV with local ids.
func (p *Planted) WriteCSV(to io.Writer, n int) error {
	w := bufio.NewWriter(to)
	line := []byte("label")
	for _, name := range p.Fields {
		line = append(append(line, ','), name...)
	}
	_, _ = w.Write(append(line, '\n')) // the writer keeps its first error
	offsets := model.Offsets(p.FieldDims)
	var rows model.Rows
	p.Rows(&rows, 0, n)
	for i := range rows.Len() {
		line = strconv.AppendUint(line[:0], uint64(rows.Label[i]), 10)
		for j, f := range rows.Row(i) {
			line = strconv.AppendInt(append(line, ','), int64(f-offsets[j]), 10)
		}
		_, _ = w.Write(append(line, '\n'))
	}
	return w.Flush()
}
