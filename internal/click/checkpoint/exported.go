package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/click/tensor"
)

// weightsFile is the entry of an archive of torch.export.save (.pt2) that describes its weights,
// behind the root.
const weightsFile = "data/weights/model_weights_config.json"

// maxWeights bounds the bytes of weightsFile, which has about 300 for each weight.
const maxWeights = 16 << 20

// scalarTypes are the numbers that torch.export gives to element types.
var scalarTypes = map[int]DType{1: U8, 2: I8, 3: I16, 4: I32, 5: I64, 6: F16, 7: F32, 8: F64, 12: Bool, 13: BF16}

// exportedTensor is a weight in weightsFile.
type exportedTensor struct {
	Path   string `json:"path_name"`
	Pickle bool   `json:"use_pickle"`
	Meta   *struct {
		DType  int           `json:"dtype"`
		Shape  []exportedInt `json:"sizes"`
		Stride []exportedInt `json:"strides"`
		Offset exportedInt   `json:"storage_offset"`
	} `json:"tensor_meta"`
}

// exportedInt is a number of torch.export, which may be a symbol elsewhere.
type exportedInt struct {
	Int *int64 `json:"as_int"`
}

// exportedInts converts numbers from 0 to 2^48.
func exportedInts(list ...exportedInt) (values []int, ok bool) {
	if len(list) > maxDimensions {
		return nil, false
	}
	values = make([]int, len(list))
	for i, v := range list {
		if v.Int == nil || *v.Int < 0 || *v.Int > 1<<48 {
			return nil, false
		}
		values[i] = int(*v.Int)
	}
	return values, true
}

// exported returns the state dict of an archive of torch.export.save, in its order. Programs of the archive
// are not read.
func (a *archive) exported() (*dict, error) {
	text, err := a.read(a.weights, maxWeights)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.name, err)
	}
	refuse := func(format string, args ...any) (*dict, error) {
		return nil, fault.Inputf("%s: %s %s", a.name, weightsFile, fmt.Sprintf(format, args...))
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	for _, want := range []json.Token{json.Delim('{'), "config", json.Delim('{')} {
		if token, err := decoder.Token(); err != nil || token != want {
			return refuse("is not what torch.export.save writes: expected an object of weights under \"config\"")
		}
	}
	states := &dict{}
	seen := map[string]bool{}
	for decoder.More() {
		token, err := decoder.Token()
		key, _ := token.(string)
		var e exportedTensor
		if err == nil {
			err = decoder.Decode(&e)
		}
		if err != nil {
			return refuse("is not JSON of weights: %v", err)
		}
		if seen[key] {
			return refuse("has the weight %s twice", tensor.Quote(key))
		}
		seen[key] = true
		if e.Pickle || e.Meta == nil {
			return refuse("stores %s as a pickle: only plain weights are read", tensor.Quote(key))
		}
		dtype, known := scalarTypes[e.Meta.DType]
		shape, isShape := exportedInts(e.Meta.Shape...)
		stride, isStride := exportedInts(e.Meta.Stride...)
		offset, isOffset := exportedInts(e.Meta.Offset)
		switch {
		case !known:
			return refuse("has the weight %s of the unsupported type %d", tensor.Quote(key), e.Meta.DType)
		case !isShape || !isStride || !isOffset || len(shape) != len(stride):
			return refuse("has the weight %s without the sizes, strides and offset of a tensor", tensor.Quote(key))
		}
		entry := a.entries[a.root+"/"+a.storageFolder()+e.Path]
		if entry == nil {
			return refuse("refers to %s, which the file does not hold", tensor.Quote(e.Path))
		}
		s := &storageRef{e.Path, dtype, int(min(entry.UncompressedSize64, 1<<48)) / dtype.Size()}
		states.keys, states.values = append(states.keys, key), append(states.values, &tensorRef{storage: s, offset: offset[0], shape: shape, stride: stride})
	}
	if _, err := decoder.Token(); err != nil {
		return refuse("is cut short: %v", err)
	}
	return states, nil
}

// storageFolder returns the folder of the storages, behind the root.
func (a *archive) storageFolder() string {
	if a.weights == nil {
		return "data/"
	}
	return strings.TrimSuffix(weightsFile, "model_weights_config.json")
}
