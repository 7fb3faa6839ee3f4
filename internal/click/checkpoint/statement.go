package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/click/checkpoint/family"
	"shaver/internal/click/model"
	"shaver/internal/onnx/wire"
)

// mostStatement is the size of the largest JSON file that is read, in MiB.
const mostStatement = 1

// unmarshalArchitecture reads the architecture in our metadata.
func unmarshalArchitecture(metadata map[string]string, s *family.Statement) error {
	if err := json.Unmarshal([]byte(metadata[metaArchitecture]), s); err != nil {
		return fault.Inputf("metadata %s: %w", metaArchitecture, err)
	}
	return nil
}

// configStatement reads the parts of a .pth file's model_config that concern models of
// the given kind. It ignores unknown keys.
func configStatement(config *dict, kind model.Kind) (*family.Statement, error) {
	s := &family.Statement{From: "model_config"}
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
	if key, name := activationIn(config); key != "" && kind != model.DCNMix {
		s.Activation = &name
	}
	if use, ok := value("use_batchnorm").(bool); ok {
		s.BatchNorm = &use
	}
	return s, err
}

// activationIn returns the key and the name of the activation of the hidden layers in a dict of settings: the first that is not
// ReLU, or else "relu". The key is "" if the dict has none.
func activationIn(in *dict) (key, name string) {
	for _, k := range []string{"activation", "act", "hidden_activation", "hidden_activations", "dnn_activation"} {
		v, _ := in.get(k)
		items, _ := v.(tuple)
		if l, ok := v.(*list); ok {
			items = l.items
		} else if items == nil {
			items = tuple{v}
		}
		for _, item := range items {
			if item != nil && (name == "" || name == "relu") {
				key, name = k, shortName(item)
			}
		}
	}
	return key, name
}

// shortName returns what text, a function, a class or an object is called without its module, in lower case.
func shortName(v any) string {
	text := strings.TrimRight(describe(v), `"()`)
	return strings.ToLower(text[strings.LastIndexAny(text, `. "`)+1:])
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
func sidecarFile(path string) family.Lookup {
	return func(framework string) (*family.Statement, error) {
		var best *family.Statement
		for _, candidate := range sidecarPaths(path) {
			text, err := files.Small(candidate, mostStatement, "a small JSON object")
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, err
			}
			s := family.Statement{From: candidate, File: filepath.Base(candidate)}
			if err := json.Unmarshal(text, &s); err != nil {
				return &s, fault.Inputf("%s: expected a JSON object with the field_dims of %s: %w", candidate, path, typeError(err))
			}
			if s.FieldDims != nil || s.Kind != nil || s.Activation != nil || s.FieldNames != nil {
				best = &s
				break
			}
		}
		if framework != family.FuxiCTR {
			return best, nil
		}
		features, err := readFeatureMap(filepath.Dir(path))
		if err != nil || features == nil {
			return best, err
		}
		if best == nil {
			best = &family.Statement{From: family.FeatureMap}
		}
		best.Features = features
		return best, nil
	}
}

// readFeatureMap reads feature_map.json in folder. It returns nil if the file does not exist.
func readFeatureMap(folder string) ([]family.Feature, error) {
	path := filepath.Join(folder, family.FeatureMap)
	text, err := files.Small(path, mostStatement, "a small JSON object")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var m struct {
		Features []map[string]family.Feature `json:"features"`
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fault.Inputf("%s: expected a JSON object whose features is a list of objects: %w", path, typeError(err))
	}
	features := []family.Feature{}
	for i, one := range m.Features {
		if len(one) != 1 {
			return nil, fault.Inputf("%s: features[%d] has %d names, expected 1", path, i, len(one))
		}
		for name, f := range one {
			f.Name = name
			features = append(features, f)
		}
	}
	if len(features) == 0 {
		return nil, fault.Inputf("%s: expected a list of features", path)
	}
	return features, nil
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

// Files returns path, and the paths of the files that Read may read with it: JSON files, the files in a
// folder of torch.distributed.checkpoint, and external data of an .onnx file. If the .onnx file does not exist, its external data is
// where exporters usually write it.
func Files(path string) []string {
	near := append(sidecarPaths(path), filepath.Join(filepath.Dir(path), family.FeatureMap))
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
	if entries, err := os.ReadDir(path); err == nil { // a folder
		for _, e := range entries {
			if t := e.Type(); t.IsRegular() || t&os.ModeSymlink != 0 {
				near = append(near, filepath.Join(path, e.Name()))
			}
		}
	}
	return append(near, path)
}
