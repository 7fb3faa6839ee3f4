package kernel

import (
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/long"
)

// everyLevel runs a test at each level of this machine.
func everyLevel(t *testing.T, test func(t *testing.T)) {
	chosen := current
	defer func() { current = chosen }()
	for _, l := range levels() {
		t.Run(l.name, func(t *testing.T) {
			current = l
			test(t)
		})
	}
}

// The tests run every level that the processor supports, unless it was turned off by
// hand.
func TestLevelsOfThisMachine(t *testing.T) {
	var names []string
	for _, l := range levels() {
		names = append(names, l.name)
	}
	t.Logf("levels %v", names)
	if runtime.GOARCH == "arm64" && !pure && !slices.Contains(names, "neon") {
		t.Error("every arm64 processor has NEON, but no test runs at this level")
	}
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil || runtime.GOARCH != "amd64" || os.Getenv("CI") != "true" || strings.Contains(os.Getenv("GODEBUG"), "cpu.") || pure {
		return
	}
	flags := strings.Fields(string(info))
	for level, need := range map[string][]string{"amx": {"amx_tile", "amx_int8", "avx512vbmi", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx2", "fma"}, "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx2", "fma"}, "avx2": {"avx2", "fma"}} {
		has := !slices.ContainsFunc(need, func(f string) bool { return !slices.Contains(flags, f) })
		if has && !slices.Contains(names, level) {
			t.Errorf("the processor has %s, but no test runs at this level", level)
		}
	}
}

// The level name says whether the build is for GOAMD64=v3, where losses have other last
// bits.
func TestNameIncludesBuild(t *testing.T) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		t.Skip("the binary has no build settings")
	}
	fused := slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "GOAMD64" && s.Value >= "v3" })
	for _, name := range append(Names(), Name()) {
		if strings.HasSuffix(name, "-v3") != fused {
			t.Errorf("level %s in a build with GOAMD64=v3: %t", name, fused)
		}
	}
	if !Use(Name()) {
		t.Errorf("unknown level %s", Name())
	}
}

// guarded returns a tile of normal values surrounded by NaN. The columns and rows of the
// tile that are not in use are NaN too.
func guarded(r *rand.Rand, rows, width int, zeros float64) (Tile, []float32) {
	tile := NewTile(rows, width)
	whole := make([]float32, len(tile.Values)+32)
	for i := range whole {
		whole[i] = float32(math.NaN())
	}
	tile.Values = whole[16 : 16+len(tile.Values) : 16+len(tile.Values)]
	for i := range tile.Values {
		if tile.Values[i] = float32(r.NormFloat64()); r.Float64() < zeros {
			tile.Values[i] = 0
		}
	}
	return tile, whole
}

func guardsHold(t *testing.T, whole []float32) {
	t.Helper()
	for i := range 16 {
		if whole[i] == whole[i] || whole[len(whole)-1-i] == whole[len(whole)-1-i] {
			t.Fatal("wrote outside the tile")
		}
	}
}

func normal(r *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	return v
}

var lengths = []int{1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 80, 81, 130}

// near fails the test unless got equals want up to the rounding of n additions. size is
// the sum of the magnitudes of the terms.
func near(t *testing.T, got float32, want, size float64, n int, more ...float64) {
	t.Helper()
	within := 1e-7 * float64(n+2) * (size + 1e-3)
	for _, v := range more {
		within += v
	}
	if math.Abs(float64(got)-want) > within || got != got {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func absolute(x []float32) []float64 {
	a := make([]float64, len(x))
	for i, v := range x {
		a[i] = math.Abs(float64(v))
	}
	return a
}

// byDigits returns the additional error allowed where products are computed from digits.
// Each product is off by about 2^-22 times the product of the largest values.
func byDigits(x, w []float64) float64 {
	if !current.digits || len(x) == 0 {
		return 0
	}
	return float64(len(x)) * slices.Max(x) * slices.Max(w) / (1 << 22)
}

func TestLayerIsItsDefinition(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 2))
		for _, in := range append([]int{0}, lengths...) {
			for _, out := range lengths {
				weight, bias := normal(r, in*out), normal(r, out)
				m := NewMatrix(weight, bias, in, out)
				counts := []int{1 + r.IntN(4), 1 + r.IntN(14), 12, 1 + r.IntN(40)}
				if !long.All() {
					counts = counts[1:3]
				}
				for _, rows := range counts {
					for _, relu := range []bool{false, true} {
						layerOnce(t, r, m, weight, bias, rows, relu)
					}
				}
			}
		}
	})
}

