package baseline

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
)

// Decode accepts only baselines of the architecture, and Encode reproduces the bytes, with words and without.
func FuzzDecode(f *testing.F) {
	layouts := []model.Architecture{modeltest.LookUps(), modeltest.Lists()}
	for i := range layouts {
		for _, b := range []model.Baseline{layouts[i].Zero(), modeltest.Words(&layouts[i], 1, 1), modeltest.Words(&layouts[i], 3, 2)} {
			if got, err := Decode(Encode(&b), &layouts[i]); err != nil || !got.Equal(&b) {
				f.Fatalf("%+v decoded from the bytes of %+v, error %v", got, b, err)
			}
			f.Add(Encode(&b), i == 1)
		}
	}
	f.Add(EncodeValues([]float32{1, float32(math.NaN()), 0, 0, 0, 0, 0, 0, 0}), false)
	f.Add(EncodeValues([]float32{1, 2, 3, 2, 0, 0}), true) // the sharers differ
	f.Add(append(EncodeValues(make([]float32, 6)), make([]byte, 3+11)...), true)
	f.Add(append(EncodeValues(make([]float32, 8)), 1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), true) // word 2 of 2
	f.Add([]byte{1, 2, 3}, true)
	f.Fuzz(func(t *testing.T, data []byte, lists bool) {
		a := &layouts[0]
		if lists {
			a = &layouts[1]
		}
		b, err := Decode(data, a)
		if err != nil {
			return
		}
		if err := a.CheckBaseline(&b); err != nil || !bytes.Equal(Encode(&b), data) {
			t.Fatalf("%+v decoded from %d bytes encodes to different bytes, or is wrong: %v", b, len(data), err)
		}
	})
}

// Values are read as they were written. Other bytes are an error that says what was expected.
func TestDecodeValues(t *testing.T) {
	want := []float32{1.5, -0x1p-140, math.MaxFloat32, 0}
	if got, err := DecodeValues(EncodeValues(want), 4); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, expected %v", got, err, want)
	}
	for text, values := range map[string][]float32{
		"the baseline has 12 bytes, 4 values need 16":               {1, 2, 3},
		"the baseline has 20 bytes, 4 values need 16":               {1, 2, 3, 4, 5},
		"value 2 of the baseline is NaN, expected a finite number":  {1, 2, float32(math.NaN()), 4},
		"value 0 of the baseline is -Inf, expected a finite number": {float32(math.Inf(-1)), 2, 3, 4},
	} {
		if _, err := DecodeValues(EncodeValues(values), 4); err == nil || err.Error() != text {
			t.Errorf("%v, expected %q", err, text)
		}
	}
}
