package dissect

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"shaver/internal/base/long"
	"shaver/internal/onnx/wire/onnxtest"
)

// history returns a model with an input hist of three columns. The rows of table a that
// they choose are e [rows, 3, 2], and nodes make ea [rows, 2] from them.
func history(nodes ...onnxtest.Message) *sample {
	s := newSample()
	s.inputs = append(s.inputs, onnxtest.Value("hist", int64s, -1, 3))
	s.initializers = append(s.initializers, onnxtest.Ints("[2]", []int64{2}, 1), onnxtest.Ints("-1", []int64{-1}))
	s.ea(append([]onnxtest.Message{node("Gather", names{"a", "hist"}, names{"e"})}, nodes...)...)
	return s
}

// masked returns nodes that sum the rows of a history where mask is true.
func masked(mask ...onnxtest.Message) []onnxtest.Message {
	return append(mask, node("Cast", names{"mask"}, names{"m"}, attr("to", float32s)), node("Unsqueeze", names{"m", "[2]"}, names{"m2"}),
		node("Mul", names{"e", "m2"}, names{"em"}), node("ReduceSum", names{"em", "[1]"}, names{"ea"}, attr("keepdims", 0)))
}

// A node that looks up consecutive columns reads a list. Its pad is the id with which the
// graph compares the ids.
func TestLists(t *testing.T) {
	sum := node("ReduceSum", names{"e", "[1]"}, names{"ea"}, attr("keepdims", 0))
	const belowZero = -1
	for name, test := range map[string]struct {
		s     *sample
		pad   int
		found bool
		keeps func(id int) bool // whether the graph does not mask it
	}{
		"sum":        {history(sum), 0, false, func(id int) bool { return true }},
		"not equal":  {history(masked(node("Equal", names{"hist", "0"}, names{"p"}), node("Not", names{"p"}, names{"mask"}))...), 0, true, func(id int) bool { return id != 0 }},
		"greater":    {history(masked(node("Greater", names{"hist", "0"}, names{"mask"}))...), 0, true, func(id int) bool { return id > 0 }},
		"at least":   {history(masked(node("GreaterOrEqual", names{"hist", "1"}, names{"mask"}))...), 0, true, func(id int) bool { return id >= 1 }},
		"less":       {history(masked(node("Less", names{"hist", "4"}, names{"mask"}))...), 4, true, func(id int) bool { return id < 4 }},
		"cast":       {history(masked(node("Cast", names{"hist"}, names{"h32"}, attr("to", float32s)), node("Equal", names{"h32", "one"}, names{"p"}), node("Not", names{"p"}, names{"mask"}))...), 1, true, func(id int) bool { return id != 1 }},
		"clip":       {history(masked(node("Clip", names{"hist", "0", "1"}, names{"mask"}))...), 0, true, func(id int) bool { return id > 0 }},
		"truth":      {history(masked(node("Cast", names{"hist"}, names{"mask"}, attr("to", 9)))...), 0, true, func(id int) bool { return id != 0 }},
		"below":      {history(masked(node("GreaterOrEqual", names{"hist", "0"}, names{"mask"}))...), belowZero, false, func(id int) bool { return true }},
		"minus one":  {history(masked(node("Equal", names{"hist", "-1"}, names{"p"}), node("Not", names{"p"}, names{"mask"}))...), belowZero, false, func(id int) bool { return true }},
		"both":       {history(masked(node("Less", names{"hist", "0"}, names{"below"}), node("Where", names{"below", "0", "hist"}, names{"raised"}), node("Greater", names{"raised", "0"}, names{"mask"}))...), 0, true, func(id int) bool { return id > 0 }},
		"two groups": {history(masked(node("Less", names{"hist", "2"}, names{"mask"}))...), 0, false, func(id int) bool { return id < 2 }},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := test.s.dissect(t, Options{})
			if err != nil {
				t.Fatal(err)
			}
			fields := []Field{
				{Name: "ids[1]", Input: "ids", Column: 1, Length: 1, Rows: 3, Pad: -1},
				{Name: "hist", Input: "hist", Length: 3, Rows: 5, Pad: max(test.pad, 0), PadFound: test.found, PadBelow: test.pad == belowZero},
			}
			if !slices.Equal(n.Fields, fields) {
				t.Errorf("fields %+v, expected %+v", n.Fields, fields)
			}
			if wantIDs := name != "sum"; wantIDs != (len(n.IDs) == 1 && n.IDs[0].Field == 1) || len(n.LookUps) != 2 {
				t.Errorf("ids as numbers %+v, look-ups %+v", n.IDs, n.LookUps)
			}
			for _, l := range n.LookUps {
				if shape := n.Head.Values[l.Value].Shape; shape[0] != n.Fields[l.Field].Length || shape[1] != 2 {
					t.Errorf("look-up %+v reads %v", l, shape)
				}
			}
			values := make([]float32, 10)
			if err := n.Tables[n.LookUps[slices.IndexFunc(n.LookUps, func(l LookUp) bool { return l.Field == 1 })].Table].Read(values, 0); err != nil {
				t.Fatal(err)
			}
			want := -0.5*-0.5 + 0.5*0.5 + 2*1.5
			for _, id := range []int{4, 0, 1} {
				if test.keeps(id) {
					want += float64(values[2*id])*-2.5 + float64(values[2*id+1])*-1.5
				}
			}
			if got := forward(t, n, []int{1, 4, 0, 1}, []float32{2}); math.Abs(got-want) > 1e-6 {
				t.Errorf("logit %v, expected %v", got, want)
			}
		})
	}
}

