package checkpoint

import (
	"io"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/base/seal"
	"shaver/internal/click/tensor"
)

// A header with a valid digest whose layers make no sense is refused by name.
func TestHostileLayers(t *testing.T) {
	const empty = `"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"`
	for layers, text := range map[string]string{
		`[{"end":9223372036854775807}]`:                    "ascending ends",
		`[{"end":1152921504606846976}]`:                    "expected 115292150460",
		`[{"end":-1}]`:                                     "ascending ends",
		`[{"end":9},{"end":8}]`:                            "ascending ends",
		`[{"end":0,"calibration":{"scale":0,"table":1}}]`:  "factors above 0",
		`[{"end":0,"calibration":{"scale":1,"table":-1}}]`: "factors above 0",
		`[]`: "expected a JSON array of layers",
		`{}`: "expected a JSON array of layers",
		`[` + strings.Repeat(`{"end":0},`, 256) + `{"end":0}]`:      "at most 256 layers",
		`[{"end":0,` + strings.Replace(empty, "e3", "00", 1) + `}]`: "does not match its digest",
		`[{"end":0,` + empty + `}]`:                                 "expected tensor shaver.values.0",
	} {
		f := tensor.NewFile(nil, map[string]string{
			metaCompact: layersVersion, metaLayers: layers, metaDigest: seal.Blank, metaEmbeddingKey: "embedding.weight", metaArchitecture: `{"kind":"fm","dim":2,"field_dims":[3]}`,
		})
		f.Metadata[metaDigest], _ = seal.Of(func(w io.Writer) error {
			_, err := w.Write(f.Header())
			return err
		})
		if _, err := Parse("m", f.Header()); !fault.IsInput(err) || !strings.Contains(err.Error(), text) {
			t.Errorf("%.60s: %v, expected %q", layers, err, text)
		}
	}
}
