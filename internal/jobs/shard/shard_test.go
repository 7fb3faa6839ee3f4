package shard

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/data/arrowio"
	"shaver/internal/jobs/job"
)

var (
	architecture = modeltest.Architectures()["fm"]
	fields       = []string{"a", "b", "c"}
)

// from returns a source that passes rows in batches of the given size.
func from(rows *model.Rows, batch int) model.RowSource {
	return func(ctx context.Context, each func(*model.Rows) error) error {
		for i := 0; i < rows.Len(); i += batch {
			part := rows.Slice(i, min(i+batch, rows.Len()))
			if err := each(&part); err != nil {
				return err
			}
		}
		return nil
	}
}

// cutAll cuts the shards listed in want. It also collects each shard from its place and
// compares the rows, and computes the places without rows, in two orders.
func cutAll(t interface{ Fatal(...any) }, rows *model.Rows, batch int, sample Sample, plan job.Plan, want []int) map[int]*model.Rows {
	shards := map[int]*model.Rows{}
	places := map[int]job.Place{}
	order := slices.Clone(want)
	next := func(context.Context) (int, error) {
		if len(want) == 0 {
			return -1, nil
		}
		first := want[0]
		want = want[1:]
		return first, nil
	}
	err := Cut(context.Background(), from(rows, batch), sample, plan, next,
		func(ctx context.Context, piece *Piece) error {
			r := piece.Rows
			shards[piece.Index] = &model.Rows{}
			shards[piece.Index].AppendAll(r)
			// A worker with the whole dataset collects the same rows.
			place := piece.Place
			places[piece.Index] = place
			place.SHA256 = Digest(r)
			rest := rows.Slice(int(place.Seen), rows.Len())
			collected, err := Collect(ctx, from(&rest, batch), sample, place, plan.ShardRows(piece.Index))
			if err == nil && !reflect.DeepEqual(collected, shards[piece.Index]) {
				err = errors.New("the collected rows differ from the rows that were cut")
			}
			return err
		})
	if err != nil {
		t.Fatal(err)
	}
	backward := slices.Clone(order)
	slices.Reverse(backward)
	computed := sample.Places(plan)
	for _, index := range slices.Concat(order, backward) {
		if place, err := computed.Of(context.Background(), index); err != nil || place != places[index] {
			t.Fatal("the place of shard", index, "is", place, err, "expected", places[index])
		}
	}
	return shards
}

// The shards are the sampled rows in order. This holds for any shard size, any batches,
// and any set of wanted shards. The sample has exactly its size.
func TestCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := architecture
		a.Dense = []string{"price", "age"}[:rapid.IntRange(0, 2).Draw(t, "dense inputs")]
		rows := modeltest.Rows(a, rapid.IntRange(1, 60).Draw(t, "rows"), 1)
		for i := range rows.Number {
			rows.Number[i] += 1000
		}
		sample := NewSample(int64(rows.Len()), rapid.Float64Range(0.01, 1).Draw(t, "portion"), rapid.Uint64().Draw(t, "seed"))
		whole := cutAll(t, rows, rows.Len(), sample, job.Plan{Rows: sample.Keep, RowsPerShard: sample.Keep}, []int{0})[0]
		if int64(whole.Len()) != sample.Keep || !slices.IsSorted(whole.Number) {
			t.Fatalf("sample of %d has rows %v", sample.Keep, whole.Number)
		}
		data, err := Encode(arrowio.RowForm{Fields: fields, Sizes: a.FieldDims, Dense: a.Dense}, whole)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := Open(data, &a, sample.Keep); err != nil || !reflect.DeepEqual(back, whole) {
			t.Fatalf("opened %+v, %v; want %+v", back, err, whole)
		}
		plan := job.Plan{Rows: sample.Keep, RowsPerShard: rapid.Int64Range(1, 20).Draw(t, "per shard")}
		var want []int
		for i := range plan.Shards() {
			if rapid.Bool().Draw(t, "wanted") {
				want = append(want, i)
			}
		}
		shards := cutAll(t, rows, rapid.IntRange(1, 9).Draw(t, "batch"), sample, plan, slices.Clone(want))
		if len(shards) != len(want) {
			t.Fatalf("%d shards, want %d", len(shards), len(want))
		}
		for index, got := range shards {
			first := index * int(plan.RowsPerShard)
			expect := whole.Slice(first, first+int(plan.ShardRows(index)))
			if !slices.Equal(got.Number, expect.Number) || !slices.Equal(got.Label, expect.Label) || !slices.Equal(got.Features, expect.Features) {
				t.Fatalf("shard %d has rows %v, want %v", index, got.Number, expect.Number)
			}
		}
	})
}