func layerOnce(t *testing.T, r *rand.Rand, m *Matrix, weight, bias []float32, rows int, relu bool) {
	t.Helper()
	x, before := guarded(r, rows, max(1, m.In), .3)
	y, after := guarded(r, rows, m.Out, 0)
	list := []int32{}
	for k := range m.In {
		if r.IntN(3) > 0 {
			list = append(list, int32(k))
		}
	}
	switch r.IntN(4) {
	case 0:
		list = nil
	case 1:
		list = list[:0]
	}
	mask := NewMask(m.Out)
	for i := range mask {
		mask[i] = r.Uint64()
	}
	if r.IntN(5) == 0 {
		mask = nil
	}
	m.Layer(y, x, rows, list, relu, mask)
	guardsHold(t, before)
	guardsHold(t, after)
	if list == nil {
		list = m.all
	}
	active := NewMask(m.Out)
	for row := range rows {
		for o := range m.Out {
			want, size := float64(bias[o]), math.Abs(float64(bias[o]))
			var xs []float64
			for _, k := range list {
				x, w := float64(x.Row(row)[k]), float64(weight[o*m.In+int(k)])
				want, size = want+x*w, size+math.Abs(x*w)
				xs = append(xs, math.Abs(x))
			}
			if relu {
				want = max(want, 0)
			}
			got := y.Row(row)[o]
			near(t, got, want, size, len(list), byDigits(xs, absolute(weight[o*m.In:(o+1)*m.In])))
			if relu && got < 0 {
				t.Fatalf("output %v after ReLU", got)
			}
			if got != 0 {
				active[o/64] |= 1 << (o % 64)
			}
		}
		for _, v := range y.Row(row)[m.Out:Pad(m.Out)] {
			if v != 0 {
				t.Fatalf("padding is %v, want 0", v)
			}
		}
	}
	for i, word := range mask {
		if word&active[i] != active[i] || rows%rowMultiple == 0 && word != active[i] {
			t.Fatalf("in %d out %d rows %d: mask %b, want %b", m.In, m.Out, rows, word, active[i])
		}
	}
}

// The output of a row depends only on that row. It does not depend on its position, on
// the other rows, or on what else is in the list.
func TestRowsAreIndependent(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(3, 4))
		const in, out, rows = 75, 83, 40
		m := NewMatrix(normal(r, in*out), normal(r, out), in, out)
		x, _ := guarded(r, rows, in, .6)
		together, alone := NewTile(rows, out), NewTile(1, out)
		m.Layer(together, x, rows, nil, true, nil)
		for t0 := range rows {
			one := NewTile(1, in)
			copy(one.Values, x.Row(t0))
			mask := NewMask(in)
			for k, v := range x.Row(t0)[:in] {
				if v != 0 {
					mask[k/64] |= 1 << (k % 64)
				}
			}
			m.Layer(alone, one, 1, mask.List([]int32{}), true, nil)
			if !slices.Equal(alone.Row(0), together.Row(t0)) {
				t.Fatalf("row %d: output alone differs from output with other rows", t0)
			}
		}
	})
}

