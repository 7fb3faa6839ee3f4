// Package onnxtest writes .onnx files for tests. It checks nothing, so that tests can write
// damaged files.
package onnxtest

import (
	"encoding/binary"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Message is an encoded protobuf message.
type Message []byte

// Text appends a field that is a string or bytes.
func (m Message) Text(number protowire.Number, text string) Message {
	return protowire.AppendString(protowire.AppendTag(m, number, protowire.BytesType), text)
}

// Int appends a field that is a whole number.
func (m Message) Int(number protowire.Number, n int64) Message {
	return protowire.AppendVarint(protowire.AppendTag(m, number, protowire.VarintType), uint64(n))
}

// Sub appends a field for each message.
func (m Message) Sub(number protowire.Number, messages ...Message) Message {
	for _, sub := range messages {
		m = protowire.AppendBytes(protowire.AppendTag(m, number, protowire.BytesType), sub)
	}
	return m
}

// Float appends a field that is a float32.
func (m Message) Float(number protowire.Number, f float32) Message {
	return protowire.AppendFixed32(protowire.AppendTag(m, number, protowire.Fixed32Type), math.Float32bits(f))
}

// Model returns a file of version 8 of the format, with a graph and more fields of the
// model.
func Model(opset int64, graph Message, more ...Message) []byte {
	m := Message(nil).Int(1, 8).Text(2, "onnxtest").Sub(7, graph).Sub(8, Message(nil).Text(1, "").Int(2, opset))
	for _, part := range more {
		m = append(m, part...)
	}
	return m
}

// Graph has the parts of a graph.
type Graph struct {
	Nodes, Initializers, Inputs, Outputs []Message
}

// Message returns the encoded graph.
func (g Graph) Message() Message {
	return Message(nil).Sub(1, g.Nodes...).Text(2, "g").Sub(5, g.Initializers...).Sub(11, g.Inputs...).Sub(12, g.Outputs...)
}

// Names are the names of a node's inputs or outputs.
type Names []string

// Node returns a node. Its name is "n_" and the name of its first output.
func Node(op string, in, out Names, attributes ...Message) Message {
	m := Message(nil)
	for _, name := range in {
		m = m.Text(1, name)
	}
	for _, name := range out {
		m = m.Text(2, name)
	}
	if len(out) > 0 {
		m = m.Text(3, "n_"+out[0])
	}
	return m.Text(4, op).Sub(5, attributes...)
}

// Attribute returns an attribute. The value is an int64, an int, a float32, a string, a
// []int64, a Message that is a tensor, or a Graph.
func Attribute(name string, value any) Message {
	m := Message(nil).Text(1, name)
	switch v := value.(type) {
	case int:
		return m.Int(3, int64(v)).Int(20, 2)
	case int64:
		return m.Int(3, v).Int(20, 2)
	case float32:
		return m.Float(2, v).Int(20, 1)
	case string:
		return m.Text(4, v).Int(20, 3)
	case []int64:
		for _, n := range v {
			m = m.Int(8, n)
		}
		return m.Int(20, 7)
	case Message: // a tensor
		return m.Sub(5, v).Int(20, 4)
	case Graph:
		return m.Sub(6, v.Message()).Int(20, 5)
	}
	panic("onnxtest: attribute of another type")
}

// Value returns an input or an output. A size of -1 is unknown and has the name batch.
func Value(name string, kind int64, dims ...int64) Message {
	shape := Message(nil)
	for _, d := range dims {
		if d < 0 {
			shape = shape.Sub(1, Message(nil).Text(2, "batch"))
		} else {
			shape = shape.Sub(1, Message(nil).Int(1, d))
		}
	}
	return Message(nil).Text(1, name).Sub(2, Message(nil).Sub(1, Message(nil).Int(1, kind).Sub(2, shape)))
}

// Raw returns a tensor with elements in raw_data.
func Raw(name string, kind int64, data []byte, dims ...int64) Message {
	m := Message(nil)
	for _, d := range dims {
		m = m.Int(1, d)
	}
	return m.Int(2, kind).Text(8, name).Text(9, string(data))
}

// Floats returns a tensor of float32.
func Floats(name string, data []float32, dims ...int64) Message {
	var raw []byte
	for _, f := range data {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(f))
	}
	return Raw(name, 1, raw, dims...)
}

// Ints returns a tensor of int64.
func Ints(name string, data []int64, dims ...int64) Message {
	var raw []byte
	for _, n := range data {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(n))
	}
	return Raw(name, 7, raw, dims...)
}

// Outside returns a tensor whose elements are in another file. The settings are pairs of
// a key and a value.
func Outside(name string, kind int64, settings []string, dims ...int64) Message {
	m := Message(nil)
	for _, d := range dims {
		m = m.Int(1, d)
	}
	m = m.Int(2, kind).Text(8, name)
	for i := 0; i+1 < len(settings); i += 2 {
		m = m.Sub(13, Message(nil).Text(1, settings[i]).Text(2, settings[i+1]))
	}
	return m.Int(14, 1)
}

// Function returns a local function as a field of a model.
func Function(domain, name string, in, out Names, nodes ...Message) Message {
	m := Message(nil).Text(1, name)
	for _, n := range in {
		m = m.Text(4, n)
	}
	for _, n := range out {
		m = m.Text(5, n)
	}
	return Message(nil).Sub(25, m.Sub(7, nodes...).Text(10, domain))
}

// Domain returns a node with the given domain.
func Domain(node Message, domain string) Message {
	return append(node[:len(node):len(node)], Message(nil).Text(7, domain)...)
}
