package baseline

import (
	"bytes"
	"math"
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