// One call of Steps equals a sequence of calls with one step each. It also equals Layer
// of the changed input: to the last bit, unless Layer uses digits.
func TestStepsIsItsDefinition(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(5, 6))
		for _, out := range lengths {
			for _, n := range []int{0, 1, 2, 5, 6, 7, 12, 13} {
				const in = 14
				weight, bias := normal(r, in*out), normal(r, out)
				m := NewRowMatrix(weight, in, out)
				relu := r.IntN(2) == 0
				tile, whole := guarded(r, max(1, n), out, 0)
				pre := make([]float32, Pad(out))
				copy(pre, bias)
				row, change := make([]int32, n), normal(r, n)
				for i := range row {
					row[i] = int32(i)
				}
				mask, active := NewMask(out), NewMask(out)
				mask[0] = math.MaxUint64
				m.Prefetch(row)
				m.Steps(tile, pre, row, change, relu, mask)
				guardsHold(t, whole)
				x, y := NewTile(1, in), NewTile(1, out)
				for s := range n {
					x.Values[s] = change[s]
					NewMatrix(weight, bias, in, out).Layer(y, x, 1, nil, relu, nil)
					for o, v := range y.Row(0) {
						if current.digits { // Steps does not use them
							near(t, v, float64(tile.Row(s)[o]), 20, n)
							y.Row(0)[o] = tile.Row(s)[o]
						}
					}
					if !slices.Equal(y.Row(0), tile.Row(s)) {
						t.Fatalf("out %d step %d of %d: %v, want %v", out, s, n, tile.Row(s), y.Row(0))
					}
					for o, v := range y.Row(0) {
						if v != 0 {
							active[o/64] |= 1 << (o % 64)
						}
					}
				}
				if !slices.Equal(mask, active) {
					t.Fatalf("out %d steps %d: mask %b, want %b", out, n, mask, active)
				}
				if n > 0 {
					last := slices.Clone(pre)
					copy(pre, make([]float32, len(pre)))
					copy(pre, bias)
					m.Steps(Tile{y.Values, 0}, pre, row, change, false, nil)
					if !slices.Equal(pre, last) || !slices.Equal(y.Row(0), last) {
						t.Fatal("a stride of 0 changes the result")
					}
				}
			}
		}
	})
}

func TestNaNAndInfinityStay(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		nan, inf := float32(math.NaN()), float32(math.Inf(1))
		m := NewMatrix([]float32{1, 0, 0, 1}, nil, 2, 2)
		x, y, mask := NewTile(12, 2), NewTile(12, 2), NewMask(2)
		x.Row(1)[0], x.Row(2)[1] = nan, inf
		m.Layer(y, x, 12, nil, true, mask)
		if y.Row(1)[0] == y.Row(1)[0] || (y.Row(2)[1] != inf && !(current.digits && y.Row(2)[1] != y.Row(2)[1])) || y.Row(3)[0] != 0 || mask[0] != 3 {
			t.Errorf("after Layer: %v, mask %b", y.Values[:64], mask)
		}
		pre := make([]float32, 16)
		NewRowMatrix([]float32{1, 0, 0, 1}, 2, 2).Steps(y, pre, []int32{0}, []float32{nan}, true, mask)
		if y.Row(0)[0] == y.Row(0)[0] || mask[0]&^3 != 0 {
			t.Errorf("after Steps: %v", y.Row(0))
		}
	})
}