// The rounds of the first pass are disjoint and together form the sample. Each later
// round is the whole sample. The content of a shard does not depend on which other shards
// are cut.
func TestCutRounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows := modeltest.Rows(architecture, rapid.IntRange(1, 200).Draw(t, "rows"), 1)
		sample := NewSample(int64(rows.Len()), rapid.Float64Range(0.3, 1).Draw(t, "portion"), rapid.Uint64().Draw(t, "seed"))
		whole := cutAll(t, rows, rows.Len(), sample, job.Plan{Rows: sample.Keep, RowsPerShard: sample.Keep}, []int{0})[0]
		portions := rapid.IntRange(1, 4).Draw(t, "portions")
		plan := job.Plan{RowsPerShard: rapid.Int64Range(1, 20).Draw(t, "per shard"), Rounds: sample.Rounds(portions, 3)}
		for round := range plan.Rounds {
			var want []int
			for shard := range plan.Shards() {
				if in, _, _ := plan.Locate(shard); in == round {
					want = append(want, shard)
				}
			}
			if len(want) > 0 {
				checkRound(t, cutAll(t, rows, 7, sample, plan, slices.Clone(want)), whole, plan, round, sample)
			}
		}
	})
}

// The first round of a path has eight parts of the sampled rows, or all. The next ones have the parts in
// turn, which are disjoint, contain all of them, and have equal numbers of rows, or one more.
func TestCutPath(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows := modeltest.Rows(architecture, rapid.IntRange(1, 200).Draw(t, "rows"), 1)
		sample := NewSample(int64(rows.Len()), rapid.Float64Range(0.3, 1).Draw(t, "portion"), rapid.Uint64().Draw(t, "seed"))
		parts := rapid.IntRange(1, 12).Draw(t, "parts")
		in := min(parts, int(sample.Keep)) // parts
		plan := job.Plan{RowsPerShard: rapid.Int64Range(1, 20).Draw(t, "per shard"), Rounds: sample.PathRounds(2*parts+1, 0, parts)}
		var seen []int64
		for round, r := range plan.Rounds {
			if round > 0 && (r.Rows < sample.Keep/int64(in) || r.Rows > sample.Keep/int64(in)+1) {
				t.Fatalf("round %d has %d of %d rows in %d parts", round, r.Rows, sample.Keep, in)
			}
			var want []int
			for shard := range plan.Shards() {
				if in, _, _ := plan.Locate(shard); in == round {
					want = append(want, shard)
				}
			}
			var numbers []int64
			if len(want) > 0 {
				for _, got := range cutAll(t, rows, 7, sample, plan, want) {
					numbers = append(numbers, got.Number...)
				}
			}
			if round == 0 && in <= 8 && r.Rows != sample.Keep {
				t.Fatalf("the first round has %d of %d rows", r.Rows, sample.Keep)
			}
			if int64(len(numbers)) != r.Rows {
				t.Fatalf("round %d has %d rows, expected %d", round, len(numbers), r.Rows)
			}
			if round > 0 && round <= in {
				seen = append(seen, numbers...)
			}
		}
		slices.Sort(seen)
		if int64(len(seen)) != sample.Keep || len(slices.Compact(seen)) != len(seen) {
			t.Fatalf("the parts have %d rows, expected each of %d once", len(seen), sample.Keep)
		}
	})
}

// checkRound checks all shards of a round.
func checkRound(t *rapid.T, shards map[int]*model.Rows, whole *model.Rows, plan job.Plan, round int, sample Sample) {
	var got, expect []int64
	for _, shard := range slices.Sorted(maps.Keys(shards)) {
		got = append(got, shards[shard].Number...)
	}
	for _, number := range whole.Number {
		if round >= plan.Portions() || sample.portion(number, plan.Portions()) == round { // in this test a row's number is its index
			expect = append(expect, number)
		}
	}
	if !slices.Equal(got, expect) || int64(len(got)) != plan.Rounds[round].Rows {
		t.Fatalf("round %d of %+v has rows %v, expected %v", round, plan, got, expect)
	}
}

