package merger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

	"shaver/internal/data/arrowio"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/bus/embedded"
	"shaver/internal/jobs/job"
	"shaver/internal/num/layout"
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
	entries, full := 1_000_000, os.Getenv("SHAVER_HUGE") != ""
	if full {
		entries = 1_000_000_000
	}
	const dim, ranges = 16, 16
	shape := layout.Of(entries/dim, dim)
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	var processes []*exec.Cmd
	for range ranges {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), mergerEnv+"="+server.URL())
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _, _ = c.Process.Kill(), c.Wait() }()
		processes = append(processes, c)
	}
	b, err := bus.Connect(t.Context(), bus.Config{URL: server.URL(), Role: "coordinator", Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.Setup(t.Context(), bus.DefaultQueue, "avx2"); err != nil {
		t.Fatal(err)
	}
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
		result := job.Result{Job: j.ID, Shard: s, Rows: 1000}
		for i := range ranges {
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
			var encoded bytes.Buffer
			if err := arrowio.EncodePartial(&encoded, p); err != nil {
				t.Fatal(err)
			}
			bytesSent += encoded.Len()
			blob, err := b.Put(t.Context(), bus.RangeName(bus.PartialName(j.ID, s, "a"), i), encoded.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				result.Partial = blob
			} else {
				result.More = append(result.More, blob)
			}
		}
		if err := r.Add(t.Context(), &result); err != nil {
			t.Fatal(err)
		}
		for i := range ranges {
			if err := b.Delete(t.Context(), bus.RangeName(result.Partial.Name, i)); err != nil {
				t.Fatal(err)
			}
		}
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
