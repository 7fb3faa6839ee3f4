package toredis_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"shaver/infer"
	"shaver/infer/infertest"
	"shaver/infer/redis"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/data/redisrows"
	"shaver/internal/data/redisrows/redistest"
	"shaver/internal/prune/delta"
	"shaver/internal/prune/delta/deltatest"
	"shaver/internal/prune/delta/toredis"
)

// With the variable loadVariable, this process is a loader of the delta that its argument names.
const loadVariable = "SHAVER_TEST_LOAD"

func TestMain(m *testing.M) {
	address := os.Getenv(loadVariable)
	if address == "" {
		os.Exit(m.Run())
	}
	s, err := redisrows.Open(context.Background(), address, "test")
	if err == nil {
		_, err = toredis.Load(context.Background(), s, os.Args[1], false)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// deltas writes the deltas of the nights, the first of which is whole, and returns their folders.
func deltas(t testing.TB, nights []string) (folders []string) {
	t.Helper()
	root := t.TempDir()
	for i, night := range nights {
		o := delta.Options{Generation: int64(i + 1)}
		if i > 0 {
			o.From = nights[i-1]
		}
		folder := filepath.Join(root, fmt.Sprint(i+1))
		if _, err := delta.Write(night, o, folder); err != nil {
			t.Fatal(err)
		}
		folders = append(folders, folder)
	}
	return folders
}

func open(t testing.TB, address string) *redisrows.Store {
	t.Helper()
	s, err := redisrows.Open(t.Context(), address, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func load(t testing.TB, s *redisrows.Store, folders ...string) []*redisrows.Loaded {
	t.Helper()
	var all []*redisrows.Loaded
	for _, folder := range folders {
		loaded, err := toredis.Load(t.Context(), s, folder, false)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, loaded)
	}
	return all
}

// rowsOf returns n random rows with ids that all nights know.
func rowsOf(sizes, lengths []int, n int) (ids []int32) {
	r := rand.New(rand.NewPCG(3, 4))
	for range n {
		for j, size := range sizes {
			for range lengths[j] {
				ids = append(ids, r.Int32N(int32(size)))
			}
		}
	}
	return ids
}

// logits returns the logits of package infer for the file of a night.
func logits(t testing.TB, path string, ids []int32, dense []float32, n int) []float64 {
	t.Helper()
	m, err := infer.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	dst := make([]float64, n)
	if err := m.Logits(dst, ids, dense); err != nil {
		t.Fatal(err)
	}
	return dst
}

func same(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return math.Float64bits(x) == math.Float64bits(y) })
}

// Ten nights end in a store whose rows are those of the last model, although the loader is killed three times and
// readers score all the time. Every batch that they score is of one night, with the logits of package infer.
func TestTenNights(t *testing.T) {
	t.Parallel()
	address := redistest.Start(t)
	nights := deltatest.Nights(t, 10, compact.Float32)
	folders := deltas(t, nights)
	s := open(t, address)
	load(t, s, folders[0])
	const n = 40
	ids := rowsOf([]int{40, 25, 300}, []int{1, 1, 1}, n)
	want := map[int64][]float64{}
	for i, night := range nights {
		want[int64(i+1)] = logits(t, night, ids, nil, n)
	}
	done := make(chan struct{})
	var readers sync.WaitGroup
	var seen sync.Map
	for range 2 {
		m, err := redis.Open(t.Context(), address, "test")
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		readers.Go(func() {
			dst := make([]float64, n)
			for {
				g, err := m.Logits(t.Context(), dst, ids, nil)
				if err != nil || !same(dst, want[g]) {
					t.Errorf("generation %d: %v, or other logits", g, err)
					return
				}
				seen.Store(g, true)
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	loader := func(address, folder string) *exec.Cmd {
		c := exec.Command(os.Args[0], folder)
		c.Env = append(os.Environ(), loadVariable+"="+address)
		return c
	}
	// The deltas have about 3,000 bytes of rows and 3,000 of the head. A loader hangs after it has sent that many
	// bytes, and is killed.
	for _, kill := range []struct {
		night int
		bytes int64
	}{{3, 1500}, {6, 4000}, {8, 6000}} {
		night, bytes := kill.night, kill.bytes
		load(t, s, folders[generationOf(t, s):night]...)
		p := redistest.NewProxy(t, address, bytes)
		c := loader(p.Address, folders[night])
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		<-p.Stopped
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		c.Wait()
		if g := generationOf(t, s); g != night {
			t.Errorf("generation %d after the loader of generation %d was killed", g, night+1)
		}
		deltatest.WantRows(t, s, nights[night-1])
		if text, err := loader(address, folders[night]).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		deltatest.WantRows(t, s, nights[night])
	}
	load(t, s, folders[generationOf(t, s):]...)
	close(done)
	readers.Wait()
	if m, err := redis.Open(t.Context(), address, "test"); err != nil || m.Generation() != 10 {
		t.Errorf("the last generation: %v", err)
	} else {
		m.Close()
	}
	deltatest.WantRows(t, s, nights[9])
	c := goredis.NewClient(&goredis.Options{Addr: address})
	defer c.Close()
	needed := map[string]bool{} // by readers of the last two generations
	for _, night := range nights[8:] {
		ck, err := checkpoint.Read(night)
		if err != nil {
			t.Fatal(err)
		}
		dropped, _, err := ck.Pruned()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range ck.Pieces() {
			for i := range p.Rows {
				needed[fmt.Sprintf("test:1:%d:%d", p.Number, i)] = needed[fmt.Sprintf("test:1:%d:%d", p.Number, i)] || slices.Contains(dropped[p.Entry+i*p.Dim:][:p.Dim], false)
			}
		}
	}
	for _, key := range rowKeys(t, c, "test:1:*") {
		if !needed[key] {
			t.Errorf("the key %s stays, whose row keeps nothing", key)
		}
	}
	if _, ok := seen.Load(int64(1)); !ok {
		t.Error("no batch was scored with the first generation")
	}
	if again := load(t, s, folders[9]); !again[0].Already || again[0].Written != 0 {
		t.Errorf("loading it again: %+v", again[0])
	}
}

// generationOf returns the generation of the store.
func generationOf(t *testing.T, s *redisrows.Store) int {
	t.Helper()
	state, err := s.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return int(state.Generation)
}

// A loader refuses deltas that do not follow the store in one line, and changes nothing.
func TestRefusals(t *testing.T) {
	t.Parallel()
	address := redistest.Start(t)
	nights := deltatest.Nights(t, 5, compact.Float32)
	folders := deltas(t, nights)
	s := open(t, address)
	refuse := func(want, folder string) {
		t.Helper()
		_, err := toredis.Load(t.Context(), s, folder, false)
		if !fault.IsInput(err) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, expected %q", err, want)
		}
	}
	refuse("has no model: begin with a whole delta", folders[1])
	load(t, s, folders[0])
	refuse("starts from generation 2", folders[2])
	load(t, s, folders[1:4]...)
	refuse("has generation 4, and the delta has 1", folders[0])
	if _, err := redis.Open(t.Context(), address, "other"); !fault.IsInput(err) {
		t.Errorf("an empty store: %v", err)
	}
	if _, err := redisrows.Open(t.Context(), address, "a*"); !fault.IsUsage(err) {
		t.Errorf("a prefix with a star: %v", err)
	}
	if _, err := redisrows.Open(t.Context(), "redis://user:secret@[", "a"); !fault.IsUsage(err) || strings.Contains(err.Error(), "secret") {
		t.Errorf("a malformed address: %v", err)
	}
	deltatest.WantRows(t, s, nights[3])
	replica := goredis.NewClient(&goredis.Options{Addr: address})
	defer replica.Close()
	if err := replica.ReplicaOf(t.Context(), "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	refuse("is a replica that cannot be written", folders[4])
}

// If a delta is half loaded, another one is refused unless it is whole. A whole delta leads to the same rows, and the
// next one removes what earlier ones left.
func TestHalfLoaded(t *testing.T) {
	t.Parallel()
	address := redistest.Start(t)
	nights := deltatest.Nights(t, 5, compact.Float32)
	folders := deltas(t, nights)
	s := open(t, address)
	load(t, s, folders[:2]...)
	d, err := delta.Open(folders[2])
	if err != nil {
		t.Fatal(err)
	}
	failed := fmt.Errorf("no power")
	_, err = s.Load(t.Context(), &redisrows.Change{
		Generation: 3, Model: d.Model, Mask: d.Mask, Digest: "another", Head: d.HeadBytes,
		Check: func(*redisrows.State) error { return nil },
		Rows: func(each func(*redisrows.Row) error) error {
			for id := range 2000 { // a whole batch, so that it is written
				if err := each(&redisrows.Row{Piece: 2, ID: id % 300, Width: 4, Columns: []int32{0}, Values: []float32{7}}); err != nil {
					return err
				}
			}
			return failed
		},
	})
	if err == nil || !strings.Contains(err.Error(), failed.Error()) {
		t.Fatal(err)
	}
	deltatest.WantRows(t, s, nights[1])
	if _, err := toredis.Load(t.Context(), s, folders[2], false); !fault.IsInput(err) || !strings.Contains(err.Error(), "half loaded") {
		t.Error(err)
	}
	whole := filepath.Join(t.TempDir(), "whole")
	if _, err := delta.Write(nights[2], delta.Options{Generation: 3}, whole); err != nil {
		t.Fatal(err)
	}
	before, _, err := s.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	load(t, s, whole)
	deltatest.WantRows(t, s, nights[2])
	values := make([]float32, 4)
	place := func(i int) redisrows.Place { return redisrows.Place{ID: i, Values: values} }
	if newer, err := s.Fill(t.Context(), before, 40, place); !newer || err != nil {
		t.Errorf("the generation before: newer %t, %v", newer, err)
	}
	if got := load(t, s, folders[3])[0]; got.Removed == 0 {
		t.Errorf("%+v: the rows of the first whole delta stay", got)
	}
	if _, err := s.Fill(t.Context(), before, 40, place); err != redisrows.ErrStale {
		t.Errorf("two generations before: %v", err)
	}
	deltatest.WantRows(t, s, nights[3])
	load(t, s, folders[4])
	deltatest.WantRows(t, s, nights[4])
	c := goredis.NewClient(&goredis.Options{Addr: address})
	defer c.Close()
	for pattern, want := range map[string]bool{"test:1:*": false, "test:3:*": true, "test:head:4": true, "test:head:5": true, "test:head:3": false, "test:loading": false} {
		if keys, err := c.Keys(t.Context(), pattern).Result(); err != nil || len(keys) > 0 != want {
			t.Errorf("%s: %d keys, %v", pattern, len(keys), err)
		}
	}
	// Values of another program are bad input, and not rows.
	row := rowKeys(t, c, "test:3:0:*")[0]
	var id int32
	fmt.Sscanf(row, "test:3:0:%d", &id)
	ids := []int32{id, id, id}
	m, err := redis.Open(t.Context(), address, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, key := range []string{row, "test:state"} {
		if err := c.Set(t.Context(), key, "garbage", 0).Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Logits(t.Context(), make([]float64, 1), ids, nil); !fault.IsInput(err) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
	}
	if err := c.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Logits(t.Context(), make([]float64, 1), ids, nil); !fault.IsInput(err) || !strings.Contains(err.Error(), "no model any more") {
		t.Errorf("an emptied store: %v", err)
	}
}

// rowKeys returns the keys of a pattern, sorted. There is at least one.
func rowKeys(t *testing.T, c *goredis.Client, pattern string) []string {
	t.Helper()
	keys, err := c.Keys(t.Context(), pattern).Result()
	if err != nil || len(keys) == 0 {
		t.Fatalf("%s: %d keys, %v", pattern, len(keys), err)
	}
	slices.Sort(keys)
	return keys
}

// Whatever is lost or damaged, a reader has the logits of the file or an error, and a repair writes it again and nothing
// else. A delta that is not whole, or of another generation, repairs nothing.
func TestLost(t *testing.T) {
	t.Parallel()
	address := redistest.Start(t)
	nights := deltatest.Nights(t, 3, compact.Float32)
	folders := deltas(t, nights)
	whole := filepath.Join(t.TempDir(), "whole")
	if _, err := delta.Write(nights[1], delta.Options{Generation: 2}, whole); err != nil {
		t.Fatal(err)
	}
	s := open(t, address)
	load(t, s, folders[:2]...)
	c := goredis.NewClient(&goredis.Options{Addr: address})
	defer c.Close()
	const n = 300 // all rows
	var ids []int32
	for i := range int32(n) {
		ids = append(ids, i%40, i%25, i)
	}
	want := logits(t, nights[1], ids, nil, n)
	read := func() ([]float64, error) {
		m, err := redis.Open(t.Context(), address, "test")
		if err != nil {
			return nil, err
		}
		defer m.Close()
		dst := make([]float64, n)
		_, err = m.Logits(t.Context(), dst, ids, nil)
		return dst, err
	}
	if got, err := read(); err != nil || !same(got, want) {
		t.Fatalf("before: %v", err)
	}
	flip := func(key string) error {
		value, err := c.Get(t.Context(), key).Bytes()
		if err == nil {
			value[len(value)/2] ^= 4
			err = c.Set(t.Context(), key, value, 0).Err()
		}
		return err
	}
	rows := rowKeys(t, c, "test:1:2:*")
	for name, damage := range map[string]func() (rows int, err error){
		"lost": func() (int, error) { return 20, c.Del(t.Context(), rows[:20]...).Err() },
		"of another type": func() (int, error) {
			return 1, errors.Join(c.Del(t.Context(), rows[3]).Err(), c.HSet(t.Context(), rows[3], "a", "b").Err())
		},
		"with another byte":  func() (int, error) { return 1, flip(rows[5]) },
		"cut":                func() (int, error) { return 1, c.SetRange(t.Context(), rows[5], 500, "x").Err() },
		"a lost head":        func() (int, error) { return 0, c.Del(t.Context(), "test:head:2").Err() },
		"another head":       func() (int, error) { return 0, flip("test:head:2") },
		"lost bits":          func() (int, error) { return 0, c.Del(t.Context(), "test:kept:2").Err() },
		"other bits":         func() (int, error) { return 0, flip("test:kept:2") },
		"a head of no bytes": func() (int, error) { return 0, c.Set(t.Context(), "test:head:2", "", 0).Err() },
	} {
		damaged, err := damage()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := read(); !fault.IsInput(err) || !strings.Contains(err.Error(), "--repair") {
			t.Errorf("%s: %v", name, err)
		}
		for _, folder := range []string{folders[0], folders[1], folders[2]} {
			if _, err := toredis.Load(t.Context(), s, folder, true); !fault.IsInput(err) || !strings.Contains(err.Error(), "expected a whole delta of these") {
				t.Errorf("%s: repaired with %s: %v", name, filepath.Base(folder), err)
			}
		}
		if loaded, err := toredis.Load(t.Context(), s, whole, true); err != nil || loaded.Already || loaded.Written != int64(damaged) {
			t.Errorf("%s: repaired with %+v, %v, expected %d rows", name, loaded, err, damaged)
		}
		if got, err := read(); err != nil || !same(got, want) {
			t.Errorf("%s: after the repair: %v, or other logits", name, err)
		}
		deltatest.WantRows(t, s, nights[1])
	}
	if policy := s.Evicts(t.Context()); policy != "" {
		t.Errorf("a new server evicts by %s", policy)
	}
	if err := c.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err(); err != nil || s.Evicts(t.Context()) != "allkeys-lru" {
		t.Errorf("evicts by %q, %v", s.Evicts(t.Context()), err)
	}
	// A repair that is interrupted leaves a store that loads the next delta.
	if err := c.Set(t.Context(), "test:loading", `{"generation":2,"base":1,"delta":"x","line":0,"loader":"y"}`, 0).Err(); err != nil {
		t.Fatal(err)
	}
	load(t, s, folders[2])
	deltatest.WantRows(t, s, nights[2])
	if err := c.Set(t.Context(), "test:state", `{"version":"shaver.redis/1","generation":3}`, 0).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := read(); !fault.IsInput(err) || !strings.Contains(err.Error(), "another version of shaver") {
		t.Errorf("the form before: %v", err)
	}
}

// A model of every form has the logits of package infer: with towers, with dense inputs, with lists, and with several words.
func TestKinds(t *testing.T) {
	t.Parallel()
	address := redistest.Start(t)
	for i, name := range []string{"golden/neumf.pth", "golden/dcn-mix.pth", "onnx/fuxictr-deepfm-numeric.dynamo.onnx", "onnx/fuxictr-din.dynamo.onnx"} {
		ck, err := checkpoint.Read(filepath.Join("..", "..", "..", "..", "testdata", filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		a := &ck.Architecture
		r := rand.New(rand.NewPCG(1, 2))
		dropped := deltatest.Mask(r, a.Parameters())
		for _, s := range a.Spans() {
			for _, row := range a.FixedRows() {
				if i := row - s.Row; i >= 0 && i < s.Rows {
					clear(dropped[s.Entry+i*s.Dim:][:s.Dim])
				}
			}
		}
		path := deltatest.Write(t, ck, dropped, r, compact.Float16, 0, 3)
		s, err := redisrows.Open(t.Context(), address, fmt.Sprint("kind", i))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		load(t, s, deltas(t, []string{path})...)
		m, err := redis.Open(t.Context(), address, fmt.Sprint("kind", i))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		const n = 60
		facts := m.Head().Model()
		ids, dense := rowsOf(facts.Sizes(), facts.Lengths(), n), make([]float32, n*len(facts.DenseInputs()))
		for k := range dense {
			dense[k] = r.Float32()
		}
		dst := make([]float64, n)
		if _, err := m.Logits(t.Context(), dst, ids, dense); err != nil || !same(dst, logits(t, path, ids, dense, n)) {
			t.Errorf("%s: %v, or other logits than those of package infer", name, err)
		}
	}
}

// A delta that changes words alone, or the numbers of rows alone, reaches all rows that read them: those that keep an entry and those
// that keep none, which have no key.
func TestWords(t *testing.T) {
	t.Parallel()
	address := redistest.Start(t)
	s := open(t, address)
	ck, err := checkpoint.Read(filepath.Join("..", "..", "..", "..", "testdata", "golden", "dcn-mix.pth"))
	if err != nil {
		t.Fatal(err)
	}
	a := &ck.Architecture
	spans := a.Spans()
	dropped := slices.Repeat([]bool{true}, a.Parameters())
	for row := range spans[0].Rows / 2 {
		dropped[row*spans[0].Dim] = false
	}
	whole, words := a.Zero(), infertest.Words(a)
	others, numbers := words.Scaled(.5), words
	numbers.Numbers = slices.Clone(words.Numbers)
	numbers.Numbers[0], numbers.Numbers[spans[0].Rows-1] = 1-words.Numbers[0], 1-words.Numbers[spans[0].Rows-1] // the field has two words
	var nights []string
	for i, b := range []model.Baseline{whole, words, others, words, numbers, whole} {
		nights = append(nights, filepath.Join(t.TempDir(), fmt.Sprint(i)))
		if _, err := checkpoint.WriteCompact(nights[i], ck, dropped, b, compact.Float32); err != nil {
			t.Fatal(err)
		}
	}
	const n = 60
	ids := rowsOf(a.FieldDims, slices.Repeat([]int{1}, len(a.FieldDims)), n)
	folders := deltas(t, nights)
	load(t, s, folders[0])
	m, err := redis.Open(t.Context(), address, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for i, night := range nights {
		if i > 0 {
			loaded := load(t, s, folders[i])[0]
			if want := map[int]int64{2: 0, 3: 0, 4: 2}; i > 1 && i < 5 && loaded.Rows != want[i] {
				t.Errorf("night %d: %d rows, expected %d", i, loaded.Rows, want[i])
			}
			if _, err := m.Logits(t.Context(), make([]float64, n), ids, nil); err != nil { // of the generation before
				t.Fatal(err)
			}
		}
		deltatest.WantRows(t, s, night)
		dst := make([]float64, n)
		if g, err := m.Logits(t.Context(), dst, ids, nil); err != nil || g != int64(i+1) || !same(dst, logits(t, night, ids, nil, n)) {
			t.Errorf("night %d: generation %d, %v, or other logits than those of package infer", i, g, err)
		}
	}
}

// A loader that continues skips the rows that the one before it wrote, and the values are the same.
func TestContinue(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Start(t))
	nights := deltatest.Nights(t, 1, compact.Float32)
	d, err := delta.Open(deltas(t, nights)[0])
	if err != nil {
		t.Fatal(err)
	}
	const rows = 5000
	change := func(generation int64, until int) *redisrows.Change {
		return &redisrows.Change{
			Generation: generation, Model: d.Model, Mask: fmt.Sprint(generation), Whole: generation == 1, Digest: fmt.Sprint(generation), Head: d.HeadBytes,
			Check: func(*redisrows.State) error { return nil },
			Rows: func(each func(*redisrows.Row) error) error {
				for id := range rows {
					if id == until {
						return fmt.Errorf("no power")
					}
					if err := each(&redisrows.Row{ID: id, Width: 1, Columns: []int32{0}, Values: []float32{float32(generation) + float32(id)}}); err != nil {
						return err
					}
				}
				return nil
			},
		}
	}
	for generation := int64(1); generation <= 3; generation++ {
		if _, err := s.Load(t.Context(), change(generation, 4500)); err == nil {
			t.Fatal("no error")
		}
		loaded, err := s.Load(t.Context(), change(generation, -1))
		if err != nil || loaded.Skipped != 4000 || loaded.Written != 1000 || loaded.Rows != rows {
			t.Fatalf("%+v, %v", loaded, err)
		}
		state, _, err := s.Head(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		values := make([]float32, rows)
		if _, err := s.Fill(t.Context(), state, rows, func(i int) redisrows.Place { return redisrows.Place{ID: i, Values: values[i : i+1]} }); err != nil {
			t.Fatal(err)
		}
		for id, v := range values {
			if v != float32(generation)+float32(id) {
				t.Fatalf("generation %d, id %d: %v", generation, id, v)
			}
		}
	}
}