// Samples of different generations overlap as independent samples do. Generation 0 is the
// sample of a job that is not paired.
func TestSampleRotates(t *testing.T) {
	const rows = 2000
	all := modeltest.Rows(architecture, rows, 1)
	sampled := func(sample Sample) []int64 {
		return cutAll(t, all, rows, sample, job.Plan{Rows: sample.Keep, RowsPerShard: sample.Keep}, []int{0})[0].Number
	}
	spec := func(generation int) *job.Spec {
		s := &job.Spec{Sample: .25, Seed: 7}
		if generation > 0 {
			s.Previous = &job.Previous{Generation: generation}
		}
		return s
	}
	first := sampled(SampleOf(spec(0), rows))
	if !slices.Equal(first, sampled(NewSample(rows, .25, 7))) {
		t.Error("the sample of generation 0 is not that of an ordinary job")
	}
	for generation := range 4 {
		for other := range generation {
			a, b := sampled(SampleOf(spec(generation), rows)), sampled(SampleOf(spec(other), rows))
			common := 0
			for _, number := range a {
				if _, found := slices.BinarySearch(b, number); found {
					common++
				}
			}
			if len(a) != 500 || common < 85 || common > 165 { // hypergeometric: mean 125, standard deviation 8.4
				t.Errorf("generations %d and %d: samples of %d rows with %d in common, expected about 125", generation, other, len(a), common)
			}
		}
	}
}

// The places of shards in any order follow from the sampled rows, also of large samples.
func TestPlaces(t *testing.T) {
	sample := NewSample(30_000, .5, 9)
	var rows []int64 // the sampled ones
	for p := (picker{Sample: sample}); p.seen < sample.Rows; {
		if row, chosen := p.next(); chosen {
			rows = append(rows, row)
		}
	}
	plain := job.Plan{Rows: sample.Keep, RowsPerShard: 500}
	path := job.Plan{RowsPerShard: 500, Rounds: sample.PathRounds(9, 0, 7)}
	for _, plan := range []job.Plan{plain, path} {
		places := sample.Places(plan)
		for i := range plan.Shards() {
			index := i * 17 % plan.Shards()
			round, from, _ := plan.Locate(index)
			place, err := places.Of(t.Context(), index)
			if err != nil {
				t.Fatal(err)
			}
			want, p := placeOf(&plan, round), picker{Sample: sample}
			for at := int64(0); ; {
				row := rows[p.kept]
				if p.kept++; !p.has(row, &want) {
					continue
				}
				if at++; at > from {
					want.Seen, want.Kept = row, p.kept-1
					break
				}
			}
			if place != want {
				t.Errorf("shard %d: %+v, expected %+v", index, place, want)
			}
		}
	}
}

// Every row is equally likely to be in the sample.
func TestSampleIsFair(t *testing.T) {
	const rows, draws = 20, 1000
	count := make([]int, rows)
	all := modeltest.Rows(architecture, rows, 1)
	for seed := range uint64(draws) {
		sample := NewSample(rows, 0.25, seed)
		for _, number := range cutAll(t, all, rows, sample, job.Plan{Rows: sample.Keep, RowsPerShard: sample.Keep}, []int{0})[0].Number {
			count[number]++
		}
	}
	for number, n := range count { // binomial: mean 250, standard deviation 14
		if n < 185 || n > 315 {
			t.Errorf("row %d was drawn %d times of %d, expected about %d", number, n, draws, draws/4)
		}
	}
}

func TestCutRefusals(t *testing.T) {
	rows := modeltest.Rows(architecture, 10, 1)
	plan := job.Plan{Rows: 20, RowsPerShard: 20}
	next := func(context.Context) (int, error) { return 0, nil }
	emit := func(context.Context, *Piece) error { return nil }
	err := Cut(t.Context(), from(rows, 5), NewSample(20, 1, 1), plan, next, emit)
	if err == nil || !strings.Contains(err.Error(), "ended after 10 rows, expected 20") {
		t.Errorf("short dataset: %v", err)
	}
	if _, err := NewSample(20, .5, 1).Places(job.Plan{Rows: 20, RowsPerShard: 8}).Of(t.Context(), 1); err != nil {
		t.Error(err)
	}
	if _, err := NewSample(20, .5, 1).Places(job.Plan{Rows: 20, RowsPerShard: 8}).Of(t.Context(), 2); err == nil || !strings.Contains(err.Error(), "shard 2 of the plan begins after the last of 10 sampled rows") {
		t.Errorf("a plan with too many rows: %v", err)
	}
	broken := errors.New("broken")
	plan = job.Plan{Rows: 10, RowsPerShard: 10}
	err = Cut(t.Context(), from(rows, 5), NewSample(10, 1, 1), plan, next, func(context.Context, *Piece) error { return broken })
	if !errors.Is(err, broken) {
		t.Errorf("emit failed: %v", err)
	}
}

