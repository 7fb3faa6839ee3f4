package seal

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"shaver/internal/base/fault"
)

// sealed returns a text of n bytes with its digest at each of the places.
func sealed(t *testing.T, n int, places ...int) (text []byte, digest string) {
	t.Helper()
	text = bytes.Repeat([]byte{'.'}, n)
	for _, at := range places {
		copy(text[at:], Blank)
	}
	digest, err := Of(func(w io.Writer) error { _, err := w.Write(text); return err })
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range places {
		copy(text[at:], digest)
	}
	return text, digest
}

// Check finds the digest in every place, also where two windows meet, however the content
// arrives.
func TestCheck(t *testing.T) {
	const window = 1 << 16
	for _, place := range []int{0, 1, window - 65, window - 64, window - 63, window - 32, window - 1, window, 2*window - 63 - 10, 3*window - 64} {
		text, digest := sealed(t, 3*window, place)
		if err := Check("x", bytes.NewReader(text), digest); err != nil {
			t.Errorf("digest at byte %d: %v", place, err)
		}
	}
	text, digest := sealed(t, 1000, 0, 64, 300, 936)
	for name, r := range map[string]io.Reader{"bytes": bytes.NewReader(text), "single bytes": iotest.OneByteReader(bytes.NewReader(text)), "with the end": iotest.DataErrReader(bytes.NewReader(text))} {
		if err := Check("x", r, digest); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Every flipped bit is found, in the content and in each copy of the digest.
func TestFlips(t *testing.T) {
	text, digest := sealed(t, 300, 20, 200)
	for i := range text {
		for bit := range 8 {
			text[i] ^= 1 << bit
			if err := Check("x", bytes.NewReader(text), digest); !fault.IsInput(err) || err.Error() != "x is damaged: its content does not match its digest" {
				t.Fatalf("byte %d, bit %d: %v", i, bit, err)
			}
			text[i] ^= 1 << bit
		}
	}
}

// A digest that is missing or malformed is refused, and an error of the reader is returned.
func TestRefusals(t *testing.T) {
	text, digest := sealed(t, 100, 0)
	for _, bad := range []string{"", digest[1:], strings.ToUpper(digest[:1]) + digest[1:63] + "G", digest + "0"} {
		if err := Check("x", bytes.NewReader(text), bad); !fault.IsInput(err) || !strings.Contains(err.Error(), "x is damaged: its digest is missing or malformed") {
			t.Errorf("digest %q: %v", bad, err)
		}
	}
	broken := errors.New("broken")
	if err := Check("x", iotest.ErrReader(broken), digest); !errors.Is(err, broken) || fault.IsInput(err) {
		t.Errorf("a broken reader: %v", err)
	}
	if _, err := Of(func(io.Writer) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("a broken writer: %v", err)
	}
}
