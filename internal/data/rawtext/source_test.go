package rawtext

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"shaver/internal/base/fault"
)

// growing is a file that grows after its end was read. Each part ends with io.EOF once.
type growing struct{ parts []string }

func (g *growing) Read(p []byte) (int, error) {
	if len(g.parts) == 0 {
		return 0, io.EOF
	}
	part := g.parts[0]
	if part == "" {
		g.parts = g.parts[1:]
		return 0, io.EOF
	}
	n := copy(p, part)
	g.parts[0] = part[n:]
	return n, nil
}

// Several gzip members or zstd frames are one text. Skippable frames, and zeros behind a member, add nothing to it.
func TestManyFrames(t *testing.T) {
	zipped := func(text string) string {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	frame := func(text string) string { return string(encoder.EncodeAll([]byte(text), nil)) }
	zeros := string(make([]byte, 512))
	skipped := "\x5f\x2a\x4d\x18\x04\x00\x00\x00abcd"
	for _, data := range []string{
		zipped("a\nb") + zipped("") + zipped("c\n"),
		zipped("a\nb") + zeros + zipped("c\n") + zeros,
		frame("a\nb") + frame("c\n"),
		skipped + frame("a\nb") + skipped + frame("c\n") + skipped,
	} {
		s, err := New("x", io.NopCloser(strings.NewReader(data)))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(s.Content())
		if err != nil || string(text) != "a\nbc\n" {
			t.Errorf("%q, %v", text, err)
		}
		s.Close()
	}
}

// What follows a member, or the zeros behind it, is another member or an error.
func TestBytesBehindGzip(t *testing.T) {
	var data bytes.Buffer
	w := gzip.NewWriter(&data)
	if _, err := io.WriteString(w, "a\n"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, behind := range []string{"x", "\x00x", "\x00\x00 a whole line of text\n", data.String()[:9]} {
		s, err := New("x", io.NopCloser(strings.NewReader(data.String()+behind)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(s.Content()); !fault.IsInput(err) {
			t.Errorf("%q: %v", behind, err)
		}
		s.Close()
	}
}

func TestGrowingFile(t *testing.T) {
	for _, c := range []struct {
		parts []string
		want  string
	}{
		{[]string{"aaa\nbbb\n", ""}, ""},
		{[]string{"aaa\nbbb\n", "c\n"}, "x grew while it was read"},
	} {
		s, err := New("x", io.NopCloser(&growing{c.parts}))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(s.Content())
		if err != nil || string(text) != "aaa\nbbb\n" {
			t.Errorf("%q, %v", text, err)
		}
		_, size, err := s.Digest()
		if c.want == "" && (err != nil || size != 8) {
			t.Errorf("%d bytes, %v", size, err)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("a file that grew: %v", err)
		}
	}
}
