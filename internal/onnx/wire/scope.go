package wire

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// scope reads an entry of the metadata of a node. If it is the namespace that PyTorch's
// exporter writes, scope sets to to the module in it.
func (p *parser) scope(v field, to *string) error {
	if v.kind != protowire.BytesType || v.end-v.at > maxName {
		return nil
	}
	var key, value string
	err := p.message(v, func(number protowire.Number, v field) error {
		switch number {
		case 1:
			return p.name(v, &key)
		case 2:
			return p.name(v, &value)
		}
		return nil
	})
	if err == nil && key == "namespace" {
		*to = module(value)
	}
	return err
}

// module returns the last module of a namespace and its class. A namespace has an element for
// each module and one for the operator, such as
//
//	: model.Rank/attention: torch.nn.modules.activation.MultiheadAttention/masked_fill: aten.masked_fill.Scalar
func module(namespace string) string {
	parts := strings.Split(namespace, "/")
	var names []string
	class := ""
	for _, part := range parts[:len(parts)-1] {
		name, of, ok := strings.Cut(part, ": ")
		if !ok {
			return ""
		}
		if name != "" {
			names = append(names, name)
		}
		class = of[strings.LastIndexByte(of, '.')+1:]
	}
	if len(names) == 0 {
		return class
	}
	return strings.Join(names, ".") + " (" + class + ")"
}
