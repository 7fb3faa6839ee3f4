package graph

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"shaver/internal/base/files"
)

// Version is the version of a description. Decode refuses all others.
const Version = 1

// Limits of a description. They bound the memory that parsing takes.
const (
	maxDescription = 32 << 20 // bytes
	maxObjects     = 1 << 20  // objects in it: inputs, constants, nodes and attributes
)

// Description is a graph in JSON. Values have numbers: first the inputs, then the
// constants, then the outputs of the nodes.
type Description struct {
	Version   int                 `json:"version"`
	Inputs    []DescribedInput    `json:"inputs"`
	Constants []DescribedConstant `json:"constants"`
	Nodes     []DescribedNode     `json:"nodes"`
	Output    Value               `json:"output"`
}

// DescribedInput is an input of a Description.
type DescribedInput struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Shape []int  `json:"shape"`
}

// DescribedConstant is a constant of a Description. The elements of a float constant are
// not in it. They are the weight with the constant's name.
type DescribedConstant struct {
	Name  string  `json:"name"`
	Type  string  `json:"type"`
	Shape []int   `json:"shape"`
	Ints  []int64 `json:"ints,omitempty"`
	Bools []bool  `json:"bools,omitempty"`
}

// DescribedNode is a node of a Description.
type DescribedNode struct {
	Name       string                        `json:"name"`
	Op         string                        `json:"op"`
	Inputs     []Value                       `json:"inputs"`
	Attributes map[string]DescribedAttribute `json:"attributes,omitempty"`
}

// DescribedAttribute is an attribute of a DescribedNode. Exactly one of its fields is set.
// Floats are in decimal, with as many digits as are needed to read them back.
type DescribedAttribute struct {
	Int    *int64    `json:"i,omitempty"`
	Float  *string   `json:"f,omitempty"`
	String *string   `json:"s,omitempty"`
	Ints   *[]int64  `json:"is,omitempty"`
	Floats *[]string `json:"fs,omitempty"`
}

// Encode returns a description of a graph in JSON, and its float constants, each with a
// name of its own. The graph must have an output. Callers call Trim first, because Encode
// keeps all nodes. The same graph gives the same bytes. Names of values are not kept,
// except those of inputs and constants. The weights share memory with the graph.
func Encode(g *Graph) (text []byte, weights []*Tensor) {
	d := Description{Version: Version, Inputs: []DescribedInput{}, Constants: []DescribedConstant{}, Nodes: []DescribedNode{}}
	numbers := make([]Value, len(g.Values))
	next := Value(0)
	for _, v := range g.Inputs {
		info := g.Values[v]
		d.Inputs = append(d.Inputs, DescribedInput{valid(info.Name), info.Type.String(), list(info.Shape)})
		numbers[v] = next
		next++
	}
	seen := map[*Tensor]Value{}
	names := map[string]bool{}
	constant := func(v Value) {
		t := g.Values[v].Constant
		if t == nil {
			return
		}
		if number, ok := seen[t]; ok {
			numbers[v] = number
			return
		}
		seen[t], numbers[v] = next, next
		next++
		name := valid(t.Name)
		if name == "" {
			name = valid(g.Values[v].Name)
		}
		for i, base := 2, name; name == "" || names[name]; i++ {
			name = fmt.Sprintf("%s.%d", base, i)
		}
		names[name] = true
		d.Constants = append(d.Constants, DescribedConstant{name, t.Type.String(), list(t.Shape), t.Ints, t.Bools})
		if t.Type == Float {
			weights = append(weights, &Tensor{Name: name, Type: Float, Shape: t.Shape, Floats: t.Floats})
		}
	}
	for _, n := range g.Nodes {
		for _, v := range n.Inputs {
			if v != Absent {
				constant(v)
			}
		}
	}
	constant(g.Output)
	for _, n := range g.Nodes {
		node := DescribedNode{Name: valid(n.Name), Op: n.Op, Inputs: []Value{}, Attributes: encodeAttributes(n.Attributes)}
		for _, v := range n.Inputs {
			if v != Absent {
				v = numbers[v]
			}
			node.Inputs = append(node.Inputs, v)
		}
		for _, v := range n.Outputs {
			numbers[v] = next
			next++
		}
		d.Nodes = append(d.Nodes, node)
	}
	d.Output = numbers[g.Output]
	text, err := json.Marshal(d)
	if err != nil {
		panic(err) // JSON can hold every Description
	}
	return text, weights
}

