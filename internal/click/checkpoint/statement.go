package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/click/checkpoint/tensor"
	"shaver/internal/click/model"
	"shaver/internal/onnx/wire"
)

// mostStatement is the size of the largest JSON file that is read, in MiB.
const mostStatement = 1

// Statement is what a source besides the tensors says about the architecture: a JSON
// file, our metadata, or the model_config of a .pth file. It has the JSON fields of
// model.Architecture. A field that the source leaves out is nil.
type Statement struct {
	From        string      `json:"-"` // name of the source, for errors
	Kind        *model.Kind `json:"kind"`
	FieldDims   []int       `json:"field_dims"`
	Dim         *int        `json:"dim"`
	Hidden      []int       `json:"hidden"`
	CrossLayers *int        `json:"cross_layers"`
	Experts     *int        `json:"experts"`
	Rank        *int        `json:"rank"`
	Structure   *string     `json:"structure"`
	// Activation and FieldNames are not part of an architecture.
	Activation *string   `json:"activation"`  // of the hidden layers
	FieldNames []string  `json:"field_names"` // in the order of the fields
	Features   []Feature `json:"-"`           // of FuxiCTR; nil if its feature_map.json does not exist
	File       bool      `json:"-"`           // whether the source is the JSON file next to a state dict
	BatchNorm  *bool     `json:"-"`           // whether each hidden layer has one
}

// unmarshalArchitecture reads the architecture in our metadata.
func unmarshalArchitecture(metadata map[string]string, s *Statement) error {
	if err := json.Unmarshal([]byte(metadata[metaArchitecture]), s); err != nil {
		return fault.Inputf("metadata %s: %w", metaArchitecture, err)
	}
	return nil
}

// Lookup looks for a statement outside the file, about a state dict of the given framework.
// For "" the statement must have field sizes. It returns nil if it finds nothing.
type Lookup func(family string) (*Statement, error)

// Configuration returns what the model_config of a file says about a model of the given kind.
// It is nil if the file has none.
type Configuration func(kind model.Kind) (*Statement, error)

// check returns an error for the first part of s that contradicts the recognised roles.
func (s *Statement) check(l *Roles) error {
	a := &l.Architecture
	differ := func(what string, said, found any) error {
		return fmt.Errorf("%s says %s %v, the tensors have %v", s.From, what, said, found)
	}
	if s.Kind != nil && normal(string(*s.Kind)) != string(a.Kind) {
		return differ("kind", tensor.Quote(string(*s.Kind)), a.Kind)
	}
	if s.FieldDims != nil && !slices.Equal(s.FieldDims, a.FieldDims) {
		return fmt.Errorf("%s says field_dims %s, the file %s", s.From, sizesText(s.FieldDims), sizesText(a.FieldDims))
	}
	if s.Hidden != nil && !slices.Equal(s.Hidden, a.Hidden) {
		return differ("hidden sizes", tensor.ShapeText(s.Hidden), tensor.ShapeText(a.Hidden))
	}
	for _, n := range []struct {
		what  string
		said  *int
		found int
	}{
		{"embedding columns", s.Dim, a.Dim}, {"cross layers", s.CrossLayers, a.CrossLayers},
		{"experts", s.Experts, a.Experts}, {"rank", s.Rank, a.Rank},
	} {
		if n.said != nil && *n.said != n.found {
			return differ(n.what, *n.said, n.found)
		}
	}
	if s.Structure != nil && normal(*s.Structure) != a.Structure {
		return differ("structure", tensor.Quote(*s.Structure), a.Structure)
	}
	if s.BatchNorm != nil {
		for i := range l.Layers {
			if l.Layers[i].Norm != *s.BatchNorm {
				return differ("use_batchnorm", *s.BatchNorm, fmt.Sprintf("%v in hidden layer %d", !*s.BatchNorm, i))
			}
		}
	}
	return nil
}

// normal converts a name to the spelling of our constants.
func normal(name string) string {
	return strings.ReplaceAll(strings.ToLower(name), "_", "-")
}

// sizesText is like shapeText, but shortens long lists.
func sizesText(sizes []int) string {
	const most = 12
	if len(sizes) <= most {
		return tensor.ShapeText(sizes)
	}
	return strings.TrimSuffix(tensor.ShapeText(sizes[:most]), "]") + fmt.Sprintf(", ...] of %d", len(sizes))
}

