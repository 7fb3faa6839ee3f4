package infer_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"shaver/infer"
	"shaver/infer/infertest"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
)

// skewed drops the portion t of the entries. The probability of keeping an entry falls
// with the rank of the feature in its field, as if frequent features were more valuable.
func skewed(a *model.Architecture, t float64) []bool {
	chance := func(rank int, scale float64) float64 { return min(1, scale*math.Pow(float64(rank+1), -0.8)) }
	low, high := 0.0, 1e9
	for range 60 {
		scale, kept := math.Sqrt(max(low, 1e-9)*high), 0.0
		for _, size := range a.FieldDims {
			for i := range size {
				kept += chance(i, scale)
			}
		}
		if kept > (1-t)*float64(a.Features()) {
			high = scale
		} else {
			low = scale
		}
	}
	r := rand.New(rand.NewPCG(7, 8))
	dropped := make([]bool, 0, a.Parameters())
	for _, size := range a.FieldDims {
		for i := range size {
			p := chance(i, low)
			for range a.Dim {
				dropped = append(dropped, r.Float64() >= p)
			}
		}
	}
	return dropped
}

// serving holds the measurements of a process that opened a file and scored batches.
type serving struct {
	Before, Resident int64         // resident bytes before Open and at the end
	Open, First      time.Duration // times of Open and of the first batch, with no part of the file in memory
	// Median CPU times of a warm batch of 64 rows, with ids that are uniform or skewed.
	// Batches of the compact and the dense model alternate.
	Even, EvenDense, Skewed, SkewedDense time.Duration
}

const (
	edgeFile   = "SHAVER_EDGE" // environment variable: path of the model that a child process serves
	denseFile  = "SHAVER_EDGE_DENSE"
	resultFile = "SHAVER_EDGE_RESULT" // path of the file for its measurements
	batchRows  = 64
)

// BenchmarkEdgeServe is the child process of BenchmarkEdge.
func BenchmarkEdgeServe(b *testing.B) {
	path := os.Getenv(edgeFile)
	if path == "" {
		b.Skip("runs only as a child process of BenchmarkEdge")
	}
	s := serving{Before: resident(b)}
	start := time.Now()
	m, err := infer.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	s.Open = time.Since(start)
	ids, _ := rowsOf(m.Sizes(), nil, 0, 200*batchRows)
	fields := len(m.Sizes())
	start = time.Now()
	score(b, m, ids[:batchRows*fields])
	s.First = time.Since(start)
	kept := slices.Clone(ids)
	// Touch every page that serving can touch, as after days of work. In every form, a
	// page holds at least 64 rows.
	sizes := m.Sizes()
	widest := slices.Max(sizes)
	for first := 0; first < widest; first += 32 * batchRows {
		for i := range batchRows {
			for j, size := range sizes {
				ids[i*fields+j] = int32((first + 32*i) % size)
			}
		}
		score(b, m, ids[:batchRows*fields])
	}
	s.Resident = resident(b)
	dense, err := infer.Open(os.Getenv(denseFile))
	if err != nil {
		b.Fatal(err)
	}
	defer dense.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s.Even, s.EvenDense = alternate(b, m, dense, kept)
	r := rand.New(rand.NewPCG(9, 9))
	for i := range kept { // density r^-0.8 of rank r
		kept[i] = int32(float64(sizes[i%fields]) * math.Pow(r.Float64(), 5))
	}
	s.Skewed, s.SkewedDense = alternate(b, m, dense, kept)
	text, err := json.Marshal(s)
	if err == nil {
		err = os.WriteFile(os.Getenv(resultFile), text, 0o600)
	}
	if err != nil {
		b.Fatal(err)
	}
}

// alternate returns the median times of batches with both models. It alternates which
// model comes first, because the second one finds the ids in the caches.
func alternate(t testing.TB, m, dense *infer.Model, ids []int32) (time.Duration, time.Duration) {
	var times, denseTimes []time.Duration
	step := batchRows * len(m.Sizes())
	for turn := range 8 {
		for from := 0; from < len(ids); from += step {
			batch := ids[from : from+step]
			if (from/step+turn)%2 == 0 {
				times = append(times, score(t, m, batch))
				denseTimes = append(denseTimes, score(t, dense, batch))
			} else {
				denseTimes = append(denseTimes, score(t, dense, batch))
				times = append(times, score(t, m, batch))
			}
		}
	}
	return median(times), median(denseTimes)
}

