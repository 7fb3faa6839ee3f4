// Package graphtest has ONNX's own test vectors of the operators, for tests of packages
// that compute graphs. testdata/make.py writes them.
package graphtest

import (
	"embed"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"shaver/internal/onnx/graph"
)

//go:embed testdata/*.jsonl testdata/rewritten/*.jsonl
var files embed.FS

// Case is a test vector of an operator.
type Case struct {
	Name       string
	Op         string
	Attributes graph.Attributes
	Inputs     []*graph.Tensor // nil = absent
	Outputs    []*graph.Tensor
	Relative   float64 // tolerance relative to the expected value, added to Absolute
	Absolute   float64
}

// Cases returns all cases of operators that package graph has, ordered by operator and name.
func Cases() ([]Case, error) { return read("testdata") }

// Rewritten returns the cases of operators that package dissect converts to others. An
// attribute may also be a []string. An output that is nil is not checked.
func Rewritten() ([]Case, error) { return read("testdata/rewritten") }

// read returns the cases in a folder.
func read(folder string) ([]Case, error) {
	entries, err := files.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var out []Case
	for _, entry := range entries {
		if entry.IsDir() {
			continue
		}
		data, err := files.ReadFile(folder + "/" + entry.Name())
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(data)) {
			var c caseText
			if err := json.Unmarshal([]byte(line), &c); err != nil {
				return nil, fmt.Errorf("%s: %w", entry.Name(), err)
			}
			parsed, err := c.parse()
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", entry.Name(), c.Name, err)
			}
			out = append(out, parsed)
		}
	}
	return out, nil
}

// caseText is a line of a file.
type caseText struct {
	Name       string                   `json:"name"`
	Op         string                   `json:"op"`
	Attributes map[string]attributeText `json:"attributes"`
	Inputs     []*tensorText            `json:"inputs"`
	Outputs    []*tensorText            `json:"outputs"`
	Relative   float64                  `json:"rtol"`
	Absolute   float64                  `json:"atol"`
}

type attributeText struct {
	Int     *int64      `json:"i"`
	Float   *string     `json:"f"`
	String  *string     `json:"s"`
	Ints    []int64     `json:"is"`
	Floats  []string    `json:"fs"`
	Strings []string    `json:"ss"`
	Tensor  *tensorText `json:"t"`
}

// tensorText has its elements as text, separated by spaces.
type tensorText struct {
	Type  string `json:"type"`
	Shape []int  `json:"shape"`
	Data  string `json:"data"`
}

func (c *caseText) parse() (Case, error) {
	out := Case{Name: c.Name, Op: c.Op, Attributes: graph.Attributes{}, Relative: c.Relative, Absolute: c.Absolute}
	for name, a := range c.Attributes {
		value, err := a.parse()
		if err != nil {
			return out, err
		}
		out.Attributes[name] = value
	}
	for _, list := range []struct {
		from []*tensorText
		to   *[]*graph.Tensor
	}{{c.Inputs, &out.Inputs}, {c.Outputs, &out.Outputs}} {
		for _, text := range list.from {
			t, err := text.parse()
			if err != nil {
				return out, err
			}
			*list.to = append(*list.to, t)
		}
	}
	return out, nil
}

func (a *attributeText) parse() (any, error) {
	switch {
	case a.Int != nil:
		return *a.Int, nil
	case a.Float != nil:
		f, err := strconv.ParseFloat(*a.Float, 32)
		return float32(f), err
	case a.String != nil:
		return *a.String, nil
	case a.Ints != nil:
		return a.Ints, nil
	case a.Strings != nil:
		return a.Strings, nil
	case a.Tensor != nil:
		return a.Tensor.parse()
	}
	list := make([]float32, len(a.Floats))
	for i, text := range a.Floats {
		f, err := strconv.ParseFloat(text, 32)
		if err != nil {
			return nil, err
		}
		list[i] = float32(f)
	}
	return list, nil
}

func (t *tensorText) parse() (*graph.Tensor, error) {
	if t == nil {
		return nil, nil
	}
	out := &graph.Tensor{Shape: t.Shape}
	for _, word := range strings.Fields(t.Data) {
		var err error
		switch t.Type {
		case "float":
			var f float64
			f, err = strconv.ParseFloat(word, 32)
			out.Floats = append(out.Floats, float32(f))
		case "int64":
			var i int64
			i, err = strconv.ParseInt(word, 10, 64)
			out.Ints = append(out.Ints, i)
		default:
			out.Bools = append(out.Bools, word == "1")
		}
		if err != nil {
			return nil, err
		}
	}
	switch t.Type {
	case "float":
		out.Type = graph.Float
	case "int64":
		out.Type = graph.Int
	default:
		out.Type = graph.Bool
	}
	return out, out.Check()
}

// Compare fails if a result differs from the expected tensor in its type or shape, or in
// an element by more than absolute + relative times the expected value.
func Compare(got, want *graph.Tensor, relative, absolute float64) error {
	if got.Type != want.Type || fmt.Sprint(got.Shape) != fmt.Sprint(want.Shape) {
		return fmt.Errorf("got %v%v, expected %v%v", got.Type, got.Shape, want.Type, want.Shape)
	}
	if err := got.Check(); err != nil {
		return err
	}
	for i, w := range want.Floats {
		g, w := float64(got.Floats[i]), float64(w)
		if g != w && !(math.Abs(g-w) <= absolute+relative*math.Abs(w)) && !(g != g && w != w) {
			return fmt.Errorf("element %d is %v, expected %v", i, g, w)
		}
	}
	for i, w := range want.Ints {
		if got.Ints[i] != w {
			return fmt.Errorf("element %d is %d, expected %d", i, got.Ints[i], w)
		}
	}
	for i, w := range want.Bools {
		if got.Bools[i] != w {
			return fmt.Errorf("element %d is %v, expected %v", i, got.Bools[i], w)
		}
	}
	return nil
}