// configStatement reads the parts of a .pth file's model_config that concern models of
// the given kind. It ignores unknown keys.
func configStatement(config *dict, kind model.Kind) (*Statement, error) {
	s := &Statement{From: "model_config"}
	var err error
	value := func(key string) any {
		v, _ := config.get(key)
		return v
	}
	number := func(into **int, key string) {
		v := value(key)
		if v == nil || err != nil {
			return
		}
		n, ok := v.(int64)
		if !ok {
			err = fmt.Errorf("model_config has %s for %s, expected an int", describe(v), key)
			return
		}
		*into = new(int)
		**into = int(n)
	}
	number(&s.Dim, "num_factor")
	if kind == model.NeuMF {
		number(&s.Dim, "emb_size")
	}
	if v := value("hidden_sizes"); v != nil && err == nil && kind != model.FM {
		if s.Hidden, err = intList(v); err != nil {
			err = fmt.Errorf("model_config.hidden_sizes %w", err)
		}
	}
	if kind == model.DCNMix || kind == model.DCNv2 {
		number(&s.CrossLayers, "num_layers")
	}
	if kind == model.DCNMix {
		number(&s.Experts, "num_experts")
		number(&s.Rank, "rank")
		if v := value("activation"); v != nil && err == nil {
			if name, ok := v.(string); !ok || strings.ToLower(name) != "identity" {
				err = fmt.Errorf("model_config has %s for activation: only gates without one (None or \"identity\") are supported", describe(v))
			}
		}
	}
	if kind == model.DCNv2 {
		if v := value("structure"); v != nil && err == nil {
			name, ok := v.(string)
			if !ok {
				err = fmt.Errorf("model_config has %s for structure, expected Stacked or Parallel", describe(v))
			}
			s.Structure = &name
		}
	}
	if use, ok := value("use_batchnorm").(bool); ok {
		s.BatchNorm = &use
	}
	return s, err
}

// maxFields bounds the number of values of a vector of field sizes or widths, because its
// bytes may be compressed. It is about a hundred times what a model has.
const maxFields = 1 << 16

func tooMany(values int) error {
	return fault.Inputf("has %d values, expected at most %d", values, maxFields)
}

// intList converts a list, tuple or numpy vector of whole numbers.
func intList(v any) ([]int, error) {
	var items []any
	switch v := v.(type) {
	case *list:
		items = v.items
	case tuple:
		items = v
	case *ndarray:
		if len(v.shape) == 1 && v.shape[0] > maxFields {
			return nil, tooMany(v.shape[0])
		}
		vector, ok := v.items()
		if !ok {
			return nil, fault.Inputf("is a numpy array of %d dimensions, expected 1", len(v.shape))
		}
		items = vector
	default:
		return nil, fault.Inputf("is %s, expected a list, tensor or numpy array of ints", describe(v))
	}
	values := make([]int, len(items))
	for i, item := range items {
		n, ok := item.(int64)
		if !ok {
			return nil, fault.Inputf("has %s at position %d, expected an int", describe(item), i)
		}
		values[i] = int(n)
	}
	return values, nil
}

// sidecarFile looks for a statement in the JSON files next to path.
func sidecarFile(path string) Lookup {
	return func(family string) (*Statement, error) {
		var best *Statement
		for _, candidate := range sidecarPaths(path) {
			text, err := files.Small(candidate, mostStatement, "a small JSON object")
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, err
			}
			s := Statement{From: candidate, File: true}
			if err := json.Unmarshal(text, &s); err != nil {
				return nil, fault.Inputf("%s: expected a JSON object with the field_dims of %s: %w", candidate, path, typeError(err))
			}
			if s.FieldDims != nil || family != "" && (s.Kind != nil || s.Activation != nil || s.FieldNames != nil) {
				best = &s
				break
			}
		}
		if family != fuxiCTR.name {
			return best, nil
		}
		features, err := readFeatureMap(filepath.Dir(path))
		if err != nil || features == nil {
			return best, err
		}
		if best == nil {
			best = &Statement{From: FeatureMap}
		}
		best.Features = features
		return best, nil
	}
}

// typeError returns err without the types of Go, if it is about a value of another type.
func typeError(err error) error {
	var mismatch *json.UnmarshalTypeError
	switch {
	case !errors.As(err, &mismatch):
		return err
	case mismatch.Field == "":
		return fmt.Errorf("found a value of type %s", mismatch.Value)
	}
	return fmt.Errorf("%s is a value of type %s", mismatch.Field, mismatch.Value)
}

// sidecarPaths returns the possible paths of a JSON file that describes path, the likelier
// one first.
func sidecarPaths(path string) []string {
	extension := filepath.Ext(path)
	if extension == "" || extension == filepath.Base(path) {
		return []string{path + ".json"}
	}
	return []string{path + ".json", strings.TrimSuffix(path, extension) + ".json"}
}

// Files returns path, and the paths of the files that Read may read with it: JSON files, and
// external data of an .onnx file. If the .onnx file does not exist, its external data is
// where exporters usually write it.
func Files(path string) []string {
	near := append(sidecarPaths(path), filepath.Join(filepath.Dir(path), FeatureMap))
	if IsONNX(path) {
		near = append(near, DataFile(path))
		if m, err := wire.Open(path); err == nil {
			for _, file := range m.External() {
				if file != DataFile(path) {
					near = append(near, file)
				}
			}
			m.Close()
		}
	}
	return append(near, path)
}