// Collect refuses rows of another dataset, sample or place. Their digest differs, or
// there are too few of them.
func TestCollectRefusals(t *testing.T) {
	a := architecture
	a.Dense = []string{"price", "age"}
	rows, kept := modeltest.Rows(a, 40, 1), NewSample(40, .5, 1)
	var at job.Place
	wanted := []int{1, -1}
	next := func(context.Context) (index int, err error) {
		index, wanted = wanted[0], wanted[1:]
		return index, nil
	}
	err := Cut(t.Context(), from(rows, 9), kept, job.Plan{Rows: 20, RowsPerShard: 8}, next, func(_ context.Context, p *Piece) error {
		at = p.Place
		at.SHA256 = Digest(p.Rows)
		return nil
	})
	if err != nil || at.Kept != 8 || at.Seen < 8 {
		t.Fatalf("shard 1 is at %+v: %v", at, err)
	}
	first := int(at.Seen) // number of a row in the shard
	const other = "the digest of the rows differs"
	for what, c := range map[string]struct {
		change func(rows *model.Rows, sample *Sample, place *job.Place, want *int64)
		err    string
	}{
		"nothing":         {func(*model.Rows, *Sample, *job.Place, *int64) {}, ""},
		"a label":         {func(rows *model.Rows, _ *Sample, _ *job.Place, _ *int64) { rows.Label[first] = 1 - rows.Label[first] }, other},
		"a feature":       {func(rows *model.Rows, _ *Sample, _ *job.Place, _ *int64) { rows.Row(first)[1] ^= 1 }, other},
		"a dense input":   {func(rows *model.Rows, _ *Sample, _ *job.Place, _ *int64) { rows.DenseRow(first)[1] += 1e-6 }, other},
		"a number":        {func(rows *model.Rows, _ *Sample, _ *job.Place, _ *int64) { rows.Number[first] += 1000 }, other},
		"the seed":        {func(_ *model.Rows, sample *Sample, _ *job.Place, _ *int64) { sample.Seed++ }, other},
		"the place":       {func(_ *model.Rows, _ *Sample, place *job.Place, _ *int64) { place.Seen++; place.Kept++ }, other},
		"fewer rows":      {func(_ *model.Rows, _ *Sample, _ *job.Place, want *int64) { *want = 7 }, other},
		"more than there": {func(_ *model.Rows, _ *Sample, _ *job.Place, want *int64) { *want = 13 }, "only 12 of 13 rows"},
	} {
		changed := model.Rows{}
		changed.AppendAll(rows)
		sample, place, want := kept, at, int64(8)
		c.change(&changed, &sample, &place, &want)
		rest := changed.Slice(int(place.Seen), changed.Len())
		_, err := Collect(t.Context(), from(&rest, 7), sample, place, want)
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestOpenRefusals(t *testing.T) {
	rows := modeltest.Rows(architecture, 10, 1)
	data, err := Encode(arrowio.RowForm{Fields: fields, Sizes: architecture.FieldDims}, rows)
	if err != nil {
		t.Fatal(err)
	}
	a := architecture
	a.Dense = []string{"price", "age"}
	dense, err := Encode(arrowio.RowForm{Fields: fields, Sizes: a.FieldDims, Dense: a.Dense}, modeltest.Rows(a, 10, 1))
	if err != nil {
		t.Fatal(err)
	}
	lists := &model.Rows{Width: 5, Number: []int64{0}, Label: []float32{1}, Features: []int32{0, 4, 5, 6, 7}}
	list, err := Encode(arrowio.RowForm{Fields: fields, Sizes: architecture.FieldDims, Lengths: []int{0, 3, 0}}, lists)
	if err != nil {
		t.Fatal(err)
	}
	withList := architecture
	withList.Lists = []model.List{{Field: 1, Length: 3}}
	if back, err := Open(list, &withList, 1); err != nil || !reflect.DeepEqual(back, lists) {
		t.Errorf("opened %+v, %v; want %+v", back, err, lists)
	}
	for name, c := range map[string]struct {
		data  []byte
		sizes []int
		dense []string
		rows  int64
		want  string
	}{
		"sizes":     {data, []int{4, 3, 6}, nil, 10, "field sizes"},
		"too few":   {data, architecture.FieldDims, nil, 11, "its task expects 11"},
		"too many":  {data, architecture.FieldDims, nil, 9, "its task expects 9"},
		"truncated": {data[:len(data)/2], architecture.FieldDims, nil, 10, ""},
		"empty":     {nil, architecture.FieldDims, nil, 10, ""},
		"no dense":  {data, architecture.FieldDims, a.Dense, 10, `shard has the dense inputs [], the model reads ["price" "age"]`},
		"order":     {dense, architecture.FieldDims, []string{"age", "price"}, 10, `shard has the dense inputs ["price" "age"]`},
		"a list":    {list, architecture.FieldDims, nil, 1, "shard has lists of lengths [0 3 0], the model has []"},
		"more":      {dense, architecture.FieldDims, nil, 10, "the model reads []"},
	} {
		reads := model.Architecture{FieldDims: c.sizes, Dense: c.dense}
		if _, err := Open(c.data, &reads, c.rows); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
