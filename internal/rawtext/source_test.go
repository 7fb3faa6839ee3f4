package rawtext

import (
	"io"
	"strings"
	"testing"
)

// growing is a file that gets more bytes after its end was read.
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

func TestGrowingFile(t *testing.T) {
	for _, c := range []struct {
		parts []string
		want  string
	}{
		{[]string{"a\nb\n", ""}, ""},
		{[]string{"a\nb\n", "c\n"}, "x grew while it was read"},
	} {
		s, err := New("x", io.NopCloser(&growing{c.parts}))
		if err != nil {
			t.Fatal(err)
		}
		lines := 0
		for ; err == nil; lines++ {
			_, _, err = s.Next()
		}
		_, size, err := s.Digest()
		if c.want == "" && (err != nil || size != 4 || lines != 3) {
			t.Errorf("%d bytes, %d lines, %v", size, lines, err)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("a file that grew: %v", err)
		}
	}
}
