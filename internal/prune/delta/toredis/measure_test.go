package toredis_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"shaver/infer"
	"shaver/infer/redis"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/click/train"
	"shaver/internal/data/redisrows/redistest"
	"shaver/internal/prune/delta"
)

// BenchmarkNights measures a model of 1,000,000 ids and 16 columns, half of which keep a fifth of their entries: what a
// night sends to Redis at several churns, and how long batches of rows take. Run it with -benchtime 1x -v.
func BenchmarkNights(t *testing.B) {
	address := redistest.Start(t)
	s := open(t, address)
	c := goredis.NewClient(&goredis.Options{Addr: address})
	defer c.Close()
	r := rand.New(rand.NewPCG(1, 2))
	a := model.Architecture{Kind: model.DCNMix, FieldDims: []int{600000, 300000, 100000}, Dim: 16, Hidden: []int{64}, CrossLayers: 2, Rank: 8, Experts: 2}
	p := train.Initial(&a, false, 1)
	dropped := make([]bool, a.Parameters())
	for row := range a.Features() {
		keep := r.IntN(2) == 0 // half of the rows keep about a fifth
		for i := row * 16; i < (row+1)*16; i++ {
			dropped[i] = !keep || r.IntN(5) > 0
		}
	}
	baseline := a.Zero()
	write := func(night int) string {
		path := filepath.Join(t.TempDir(), fmt.Sprint(night, ".safetensors"))
		if _, err := checkpoint.WriteCompact(path, checkpoint.New(a, p), dropped, baseline, compact.Float32); err != nil {
			t.Fatal(err)
		}
		return path
	}
	measure := func(name, from, to string, g int64) {
		folder := filepath.Join(t.TempDir(), "d")
		began := time.Now()
		d, err := delta.Write(to, delta.Options{From: from, Generation: g}, folder)
		if err != nil {
			t.Fatal(err)
		}
		wrote := time.Since(began)
		info, err := os.Stat(filepath.Join(folder, delta.HeadFile))
		if err != nil {
			t.Fatal(err)
		}
		before, _ := c.Info(t.Context(), "stats").Result()
		began = time.Now()
		l := load(t, s, folder)[0]
		took := time.Since(began)
		after, _ := c.Info(t.Context(), "stats").Result()
		t.Logf("%s: kept %d dropped %d, delta %d bytes in %.2fs; load %.2fs, %d rows written, %d bytes, net %d, head %d", name, d.Kept, d.Dropped, d.Bytes, wrote.Seconds(), took.Seconds(), l.Written, l.Bytes, input(after)-input(before), info.Size())
	}
	last := write(1)
	measure("whole", "", last, 1)
	for g, churn := range []float64{.01, .1, .5, 1} {
		for row := range a.Features() {
			if r.Float64() < churn {
				for i := row * 16; i < (row+1)*16; i++ {
					if !dropped[i] {
						p.Embedding[i] += .001
					}
				}
			}
		}
		next := write(g + 2)
		measure(fmt.Sprint("churn ", churn), last, next, int64(g+2))
		last = next
	}
	m, err := redis.Open(t.Context(), address, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	o, err := infer.Open(last)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	for _, n := range []int{1, 100, 1000} {
		ids := rowsOf(a.FieldDims, []int{1, 1, 1}, n)
		dst := make([]float64, n)
		var times, plain []time.Duration
		for range 21 {
			began := time.Now()
			if _, err := m.Logits(t.Context(), dst, ids, nil); err != nil {
				t.Fatal(err)
			}
			times = append(times, time.Since(began))
			began = time.Now()
			o.Logits(dst, ids, nil)
			plain = append(plain, time.Since(began))
		}
		slices.Sort(times)
		slices.Sort(plain)
		t.Logf("%d rows of data: %v (%v to %v), from the file %v", n, times[10], times[2], times[18], plain[10])
	}
}

// input returns the number of bytes that Redis has received.
func input(info string) (n int64) {
	_, text, _ := strings.Cut(info, "total_net_input_bytes:")
	fmt.Sscan(text, &n)
	return n
}