// valid returns a name that JSON can hold.
func valid(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

// list returns a copy of shape that is not nil, because nil would be null in JSON.
func list(shape []int) []int { return append([]int{}, shape...) }

// encodeAttributes describes the attributes. No node that depends on the row has a tensor
// as an attribute.
func encodeAttributes(attributes Attributes) map[string]DescribedAttribute {
	out := map[string]DescribedAttribute{}
	for name, value := range attributes {
		var a DescribedAttribute
		switch v := value.(type) {
		case int64:
			a.Int = &v
		case float32:
			text := formatFloat(v)
			a.Float = &text
		case string:
			v = valid(v)
			a.String = &v
		case []int64:
			v = append([]int64{}, v...)
			a.Ints = &v
		case []float32:
			texts := []string{}
			for _, f := range v {
				texts = append(texts, formatFloat(f))
			}
			a.Floats = &texts
		}
		out[name] = a
	}
	return out
}

func formatFloat(f float32) string { return strconv.FormatFloat(float64(f), 'g', -1, 32) }

// Decode builds the graph of a description. It checks everything, because a description
// may be hostile. weights returns the float constant with the given name. Decode checks its
// type and shape too, and refuses constants as CheckConstants does.
func Decode(text []byte, weights func(name string) (*Tensor, error)) (*Graph, error) {
	g, err := decode(text, weights)
	if err != nil {
		return nil, fmt.Errorf("description of the model's computation: %w", err)
	}
	return g, nil
}

func decode(text []byte, weights func(name string) (*Tensor, error)) (*Graph, error) {
	if len(text) > maxDescription {
		return nil, fmt.Errorf("%d bytes, expected at most %d", len(text), maxDescription)
	}
	if n := bytes.Count(text, []byte("{")); n > maxObjects {
		return nil, fmt.Errorf("%d objects, expected at most %d", n, maxObjects)
	}
	var version struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text, &version); err != nil {
		return nil, err
	}
	if version.Version != Version {
		return nil, fmt.Errorf("version %d, expected %d", version.Version, Version)
	}
	var d Description
	if err := files.Strict(text, &d); err != nil {
		return nil, err
	}
	g := &Graph{}
	var values []Value // by number
	total := 0
	for _, in := range d.Inputs {
		t, err := parseType(in.Type)
		n := 0
		if err == nil {
			n, err = Count(in.Shape)
		}
		if total += n; err == nil && total > maxVaried {
			err = fmt.Errorf("the inputs have more than %d elements", maxVaried)
		}
		if err != nil {
			return nil, fmt.Errorf("input %.100q: %w", in.Name, err)
		}
		values = append(values, g.AddInput(in.Name, t, in.Shape))
	}
	for _, c := range d.Constants {
		t, err := c.decode(weights)
		if err != nil {
			return nil, fmt.Errorf("constant %.100q: %w", c.Name, err)
		}
		values = append(values, g.AddConstant(t))
	}
	lookUp := func(v Value) (Value, error) {
		if v == Absent {
			return v, nil
		}
		if v < 0 || int(v) >= len(values) {
			return 0, fmt.Errorf("it reads value %d, expected a value before it", v)
		}
		return values[v], nil
	}
	for _, n := range d.Nodes {
		node := Node{Name: n.Name, Op: n.Op, Attributes: Attributes{}}
		for _, v := range n.Inputs {
			in, err := lookUp(v)
			if err != nil {
				return nil, fmt.Errorf("node %.100q: %w", n.Name, err)
			}
			node.Inputs = append(node.Inputs, in)
		}
		for name, a := range n.Attributes {
			value, err := a.decode()
			if err != nil {
				return nil, fmt.Errorf("node %.100q: attribute %.100q: %w", n.Name, name, err)
			}
			node.Attributes[name] = value
		}
		out, err := g.Add(node)
		if err != nil {
			return nil, err
		}
		values = append(values, out...)
	}
	out, err := lookUp(d.Output)
	if err != nil || out == Absent {
		return nil, fmt.Errorf("the output is value %d, and there are %d values", d.Output, len(values))
	}
	g.Output = out
	_, err = g.CheckConstants()
	return g, err
}

func parseType(name string) (Type, error) {
	for _, t := range []Type{Float, Int, Bool} {
		if t.String() == name {
			return t, nil
		}
	}
	return 0, fmt.Errorf("unknown type %.100q", name)
}

func (c *DescribedConstant) decode(weights func(name string) (*Tensor, error)) (*Tensor, error) {
	typ, err := parseType(c.Type)
	if err != nil {
		return nil, err
	}
	t := &Tensor{Name: c.Name, Type: typ, Shape: c.Shape, Ints: c.Ints, Bools: c.Bools}
	if typ == Float {
		weight, err := weights(c.Name)
		if err != nil {
			return nil, err
		}
		if weight == nil {
			return nil, errors.New("the weight is missing")
		}
		if weight.Type != Float || !slices.Equal(weight.Shape, c.Shape) {
			return nil, fmt.Errorf("the weight is %v%v, expected %v%v", weight.Type, weight.Shape, Float, c.Shape)
		}
		t.Floats = weight.Floats
	}
	return t, t.Check()
}

func (a *DescribedAttribute) decode() (any, error) {
	var all []any
	var err error
	if a.Int != nil {
		all = append(all, *a.Int)
	}
	if a.Float != nil {
		var f float32
		f, err = parseFloat(*a.Float)
		all = append(all, f)
	}
	if a.String != nil {
		all = append(all, *a.String)
	}
	if a.Ints != nil {
		all = append(all, *a.Ints)
	}
	if a.Floats != nil {
		list := make([]float32, len(*a.Floats))
		for i, text := range *a.Floats {
			if list[i], err = parseFloat(text); err != nil {
				break
			}
		}
		all = append(all, list)
	}
	if err != nil {
		return nil, err
	}
	if len(all) != 1 {
		return nil, errors.New("expected one of i, f, s, is and fs")
	}
	return all[0], nil
}

func parseFloat(text string) (float32, error) {
	f, err := strconv.ParseFloat(text, 32)
	return float32(f), err
}
