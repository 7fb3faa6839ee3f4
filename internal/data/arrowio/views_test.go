package arrowio

import (
	"maps"
	"strings"
	"testing"

	flatbuffers "github.com/google/flatbuffers/go"
)

// A batch must have a number of buffers for each view column, and not more buffers than it has.
func TestCheckVariadic(t *testing.T) {
	for _, c := range []struct {
		buffers, views int
		numbers        []int64 // nil = the batch has no list of numbers
		want           string
	}{
		{4, 2, []int64{1, 1}, ""},
		{4, 1, []int64{1, 1}, ""},
		{4, 2, nil, ""}, // the library takes 0 for each
		{4, 2, []int64{1}, "numbers of buffers for 1 columns, expected 2"},
		{4, 1, []int64{}, "numbers of buffers for 0 columns, expected 1"},
		{4, 2, []int64{3, 2}, "claims 2 buffers for a column, expected at most 1"},
		{4, 1, []int64{-1}, "claims -1 buffers"},
	} {
		b := flatbuffers.NewBuilder(0)
		b.StartVector(16, c.buffers, 8)
		for range 2 * c.buffers {
			b.PrependInt64(0)
		}
		buffers, numbers := b.EndVector(c.buffers), flatbuffers.UOffsetT(0)
		if c.numbers != nil {
			b.StartVector(8, len(c.numbers), 8)
			for i := range c.numbers {
				b.PrependInt64(c.numbers[len(c.numbers)-1-i])
			}
			numbers = b.EndVector(len(c.numbers))
		}
		b.StartObject(5)
		b.PrependUOffsetTSlot(2, buffers, 0)
		b.PrependUOffsetTSlot(4, numbers, 0)
		b.Finish(b.EndObject())
		err := checkVariadic(root(b), c.views)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// View columns count in the batches, and views in a dictionary in those of the dictionary.
func TestViews(t *testing.T) {
	const utf8, list, binaryView, utf8View = 5, 12, 23, 24
	b := flatbuffers.NewBuilder(0)
	field := func(kind byte, dictionary int64, children ...flatbuffers.UOffsetT) flatbuffers.UOffsetT {
		encoding, below := flatbuffers.UOffsetT(0), flatbuffers.UOffsetT(0)
		if dictionary > 0 {
			b.StartObject(1)
			b.PrependInt64Slot(0, dictionary, 0)
			encoding = b.EndObject()
		}
		if len(children) > 0 {
			below = b.CreateVectorOfTables(children)
		}
		b.StartObject(6)
		b.PrependByteSlot(2, kind, 0)
		b.PrependUOffsetTSlot(4, encoding, 0)
		b.PrependUOffsetTSlot(5, below, 0)
		return b.EndObject()
	}
	fields := b.CreateVectorOfTables([]flatbuffers.UOffsetT{
		field(utf8, 0), field(utf8View, 0), field(binaryView, 0), field(list, 0, field(utf8View, 0)),
		field(utf8, 3), field(utf8View, 7), field(list, 0, field(utf8View, 9)),
	})
	b.StartObject(2)
	b.PrependUOffsetTSlot(1, fields, 0)
	b.Finish(b.EndObject())
	columns, dictionaries, err := views(root(b))
	if want := map[int64]int{7: 1, 9: 1}; err != nil || columns != 3 || !maps.Equal(dictionaries, want) {
		t.Errorf("%d columns, dictionaries %v, %v; expected 3 and %v", columns, dictionaries, err, want)
	}
}

func root(b *flatbuffers.Builder) flat {
	bytes := b.FinishedBytes()
	return table(bytes, flatbuffers.GetUOffsetT(bytes))
}