// score scores a batch and returns its CPU time.
func score(t testing.TB, m *infer.Model, ids []int32) time.Duration {
	var logits [batchRows]float64
	start := cpuTime(t)
	if err := m.Logits(logits[:], ids, nil); err != nil {
		t.Fatal(err)
	}
	return cpuTime(t) - start
}

// cpuTime returns the CPU time that this thread has used.
func cpuTime(t testing.TB) time.Duration {
	var spec unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &spec); err != nil {
		t.Fatal(err)
	}
	return time.Duration(spec.Nano())
}

// median returns the median of the last three quarters of times.
func median(times []time.Duration) time.Duration {
	times = times[len(times)/4:]
	slices.Sort(times)
	return times[len(times)/2]
}

// resident returns the resident bytes of this process, including pages of files.
func resident(t testing.TB) int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if kib, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.ParseInt(strings.Fields(kib)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatal("/proc/self/status has no VmRSS")
	return 0
}

// serve runs a child process that serves the model with one thread. At the start, no part
// of the file is in the system's cache.
func serve(t testing.TB, path, dense string) *serving {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	result := filepath.Join(t.TempDir(), "result.json")
	child := exec.Command(os.Args[0], "-test.run=^$", "-test.bench=^BenchmarkEdgeServe$", "-test.benchtime=1x")
	child.Env = append(os.Environ(), edgeFile+"="+path, denseFile+"="+dense, resultFile+"="+result, "GOMAXPROCS=1")
	out, err := child.CombinedOutput()
	s := &serving{}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(result)
	}
	if err == nil {
		err = json.Unmarshal(text, s)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return s
}

