package checkpoint

import (
	"archive/zip"
	"encoding/binary"
	"fmt"
	"testing"
)

// sharing writes pickles in which one object occurs many times.
type sharing struct{ data []byte }

func (s *sharing) add(text string) { s.data = append(s.data, text...) }

func (s *sharing) text(text string) {
	s.data = binary.LittleEndian.AppendUint32(append(s.data, opUnicode), uint32(len(text)))
	s.add(text)
}

// keep stores the object on the stack under a number, and pops it.
func (s *sharing) keep(n int) {
	s.data = append(binary.LittleEndian.AppendUint32(append(s.data, opPut4), uint32(n)), opPop)
}

func (s *sharing) get(n int) {
	s.data = binary.LittleEndian.AppendUint32(append(s.data, opGet4), uint32(n))
}

// dict adds a dict of n items that are all the object with a number. Number 0 is None.
func (s *sharing) dict(n, object int) {
	s.add("}(")
	for i := range n {
		s.text(fmt.Sprint(i))
		if object == 0 {
			s.add("N")
		} else {
			s.get(object)
		}
	}
	s.add("u")
}

// A small pickle in which the same dicts or modules occur again and again is refused
// before all of its paths are followed, of which there are billions.
func TestHostileSharing(t *testing.T) {
	dicts := &sharing{[]byte{opProto, 2}}
	dicts.add("ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x01tQK\x00K\x01\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtR")
	dicts.keep(1)
	dicts.dict(50_000, 1)
	dicts.keep(2)
	dicts.dict(1000, 2)
	dicts.keep(3)
	dicts.dict(1000, 3)
	dicts.add(".")

	modules := &sharing{[]byte{opProto, 2}}
	modules.dict(50_000, 0)
	modules.keep(1)
	modules.add("}")
	modules.keep(2)
	modules.keepModule(2, 10)
	for i := range 30 {
		modules.dict(2, 10+i)
		modules.keep(100 + i)
		modules.keepModule(100+i, 11+i)
	}
	modules.get(40)
	modules.add(".")

	for name, c := range map[string]struct {
		pickle []byte
		want   string
	}{
		"dicts":   {dicts.data, "holds the same dicts too often"},
		"modules": {modules.data, "the same modules too often"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("m", zipBytes(t, zip.Deflate, "m/data.pkl", string(c.pickle), "m/data/0", "\x00\x00\x80\x3f"))
			wantInput(t, err, "m", c.want)
		})
	}
}

// keepModule keeps a module with the parameters 1, the buffers 2 and some modules.
func (s *sharing) keepModule(modules, n int) {
	s.add("cm\nM\n)\x81}(")
	for name, object := range map[string]int{"_parameters": 1, "_buffers": 2, "_modules": modules} {
		s.text(name)
		s.get(object)
	}
	s.add("ub")
	s.keep(n)
}
