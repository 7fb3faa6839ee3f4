package arrowio

import (
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"shaver/internal/value/tally"
)

// Numbers of all widths survive packing.
func TestBits(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 5))
	for width := range 65 {
		for n := range 20 {
			numbers := make([]uint64, n)
			for i := range numbers {
				if width > 0 {
					numbers[i] = random.Uint64() >> (64 - width)
				}
			}
			data := appendBits([]byte{7}, numbers, width)[1:]
			if len(data) != (n*width+7)/8 {
				t.Fatalf("%d numbers of %d bits take %d bytes", n, width, len(data))
			}
			got := make([]int64, n)
			readBits(got, data, width)
			for i, v := range numbers {
				if uint64(got[i]) != v {
					t.Fatalf("width %d: number %d of %d is %x, want %x", width, i, n, got[i], v)
				}
			}
		}
	}
}

// A partial with too many bytes of records is refused.
func TestLargeRecords(t *testing.T) {
	defer func(most int) { maxRecords = most }(maxRecords)
	maxRecords = 100
	if err := EncodePartial(io.Discard, randomPartial(10, 4, true)); err == nil || !strings.Contains(err.Error(), "take more than 100 bytes: choose fewer rows per shard") {
		t.Errorf("error %v", err)
	}
}

// Records keep all sums, and take little space where lists follow from others.
func TestRecords(t *testing.T) {
	lists := packings(tally.Form{}, false)
	square := func(v int64) int64 {
		s, ok := tally.Square(v)
		if !ok {
			t.Fatal("too large")
		}
		return s
	}
	once := [][]int64{{1 << 24, -1 << 24, 5, 0}, {1 << 24, 1 << 24, 5, 0}, {square(1 << 24), square(1 << 24), square(5), 0}}
	for name, c := range map[string]struct {
		sums  [][]int64
		count int64
		size  int
	}{
		"one row":             {once, 1, 3 + 4*26/8},
		"two rows":            {once, 2, 3 + 4*26/8 + 4*21/8 + 1},
		"absolute values":     {[][]int64{{4, -4}, {6, 8}, {1, 1}}, 2, 3 + 1 + 1 + 1},
		"odd absolute values": {[][]int64{{4, -4}, {7, 8}, {1, 1}}, 2, 3 + 1 + 1 + 1},
		"small ones":          {[][]int64{{4, -4}, {3, 8}, {1, 1}}, 2, 3 + 1 + 1 + 1},
		"all bits":            {[][]int64{{math.MinInt64, math.MaxInt64}, {math.MaxInt64, 0}, {math.MaxInt64, 1}}, 2, 3 + 16 + 16 + 16},
		"zeros":               {[][]int64{{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}, 1, 3},
	} {
		p := packer{lists: lists}
		p.pack(c.sums, c.count)
		if len(p.out) != c.size {
			t.Errorf("%s: %d bytes, want %d", name, len(p.out), c.size)
		}
		got := make([][]int64, len(lists))
		for i := range got {
			got[i] = make([]int64, len(c.sums[0]))
		}
		if err := unpack(p.out, lists, got); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i := range got {
			if !slices.Equal(got[i], c.sums[i]) {
				t.Errorf("%s: list %d is %v, want %v", name, i, got[i], c.sums[i])
			}
		}
		for n := range p.out {
			if unpack(p.out[:n], lists, got) == nil {
				t.Errorf("%s: the first %d of %d bytes are a record", name, n, len(p.out))
			}
		}
		if unpack(append(p.out, 0), lists, got) == nil {
			t.Errorf("%s: a record has a byte too many", name)
		}
	}
	got := [][]int64{{0}, {0}, {0}}
	for name, record := range map[string][]byte{
		"65 bits":                        {65, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9},
		"sums follow":                    {derived, 0, 0},
		"squares of some width":          {0, 0, derived | 1, 0},
		"the square of a large number":   {50, derived, derived, 0, 0, 0, 0, 0, 0, 2},
		"a large absolute value":         {2, 63 | derived, 0, 2, 255, 255, 255, 255, 255, 255, 255, 127},
		"the absolute value of MinInt64": {64, derived, 0, 255, 255, 255, 255, 255, 255, 255, 255},
	} {
		if err := unpack(record, lists, got); err == nil {
			t.Errorf("%s: record %v is accepted as %v", name, record, got)
		}
	}
}