func TestMisusePanics(t *testing.T) {
	m, rows := NewMatrix(make([]float32, 6), nil, 2, 3), NewRowMatrix(make([]float32, 6), 2, 3)
	outputs, block := NewOutputs(make([]float32, 6), nil, 2, 3), NewBlock(3)
	tile := NewTile(1, 3)
	pre := make([]float32, 16)
	one, two, far := consecutive(0, 1), consecutive(1, 2), consecutive(3, 14)
	for name, call := range map[string]func(){
		"rows":        func() { m.Layer(tile, tile, 13, nil, true, nil) },
		"list":        func() { m.Layer(tile, tile, 1, []int32{2}, true, nil) },
		"mask":        func() { m.Layer(tile, tile, 1, nil, true, Mask{}) },
		"short":       func() { m.Layer(tile, Tile{tile.Values[1:], 16}, 1, nil, true, nil) },
		"step":        func() { rows.Steps(tile, pre, []int32{2}, []float32{1}, true, nil) },
		"pre":         func() { rows.Steps(tile, pre[1:], []int32{1}, []float32{1}, true, nil) },
		"step rows":   func() { rows.Steps(tile, pre, make([]int32, 13), make([]float32, 13), true, nil) },
		"states":      func() { outputs.Product(block, block, 49, nil, nil, false) },
		"inputs":      func() { outputs.Product(block, block, 1, nil, []int32{2}, false) },
		"units":       func() { outputs.Product(block, block, 1, []int32{3}, nil, false) },
		"block":       func() { outputs.Product(block[:2*States], block, 1, nil, nil, false) },
		"cross":       func() { Cross(block, block, block, block[:States], 1, []int32{1}) },
		"tanh":        func() { Tanh(block, block, 49, 1, nil) },
		"to block":    func() { ToBlock(block, tile, 13, 3) },
		"to tile":     func() { ToTile(tile, block, 13, 3) },
		"to":          func() { Expand(pre, make([]byte, 8), []Part{{To: 15, Mask: 2}}) },
		"to, below":   func() { Expand(pre, make([]byte, 8), []Part{{To: -1, Mask: 2}}) },
		"from":        func() { Expand(pre, make([]byte, 11), []Part{{From: 1, Mask: 3}}) },
		"from, below": func() { Expand(pre, make([]byte, 8), []Part{{From: -1, Mask: 1}}) },
		"unpack, to":  func() { Unpack(pre, make([]byte, 8), []Packed{{To: 15, Mask: 2, Bits: 2}}) },
		"packed":      func() { Unpack(pre, make([]byte, 8), []Packed{{Bit: 60, Mask: 7, Bits: 2}}) },
		"before":      func() { Unpack(pre, make([]byte, 8), []Packed{{Bit: -8, Mask: 1, Bits: 2}}) },
		"no bits":     func() { Unpack(pre, make([]byte, 8), []Packed{{Mask: 1}}) },
		"nine bits":   func() { Unpack(pre, make([]byte, 8), []Packed{{Mask: 1, Bits: 9}}) },
		"far":         func() { Expand(pre, make([]byte, 8), []Part{{From: math.MaxInt, Mask: 1}}) },
		"set":         func() { NewMask(3).Set(tile, 13, 3) },
		"set width":   func() { NewMask(3).Set(tile, 1, 17) },

		"element, below":  func() { NewElements([]int32{-1}) },
		"element, beyond": func() { NewElements([]int32{math.MaxInt32}) },
		"apply":           func() { Apply(Exp, block, 48, one, far) },
		"apply states":    func() { Apply(Exp, block, 0, one, one) },
		"apply lengths":   func() { Apply(Exp, block, 1, one, two) },
		"function":        func() { Apply(functions, block, 1, one, one) },
		"combine":         func() { Combine(Add, block, 49, one, one, one) },
		"combine lengths": func() { Combine(Add, block, 1, one, one, two) },
		"operation":       func() { Combine(operations, block, 1, one, one, one) },
		"multiply add":    func() { MultiplyAdd(block, 1, one, one, one, two) },
		"choose":          func() { Choose(block, 1, one, one, one, two) },
		"affine":          func() { Affine(block, 1, one, one, pre[:1], pre) },
		"reduce":          func() { Reduce(Sum, block, 1, two, consecutive(5, 3)) },
		"reduce nothing":  func() { Reduce(Sum, block, 1, one, consecutive(0, 0)) },
		"reduction":       func() { Reduce(reductions, block, 1, one, two) },
		"softmax":         func() { Softmax(block, 1, two, two, 0) },
		"softmax rows":    func() { Softmax(block, 1, two, two, 3) },
		"softmax lengths": func() { Softmax(block, 1, one, two, 1) },
		"pairs":           func() { NewPairs([]int32{20}, []int32{0}, []int32{1}, 1, 1, 1, 1).Compute(block, 1) },
		"pairs lengths":   func() { NewPairs([]int32{2}, []int32{0}, nil, 1, 1, 1, 1) },
		"pairs twice":     func() { NewPairs([]int32{2, 2}, []int32{0}, []int32{1, 1}, 1, 1, 2, 1) },
		"pairs operand":   func() { NewPairs([]int32{1}, []int32{0}, []int32{1}, 1, 1, 1, 1) },
		"pairs element":   func() { NewPairs([]int32{-2}, []int32{0}, []int32{1}, 1, 1, 1, 1) },
		"linear":          func() { NewLinear(outputs, []int32{18, 19, 20}, []int32{0, 1}, 1, false).Compute(block, 1) },
		"linear lengths":  func() { NewLinear(outputs, []int32{4, 5}, []int32{0, 1}, 1, false) },
		"linear twice":    func() { NewLinear(outputs, []int32{4, 5, 5}, []int32{0, 1}, 1, false) },
		"linear operand":  func() { NewLinear(outputs, []int32{4, 5, 1}, []int32{0, 1}, 1, false) },
		"linear element":  func() { NewLinear(outputs, []int32{4, 5, -1}, []int32{0, 1}, 1, false) },
	} {
		func() {
			defer func() {
				if s, ok := recover().(string); !ok || !strings.HasPrefix(s, "kernel: ") {
					t.Errorf("%s: want a panic that begins with kernel:", name)
				}
			}()
			call()
		}()
	}
}