// A graph that takes rows from the end of the table for ids below 0 does not mask them.
func TestRowsFromTheEnd(t *testing.T) {
	s := history(node("Less", names{"hist", "0"}, names{"below"}), node("Add", names{"hist", "rows"}, names{"after"}), node("Where", names{"below", "after", "hist"}, names{"at"}),
		node("Gather", names{"a", "at"}, names{"f"}), node("ReduceSum", names{"f", "[1]"}, names{"ea"}, attr("keepdims", 0)))
	s.initializers = append(s.initializers, onnxtest.Ints("rows", []int64{5}))
	n, err := s.dissect(t, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if f := n.Fields[1]; f.Length != 3 || f.Pad != 0 || f.PadFound || f.PadBelow {
		t.Errorf("field %+v, expected a list whose pad is assumed", f)
	}
}

// Lists are named by their columns. Look-ups of the columns in another order, twice, or in
// parts that overlap, read the same list.
func TestWaysOfLists(t *testing.T) {
	wide := func(rows ...onnxtest.Message) *sample {
		s := newSample()
		s.inputs[0] = onnxtest.Value("ids", int64s, -1, 4)
		for name, list := range map[string][]int64{"1:4": {1, 2, 3}, "backwards": {3, 2, 1}, "twice": {1, 2, 1, 3}, "1:3": {1, 2}, "2:4": {2, 3}} {
			s.initializers = append(s.initializers, onnxtest.Ints(name, list, int64(len(list))))
		}
		s.before = s.before[:1] // the target is column 0, and reads the same table
		s.rows = append([]onnxtest.Message{node("Gather", names{"a", "i"}, names{"ea"})}, rows...)
		return s
	}
	pick := func(list, out string) []onnxtest.Message {
		return []onnxtest.Message{
			node("Gather", names{"ids", list}, names{out + "i"}, attr("axis", 1)), node("Gather", names{"a", out + "i"}, names{out + "e"}),
			node("ReduceSum", names{out + "e", "[1]"}, names{out}, attr("keepdims", 0)),
		}
	}
	for name, test := range map[string]struct {
		s    *sample
		rows []int // that are added up, of the list 2, 3, 1
	}{
		"in order":  {wide(pick("1:4", "eb")...), []int{2, 3, 1}},
		"backwards": {wide(pick("backwards", "eb")...), []int{2, 3, 1}},
		"twice":     {wide(pick("twice", "eb")...), []int{2, 3, 2, 1}},
		"parts": {wide(append(append(pick("1:3", "p"), pick("2:4", "q")...), node("Add", names{"p", "q"}, names{"eb"}))...),
			[]int{2, 3, 3, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := test.s.dissect(t, Options{})
			if err != nil {
				t.Fatal(err)
			}
			want := []Field{{Name: "ids[0]", Input: "ids", Length: 1, Rows: 5, Pad: -1}, {Name: "ids[1:4]", Input: "ids", Column: 1, Length: 3, Rows: 5}}
			if !slices.Equal(n.Fields, want) || len(n.LookUps) != 2 || len(n.Tables) != 1 {
				t.Fatalf("fields %+v, look-ups %+v", n.Fields, n.LookUps)
			}
			values := make([]float32, 10)
			if err := n.Tables[0].Read(values, 0); err != nil {
				t.Fatal(err)
			}
			sum := [2]float64{}
			for _, row := range test.rows {
				sum[0], sum[1] = sum[0]+float64(values[2*row]), sum[1]+float64(values[2*row+1])
			}
			got := forward(t, n, []int{4, 2, 3, 1}, []float32{2})
			if want := float64(values[8])*-2.5 + float64(values[9])*-1.5 + sum[0]*-0.5 + sum[1]*0.5 + 2*1.5; math.Abs(got-want) > 1e-6 {
				t.Errorf("logit %v, expected %v", got, want)
			}
		})
	}
}

// Fields that read the same rows of a table keep their own look-ups.
func TestSharedRows(t *testing.T) {
	s := newSample()
	s.rows[1] = node("Gather", names{"a", "j"}, names{"eb"})
	n, err := s.dissect(t, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(n.Fields) != 2 || n.Fields[1].Rows != 5 || len(n.Tables) != 1 || len(n.LookUps) != 2 || n.LookUps[0].Offset != n.LookUps[1].Offset {
		t.Errorf("fields %+v, tables %+v, look-ups %+v", n.Fields, n.Tables, n.LookUps)
	}
}

// Inputs of whole numbers that choose no rows are dense inputs, which the head converts.
// Ids may be numbers too.
func TestWholeNumbers(t *testing.T) {
	for _, kind := range []int64{int64s, 9} { // 9 = bool
		s := newSample()
		s.inputs[1] = onnxtest.Value("n", kind, -1, 1)
		s.before = append(s.before, node("Cast", names{"n"}, names{"x"}, attr("to", float32s)))
		n, err := s.dissect(t, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if len(n.Dense) != 1 || n.Dense[0].Name != "n" || len(n.IDs) != 0 {
			t.Errorf("dense inputs %+v, ids %+v", n.Dense, n.IDs)
		}
		if got, want := forward(t, n, []int{4, 1}, []float32{1}), forwardOf(t, newSample(), Options{})-1.5; math.Abs(got-want) > 1e-6 {
			t.Errorf("logit %v, expected %v", got, want)
		}
	}
	s := newSample()
	s.inputs = []onnxtest.Message{onnxtest.Value("x", float32s, -1, 1)}
	s.before = []onnxtest.Message{node("Cast", names{"x"}, names{"i1"}, attr("to", int64s)), node("Reshape", names{"i1", "[-1]"}, names{"i"})}
	s.rows = []onnxtest.Message{s.rows[0], node("Identity", names{"ea"}, names{"eb"})}
	n, err := s.dissect(t, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(n.Dense) != 0 || len(n.IDs) != 1 || n.IDs[0].Field != 0 {
		t.Errorf("dense inputs %+v, ids %+v", n.Dense, n.IDs)
	}
}

// A list of the largest length, whose positions compute their rows in different ways, takes
// little time.
func TestLongLists(t *testing.T) {
	long.Test(t)
	const length = 1 << 14
	model := func(nodes ...onnxtest.Message) *sample {
		s := newSample()
		s.inputs = append(s.inputs, onnxtest.Value("hist", int64s, -1, length))
		s.initializers[0] = onnxtest.Floats("a", make([]float32, 1<<18), 1<<17, 2)
		s.ea(append(nodes, node("ReduceSum", names{"e", "[1]"}, names{"ea"}, attr("keepdims", 0)))...)
		return s
	}
	for name, s := range map[string]*sample{
		"plain": model(node("Gather", names{"a", "hist"}, names{"e"})),
		"cast":  model(node("Cast", names{"hist"}, names{"k"}, attr("to", 6)), node("Gather", names{"a", "k"}, names{"e"})),
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			n, err := s.dissect(t, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if len(n.Fields) != 2 || n.Fields[1].Length != length || len(n.Head.Nodes) > 10 {
				t.Errorf("%d fields, %d nodes", len(n.Fields), len(n.Head.Nodes))
			}
			if took := time.Since(began); took > time.Minute {
				t.Errorf("it took %v", took)
			}
		})
	}
	// Each position has operators of its own, which have to be checked one by one.
	different := model()
	var parts []string
	for i := range 4096 {
		at := fmt.Sprint("at", i)
		different.initializers = append(different.initializers, onnxtest.Ints(at, []int64{int64(i)}, 1), onnxtest.Ints(at+"max", []int64{int64(1<<17 + i)}, 1))
		different.before = append(different.before, node("Gather", names{"hist", at}, names{at + "i"}, attr("axis", 1)), node("Clip", names{at + "i", "0", at + "max"}, names{at + "k"}))
		parts = append(parts, at+"k")
	}
	different.rows = slices.Concat([]onnxtest.Message{node("Concat", parts, names{"k"}, attr("axis", 1)), node("Gather", names{"a", "k"}, names{"e"})}, different.rows)
	began := time.Now()
	if _, err := different.dissect(t, Options{}); err == nil {
		t.Error("no error, expected a limit")
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %v", took)
	}
}
