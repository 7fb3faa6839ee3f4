package merger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"shaver/internal/base/long"
	"shaver/internal/click/model"
	"shaver/internal/data/arrowio"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/bus/embedded"
	"shaver/internal/jobs/job"
	"shaver/internal/num/layout"
	"shaver/internal/num/loss"
	"shaver/internal/value/estimator"
	"shaver/internal/value/path"
	"shaver/internal/value/tally"
)

// mergerEnv makes the test binary a merger of the server at this address.
const mergerEnv = "SHAVER_TEST_MERGER"

func TestMain(m *testing.M) {
	if address := os.Getenv(mergerEnv); address != "" {
		debug.SetGCPercent(10) // as the program does
		b, err := bus.Connect(context.Background(), bus.Config{URL: address, Role: "coordinator", Name: "merger"})
		if err == nil {
			err = Run(context.Background(), Config{Bus: b, Name: strconv.Itoa(os.Getpid()), Log: zap.NewNop()})
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// Sixteen processes keep the sums of a simulated table of 10^9 entries: 62.5 million features with
// 16 columns. Each process needs at most 2 GiB, and so does the one that asks them. "make ranges"
// runs this test; otherwise the table has 10^6 entries. All entries of the first and the last
// range get sums, and a few of each other range, because the machine may have less memory than
// all mergers together.
func TestHugeTable(t *testing.T) {
	long.Test(t)
	entries, full := 1_000_000, os.Getenv("SHAVER_HUGE") != ""
	if full {
		entries = 1_000_000_000
	}
	const dim, ranges = 16, 16
	shape := layout.Of(entries/dim, dim)
	b, processes := startMergers(t, ranges)
	j := Job{ID: strings.Repeat("ab", 10), Epoch: 1, Shape: shape, Check: func(context.Context) error { return nil }}
	begun := time.Now()
	phase := func(what string) {
		t.Logf("%-10s %6.1f s, largest merger %d MiB", what, time.Since(begun).Seconds(), largest(t, processes))
		begun = time.Now()
	}
	r, fresh, err := Acquire(t.Context(), b, j, ranges, nil, zap.NewNop())
	if err != nil || fresh {
		t.Fatalf("fresh %v: %v", fresh, err)
	}
	defer func() { r.Close(context.WithoutCancel(t.Context())) }()
	phase("acquired")

	// Each partial has the features of a slice of the first and the last range, and random ones.
	const portions = 40
	starts := shape.Cut(ranges)
	random := rand.New(rand.NewPCG(1, 1))
	sums, bytesSent := make([]int64, ranges), 0
	for s := range portions {
		bytesSent += addParts(t, b, r, &job.Result{Job: j.ID, Shard: s, Rows: 1000}, func(i int) *tally.Partial {
			from, to := starts[i], starts[i+1]
			var features []int32
			if i == 0 || i == ranges-1 {
				for f := s * (to - from) / portions; f < (s+1)*(to-from)/portions; f++ {
					features = append(features, int32(f))
				}
			} else {
				features = sample(random, to-from, min(400, to-from))
			}
			p := simulated(random, shape.Part(from, to), features)
			for _, x := range p.Sum {
				sums[i] += x
			}
			return p
		})
	}
	phase(fmt.Sprintf("%d partials of %d MiB", portions, bytesSent>>20))
	total := int64(0)
	for _, x := range sums {
		total += x
	}
	summary, err := r.Summary(t.Context())
	if err != nil || summary.Rows != 1000*portions || summary.Current.Total != [2]int64{0, total} {
		t.Fatalf("summary %+v, expected a total of %d: %v", summary, total, err)
	}
	phase("summary")
	parts, err := r.Save(t.Context(), bus.CheckpointName(j.ID, 1, 1))
	if err != nil {
		t.Fatal(err)
	}
	phase("saved")
	if !full { // a merger that reads its checkpoint needs the memory of all entries of its range
		r.Close(t.Context())
		j.Epoch++ // another coordinator continues with the checkpoint
		if r, fresh, err = Acquire(t.Context(), b, j, ranges, parts, zap.NewNop()); err != nil || fresh {
			t.Fatalf("fresh %v: %v", fresh, err)
		}
		phase("resumed")
	}
	again, err := r.Summary(t.Context())
	if err != nil || *again != *summary {
		t.Fatalf("summary %+v, expected %+v: %v", again, summary, err)
	}
	values := r.Values(t.Context(), tally.Sampling{Passes: 1, Walks: 1, Rows: 1000 * portions})
	into, phi := tally.NewValues(dim), 0.0
	for f := range shape.Rows() {
		values(f, into)
		for _, x := range into.Phi {
			phi += x
		}
	}
	if err := r.Failed(); err != nil {
		t.Fatal(err)
	}
	want := float64(total) * tally.LossUnit / (1000 * portions)
	if d := phi/want - 1; d > 1e-9 || d < -1e-9 {
		t.Errorf("the values add up to %v, expected %v", phi, want)
	}
	phase("values")
	own := highWater(t, os.Getpid())
	t.Logf("the process that asks, with the server: %d MiB", own)
	if full && max(own, largest(t, processes)) > 2<<10 {
		t.Errorf("a process needed more than 2 GiB")
	}
}

// startMergers starts a server, and mergers in processes of their own.
func startMergers(t *testing.T, n int) (b *bus.Bus, processes []*exec.Cmd) {
	t.Helper()
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Shutdown() })
	for range n {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), mergerEnv+"="+server.URL())
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = c.Process.Kill(), c.Wait() })
		processes = append(processes, c)
	}
	b, err = bus.Connect(t.Context(), bus.Config{URL: server.URL(), Role: "coordinator", Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	if err := b.Setup(t.Context(), bus.DefaultQueue, "avx2"); err != nil {
		t.Fatal(err)
	}
	return b, processes
}

// Eight processes keep the terms of a path of ten rounds through a simulated table of 4 * 10^8 entries, each in at most 1.6 GiB. "make ranges"
// runs this test; otherwise the table has 10^6 entries, and after each round the order is that of a path in one process.
func TestHugePath(t *testing.T) {
	long.Test(t)
	entries, full := 1_000_000, os.Getenv("SHAVER_HUGE") != ""
	if full {
		entries = 400_000_000
		t.Setenv("GOMEMLIMIT", "1550MiB") // of the mergers
	}
	const dim, ranges, partials, rows = 16, 8, 3, 2000
	a := &model.Architecture{Kind: model.FM, FieldDims: []int{entries / dim}, Dim: dim}
	shape, random := a.Shape(), rand.New(rand.NewPCG(1, 1))
	tables := make([]float32, entries)
	for i := range tables {
		tables[i] = float32(random.NormFloat64())
	}
	b, processes := startMergers(t, ranges)
	j := Job{ID: strings.Repeat("cd", 10), Epoch: 1, Shape: shape, Form: tally.Form{Path: true}, Tables: tables, Check: func(context.Context) error { return nil }}
	begun := time.Now()
	phase := func(what string) {
		t.Logf("%-10s %6.1f s, largest merger %d MiB", what, time.Since(begun).Seconds(), largest(t, processes))
		begun = time.Now()
	}
	r, _, err := Acquire(t.Context(), b, j, ranges, nil, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { r.Close(context.WithoutCancel(t.Context())) }()
	phase("acquired")
	newPath := func() *path.Path { return path.New(a, .89, loss.Logistic, partials*rows, estimator.Weights{}) }
	p, starts := newPath(), shape.Cut(ranges)
	var one *path.Path // in this process
	var terms *path.Terms
	if !full {
		one, terms = newPath(), path.NewTerms(shape, j.Form, nil, tables)
	}
	drops, _ := path.Rounds(a, .89)
	for n := range drops {
		unmeasured := p.Unmeasured()
		if _, err := r.Begin(t.Context(), n, unmeasured, p.Fade()); err != nil {
			t.Fatal(err)
		}
		if terms != nil {
			terms.Begin(n, unmeasured, p.Fade())
		}
		for k := range partials {
			whole := simulatedTerms(t, random, shape, unmeasured, rows)
			if terms != nil {
				if err := terms.Sums.Merge(whole); err != nil {
					t.Fatal(err)
				}
			}
			addParts(t, b, r, &job.Result{Job: j.ID, Shard: partials*n + k, Rows: rows}, func(i int) *tally.Partial { return whole.Part(starts[i], starts[i+1]) })
		}
		sums, err := r.Summary(t.Context())
		if err != nil || sums.Rows != partials*rows {
			t.Fatalf("summary %+v: %v", sums, err)
		}
		if err := r.End(t.Context(), p.Passes(sums)); err != nil {
			t.Fatal(err)
		}
		if err := p.End(sums, loss.Uncalibrated, func(by path.Rank) path.Next { return r.Order(t.Context(), by) }); err != nil {
			t.Fatal(err)
		}
		phase(fmt.Sprintf("round %d", n+1))
		if terms == nil {
			continue
		}
		terms.End(one.Passes(sums))
		if err := one.End(sums, loss.Uncalibrated, terms.Order); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(one.Mask(), p.Mask()) {
			t.Fatalf("round %d drops other entries than a path in one process", n+1)
		}
	}
	own := highWater(t, os.Getpid())
	t.Logf("the process that asks, with the server: %d MiB", own)
	if most := largest(t, processes); full && most > 1638 {
		t.Errorf("a merger needed %d MiB, expected at most 1638", most)
	}
}

// addParts stores the parts of a partial, adds them to r and deletes them. It returns their bytes.
func addParts(t *testing.T, b *bus.Bus, r *Ranges, result *job.Result, part func(i int) *tally.Partial) (size int) {
	t.Helper()
	name := bus.PartialName(result.Job, result.Shard, "a")
	for i := range r.mergers {
		var encoded bytes.Buffer
		if err := arrowio.EncodePartial(&encoded, part(i)); err != nil {
			t.Fatal(err)
		}
		size += encoded.Len()
		blob, err := b.Put(t.Context(), bus.RangeName(name, i), encoded.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			result.Partial = blob
		} else {
			result.More = append(result.More, blob)
		}
	}
	if err := r.Add(t.Context(), result); err != nil {
		t.Fatal(err)
	}
	for i := range r.mergers {
		if err := b.Delete(t.Context(), bus.RangeName(name, i)); err != nil {
			t.Fatal(err)
		}
	}
	return size
}

// simulatedTerms returns the partial of rows that read 20 features each, often the same ones.
func simulatedTerms(t *testing.T, random *rand.Rand, shape layout.Shape, unmeasured layout.Mask, rows int) *tally.Partial {
	t.Helper()
	b := tally.NewTermsBuilder(shape, unmeasured)
	for range rows {
		var features []int32
		for len(features) < 20 {
			features = append(features, int32(float64(shape.Rows())*math.Pow(random.Float64(), 3)))
		}
		slices.Sort(features)
		features = slices.Compact(features)
		change := make([]float64, len(features)*shape.Dim())
		for i := range change {
			if entry := int(features[i/shape.Dim()])*shape.Dim() + i%shape.Dim(); !unmeasured.Dropped(entry) {
				change[i] = random.NormFloat64()
			}
		}
		if err := b.AddTerms(features, &tally.Terms{LossFull: 1 << 36, Change: change, First: random.NormFloat64(), Second: .25}); err != nil {
			t.Fatal(err)
		}
	}
	return b.Partial()
}

// sample returns n features below most, ascending.
func sample(random *rand.Rand, most, n int) (features []int32) {
	for range n {
		features = append(features, random.Int32N(int32(most)))
	}
	slices.Sort(features)
	return slices.Compact(features)
}

// simulated returns a partial with sums of all entries of the features.
func simulated(random *rand.Rand, shape layout.Shape, features []int32) *tally.Partial {
	p := &tally.Partial{Shape: shape, Rows: 1000, LossFull: 1 << 40, LossEmpty: 1 << 41, Features: features, Count: make([]int64, len(features))}
	n := len(features) * shape.Dim()
	p.Sum, p.Abs, p.Square = make([]int64, n), make([]int64, n), make([]int64, n)
	for i := range p.Count {
		p.Count[i] = 1 + random.Int64N(1000)
	}
	for i := range n {
		p.Sum[i] = random.Int64N(1<<31) - 1<<29
		p.Abs[i], p.Square[i] = max(p.Sum[i], -p.Sum[i]), random.Int64N(1<<31)
	}
	p.Check = p.Checksum()
	return p
}

// largest returns the largest memory that one of the processes has had, in MiB.
func largest(t *testing.T, processes []*exec.Cmd) (most int) {
	for _, c := range processes {
		most = max(most, highWater(t, c.Process.Pid))
	}
	return most
}

// highWater returns the largest resident memory that a process has had, in MiB, or 0 if the system
// does not say.
func highWater(t *testing.T, pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")))
			if err != nil {
				t.Fatal(err)
			}
			return n >> 10
		}
	}
	return 0
}