// The committed assembly is what the generator writes.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command")
	}
	for level, processor := range map[string]string{"amx": "amd64", "avx512": "amd64", "avx2": "amd64", "neon": "arm64"} {
		dir := t.TempDir()
		names := []string{level + "_" + processor + ".s", level + "_" + processor + ".go"}
		// The first line of each file contains the command, which differs.
		cmd := exec.Command(tool, "run", ".", "-level", level, "-out", filepath.Join(dir, names[0]), "-stubs", filepath.Join(dir, names[1]), "-pkg", "kernel")
		cmd.Dir = "_asm"
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, name := range names {
			want, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			_, a, _ := strings.Cut(string(got), "\n")
			if _, b, _ := strings.Cut(string(want), "\n"); a != b {
				t.Errorf("%s is out of date; run go generate ./internal/num/kernel", name)
			}
		}
	}
}

// Digits represent weights with an error of at most 2^-23 times the largest weight of the
// output. A matrix that digits cannot represent has none.
func TestDigits(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	const in, out = 129, 35
	weight := normal(r, in*out)
	clear(weight[in : 2*in])
	weight[2*in] = 1e30
	for _, columns := range []bool{false, true} {
		d := newDigits(weight, in, out, columns)
		for o := range out {
			largest := slices.Max(absolute(weight[o*in : (o+1)*in]))
			for i := range in {
				tile := (o/Columns*d.blocks + i/digitBlock) * 3 * Columns * digitBlock
				at := tile + o%Columns*digitBlock + i%digitBlock
				if columns {
					at = tile + i%digitBlock/4*digitBlock + o%Columns*4 + i%4
				}
				got := float64(d.rest[o])
				if columns || i < in-1 {
					got = 0
					for digit := range 3 {
						got = got*256 + float64(d.values[at+digit*Columns*digitBlock])
					}
					got *= float64(d.scale[o]) / (1 << 16)
				}
				if want := float64(weight[o*in+i]); math.Abs(got-want) > largest/(1<<23) {
					t.Fatalf("columns %t: weight %d of output %d is %v, want %v", columns, i, o, got, want)
				}
			}
		}
	}
	for _, shape := range [][2]int{{0, 3}, {3, 0}, {digitInputs + 1, 1}} {
		if newDigits(make([]float32, shape[0]*shape[1]), shape[0], shape[1], true) != nil {
			t.Errorf("a matrix of shape %v has digits, want none", shape)
		}
	}
	everyLevel(t, func(t *testing.T) { // Layer works without digits as well
		m := NewMatrix(slices.Repeat([]float32{1}, digitInputs+1), nil, digitInputs+1, 1)
		x, y := NewTile(1, m.In), NewTile(1, 1)
		copy(x.Values, slices.Repeat([]float32{1}, m.In))
		if m.Layer(y, x, 1, nil, false, nil); y.Values[0] != digitInputs+1 {
			t.Errorf("the sum of %d ones is %v", m.In, y.Values[0])
		}
	})
}

func TestGate(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	special := []float32{1, -1, 0, float32(math.Copysign(0, -1)), inf, -inf, nan, -nan, 1e-45, -1e-45}
	everyLevel(t, func(t *testing.T) {
		for n := range 70 {
			x, v, dst := make([]float32, n), make([]float32, n), make([]float32, n+1)
			for i := range x {
				x[i], v[i] = special[(i+n)%len(special)], special[(i/3+n)%len(special)]
			}
			want := make([]float32, n)
			for i, a := range x {
				if !(a <= 0) {
					want[i] = v[i]
				}
			}
			Gate(dst[:n], x, v)
			same := append([]float32(nil), x...)
			Gate(same, same, v)
			for i, w := range want {
				if math.Float32bits(dst[i]) != math.Float32bits(w) || math.Float32bits(same[i]) != math.Float32bits(w) {
					t.Fatalf("element %d of %d: x is %v, v is %v, the results are %v and %v", i, n, x[i], v[i], dst[i], same[i])
				}
			}
			if dst[n] != 0 {
				t.Fatalf("%d elements: Gate wrote beyond the end", n)
			}
		}
	})
}