// zstdSize returns the size of the file compressed by zstd at its default level.
func zstdSize(t testing.TB, path string) int64 {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var n counter
	w, err := zstd.NewWriter(&n, zstd.WithEncoderConcurrency(1))
	if err == nil {
		if _, err = io.Copy(w, f); err == nil {
			err = w.Close()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return int64(n)
}

type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

// BenchmarkEdge measures the paper's edge table at KDD's size: bytes on disk, compressed and
// resident, and how fast one thread serves batches of 64 rows. It takes some minutes, 2
// GB of memory and 1 GB of disk.
func BenchmarkEdge(b *testing.B) {
	a := infertest.KDD()
	if a.Features() != 6_019_761 {
		b.Fatalf("%d features", a.Features())
	}
	c := infertest.Random(a)
	dir := b.TempDir()
	path, dense := filepath.Join(dir, "m.safetensors"), filepath.Join(dir, "dense.safetensors")
	table := float64(4 * a.Parameters())
	line := func(name, path string, bytes int64) *serving {
		s := serve(b, path, dense)
		fmt.Printf("| %s | %.1f | %.2f%% | %.1f | %.1f | %.0f | %.1f | %.3f %.3f | %.3f %.3f |\n", name, float64(bytes)/(1<<20), 100*float64(bytes)/table,
			float64(zstdSize(b, path))/(1<<20), float64(s.Resident-s.Before)/(1<<20),
			s.Open.Seconds()*1e3, s.First.Seconds()*1e3, s.Even.Seconds()*1e3, s.EvenDense.Seconds()*1e3, s.Skewed.Seconds()*1e3, s.SkewedDense.Seconds()*1e3)
		return s
	}
	bytes, err := checkpoint.WriteDense(dense, c)
	if err != nil {
		b.Fatal(err)
	}
	line("dense", dense, bytes)
	zero := a.Zero()
	pruned, err := c.Embedding()
	if err != nil {
		b.Fatal(err)
	}
	for i, gone := range mask(a.Parameters(), 0.95) {
		if gone {
			pruned[i] = 0
		}
	}
	if bytes, err = checkpoint.WriteDense(path, c.WithEmbedding(pruned)); err != nil {
		b.Fatal(err)
	}
	line("dense, 0.95 of it 0", path, bytes)
	masks := map[string]func(sparsity float64) []bool{
		"even":   func(sparsity float64) []bool { return mask(a.Parameters(), sparsity) },
		"skewed": func(sparsity float64) []bool { return skewed(&a, sparsity) },
	}
	for _, name := range []string{"even", "skewed"} {
		for _, sparsity := range []float64{0.8, 0.9, 0.95, 0.99} {
			dropped := masks[name](sparsity)
			bytes, err := checkpoint.WriteCompact(path, c, dropped, zero, compact.Float32)
			if err != nil {
				b.Fatal(err)
			}
			s := line(fmt.Sprintf("%s, %g", name, sparsity), path, bytes)
			// Rows of 2, 3, 4 and 8 bits, which serve in turns with the float32 file.
			mixed := filepath.Join(dir, "mixed.safetensors")
			small, err := checkpoint.WriteMixed(mixed, c, dropped, zero, quantizers(&a))
			if err != nil {
				b.Fatal(err)
			}
			m := serve(b, mixed, path)
			fmt.Printf("| %s, %g, mixed | %.1f | resident %.1f | open %.0f ms | first %.1f ms | even %.3f (float32 %.3f) | skewed %.3f (float32 %.3f)\n", name, sparsity, float64(small)/(1<<20),
				float64(m.Resident-m.Before)/(1<<20), m.Open.Seconds()*1e3, m.First.Seconds()*1e3, m.Even.Seconds()*1e3, m.EvenDense.Seconds()*1e3, m.Skewed.Seconds()*1e3, m.SkewedDense.Seconds()*1e3)
			if m.Resident-m.Before >= s.Resident-s.Before {
				b.Errorf("%s at sparsity %g: %d resident bytes, and %d of float32", name, sparsity, m.Resident-m.Before, s.Resident-s.Before)
			}
			if sparsity == 0.95 && float64(bytes) >= 0.08*table {
				b.Errorf("%s: %d bytes at sparsity .95", name, bytes)
			}
			if grown := s.Resident - s.Before; grown > 2*bytes+(16<<20) {
				b.Errorf("%s at sparsity %g: %d resident bytes for a file of %d", name, sparsity, grown, bytes)
			}
		}
	}
}

// quantizers returns a palette of 2, 3, 4 and 8 bits, which the rows of a use at random.
func quantizers(a *model.Architecture) *compact.Palette {
	p := &compact.Palette{Rows: make([]uint8, a.Features())}
	for _, bits := range []int{2, 3, 4, 8} {
		p.Quantizers = append(p.Quantizers, compact.Quantizer{Bits: bits, Origin: -.25, Step: .5 / float32(int(1)<<bits-1)})
	}
	r := rand.New(rand.NewPCG(11, 12))
	for i := range p.Rows {
		p.Rows[i] = uint8(r.IntN(len(p.Quantizers)))
	}
	return p
}

// BenchmarkFile scores batches of random ids with the file that SHAVER_FILE names, on one thread. It reports the time to open the file, and the largest memory of the
// process.
func BenchmarkFile(b *testing.B) {
	path := os.Getenv("SHAVER_FILE")
	if path == "" {
		b.Skip("SHAVER_FILE names no file")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	begin := time.Now()
	m, err := infer.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	opened := time.Since(begin)
	for _, rows := range []int{1, 64, 1024} {
		b.Run(strconv.Itoa(rows), func(b *testing.B) {
			var ids []int32
			for range rows {
				for j, size := range m.Sizes() {
					for range m.Lengths()[j] {
						ids = append(ids, rand.Int32N(int32(size)))
					}
				}
			}
			logits := make([]float64, rows)
			for b.Loop() {
				if err := m.Logits(logits, ids, make([]float32, rows*len(m.DenseInputs()))); err != nil {
					b.Fatal(err)
				}
			}
			var use unix.Rusage
			if err := unix.Getrusage(unix.RUSAGE_SELF, &use); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(opened.Microseconds())/1e3, "ms-to-open")
			b.ReportMetric(float64(use.Maxrss)/1e3, "MB")
		})
	}
}
