package bus

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/jobs/job"
)

func TestSubjects(t *testing.T) {
	for _, shard := range []int{0, 7, math.MaxInt32} {
		id, got, ok := parseSubject(resultPrefix, subject(resultPrefix, testJob, shard))
		if id != testJob || got != shard || !ok {
			t.Errorf("%d came back as %s, %d, %v", shard, id, got, ok)
		}
		queue, id, got, ok := parseTask(taskSubject("avx2-fma", testJob, shard))
		if queue != ownQueue("avx2-fma") || id != testJob || got != shard || !ok {
			t.Errorf("%d came back as %s, %s, %d, %v", shard, queue, id, got, ok)
		}
	}
	for _, s := range []string{"", "shaver.task.", taskPrefix + testJob, taskPrefix + testJob + ".1", taskPrefix + "k." + testJob + ".01", taskPrefix + "." + testJob + ".1",
		taskPrefix + "a.b." + testJob + ".1", taskPrefix + "K." + testJob + ".1", taskPrefix + "k.abc.1", taskPrefix + "k." + testJob + ".1.2", resultPrefix + testJob + ".1"} {
		if kernel, id, shard, ok := parseTask(s); ok {
			t.Errorf("%q was read as %s, %s, %d", s, kernel, id, shard)
		}
	}
	for _, s := range []string{"", "shaver.result.", resultPrefix + testJob, resultPrefix + testJob + ".", resultPrefix + testJob + ".01",
		resultPrefix + testJob + ".-1", resultPrefix + testJob + ".+1", resultPrefix + testJob + ".2147483648", resultPrefix + testJob + ".1.2",
		resultPrefix + "abc.1", resultPrefix + strings.ToUpper(testJob) + "x.1", quarantinePrefix + testJob + ".1"} {
		if id, shard, ok := parseSubject(resultPrefix, s); ok {
			t.Errorf("%q was read as %s, %d", s, id, shard)
		}
	}
}

func TestDecodeTaskRefuses(t *testing.T) {
	task := newTask(1, 3)
	on := taskSubject(testKernel, task.Job, 3)
	good, err := encodeTask(task)
	must(t, err)
	if _, err := decodeTask(on, good); err != nil {
		t.Fatal(err)
	}
	swap := func(old, new string) []byte {
		if !bytes.Contains(good, []byte(old)) {
			t.Fatalf("%s does not hold %s", good, old)
		}
		return bytes.Replace(good, []byte(old), []byte(new), 1)
	}
	tests := map[string]struct {
		on   string
		body []byte
	}{
		"empty":          {on, nil},
		"null":           {on, []byte("null")},
		"truncated":      {on, good[:len(good)-1]},
		"more behind":    {on, append(bytes.Clone(good), ' ')},
		"unknown field":  {on, swap(`"job"`, `"x":1,"job"`)},
		"twice":          {on, swap(`"shard":3`, `"shard":3,"shard":3`)},
		"spelling":       {on, swap(`"shard"`, `"Shard"`)},
		"missing":        {on, swap(`"shard":3,`, ``)},
		"version":        {on, swap(fmt.Sprintf(`"version":%d`, job.SpecVersion), `"version":99`)},
		"other spec":     {on, swap(`"seed":1`, `"seed":2`)},
		"no rows":        {on, swap(`"rows":1000`, `"rows":0`)},
		"negative bytes": {on, swap(`"bytes":10`, `"bytes":-10`)},
		"digest":         {on, swap(digest("c"), digest("C"))},
		"blob name":      {on, swap(`/3"`, `/4"`)},
		"other model":    {on, swap("model/aa", "model/ba")},
		"other shard":    {taskSubject(testKernel, task.Job, 4), good},
		"other job":      {taskSubject(testKernel, newTask(2, 3).Job, 3), good},
		"other kernel":   {taskSubject("k", task.Job, 3), good},
		"other queue":    {subject(taskPrefix+QueueName(testKernel, job.Protocol+1)+".", task.Job, 3), good},
		"newer":          {on, swap(fmt.Sprintf(`"protocol":%d`, job.Protocol), fmt.Sprintf(`"protocol":%d`, job.Protocol+1))},
		"older":          {on, swap(fmt.Sprintf(`"protocol":%d,`, job.Protocol), ``)},
		"other kind":     {subject(resultPrefix, task.Job, 3), good},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := decodeTask(test.on, test.body); !fault.IsInput(err) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A task refers to its rows in exactly one of two ways.
func TestRowsOfTask(t *testing.T) {
	place := job.Place{Seen: 7, Kept: 7, SHA256: digest("d")}
	for name, c := range map[string]struct {
		spoil func(*job.Task)
		good  bool
	}{
		"data":          {func(*job.Task) {}, true},
		"place":         {func(t *job.Task) { t.Data, t.Place = job.Blob{}, place }, true},
		"both":          {func(t *job.Task) { t.Place = place }, false},
		"neither":       {func(t *job.Task) { t.Data = job.Blob{} }, false},
		"kept negative": {func(t *job.Task) { t.Data, t.Place = job.Blob{}, place; t.Place.Kept = -1 }, false},
		"kept more":     {func(t *job.Task) { t.Data, t.Place = job.Blob{}, place; t.Place.Kept = 8 }, false},
		"a portion":     {func(t *job.Task) { t.Data, t.Place = job.Blob{}, place; t.Place.Portion, t.Place.Portions = 2, 3 }, true},
		"no portion":    {func(t *job.Task) { t.Data, t.Place = job.Blob{}, place; t.Place.Portion, t.Place.Portions = 3, 3 }, false},
		"portion alone": {func(t *job.Task) { t.Data, t.Place = job.Blob{}, place; t.Place.Portion = 1 }, false},
		"blocks": {func(t *job.Task) {
			t.Data, t.Place = job.Blob{}, place
			t.Place.SHA256, t.Place.Blocks = "", digest("e")
		}, true},
		"two digests": {func(t *job.Task) { t.Data, t.Place = job.Blob{}, place; t.Place.Blocks = digest("e") }, false},
		"no hex":      {func(t *job.Task) { t.Data, t.Place = job.Blob{}, place; t.Place.SHA256, t.Place.Blocks = "", "e" }, false},
		"no digest":   {func(t *job.Task) { t.Data, t.Place = job.Blob{}, place; t.Place.SHA256 = "" }, false},
	} {
		task := newTask(1, 3)
		c.spoil(&task)
		body, err := encodeTask(task)
		if (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			continue
		}
		if back, err := decodeTask(taskSubject(testKernel, task.Job, 3), body); err != nil || back.Data != task.Data || back.Place != task.Place {
			t.Errorf("%s: came back as %+v, %v", name, back, err)
		}
	}
}

// A task that verifies a shard names the shard's rows and the workers that have computed it. Its result has the digest and
// no partial.
func TestVerifyOfTask(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*job.Task)
		good  bool
	}{
		"verify":      {func(*job.Task) {}, true},
		"wrong":       {func(t *job.Task) { t.Wrong = []string{"c", "d"} }, true},
		"itself":      {func(t *job.Task) { t.Verify.Shard = t.Shard }, false},
		"negative":    {func(t *job.Task) { t.Verify.Shard = -1 }, false},
		"nobody":      {func(t *job.Task) { t.Verify.Workers = nil }, false},
		"other shard": {func(t *job.Task) { t.Verify.Shard = 2 }, false},
		"long name":   {func(t *job.Task) { t.Wrong = []string{strings.Repeat("x", maxText+1)} }, false},
	} {
		task := newTask(1, 3)
		task.Shard, task.Verify = 13, &job.Verify{Shard: 3, Workers: []string{"a", "b"}}
		c.spoil(&task)
		body, err := encodeTask(task)
		if (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			continue
		}
		if back, err := decodeTask(taskSubject(testKernel, task.Job, 13), body); err != nil || back.Verify.Shard != 3 || !slices.Equal(back.Verify.Workers, task.Verify.Workers) || !slices.Equal(back.Wrong, task.Wrong) {
			t.Errorf("%s: came back as %+v, %v", name, back, err)
		}
		r := newResult(task, "a")
		r.Partial, r.Alone = job.Blob{}, true
		if body, err = encodeResult(r); err != nil {
			t.Errorf("%s: its result: %v", name, err)
		} else if back, err := decodeResult(subject(resultPrefix, task.Job, 13), body); err != nil || !back.Alone || !slices.Equal(back.Digests, r.Digests) {
			t.Errorf("%s: its result came back as %+v, %v", name, back, err)
		}
	}
}

// A task of a paired job names the previous model and its baseline. No other task does.
func TestPreviousOfTask(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*job.Task)
		good  bool
	}{
		"paired":         {func(*job.Task) {}, true},
		"no model":       {func(t *job.Task) { t.PreviousModel = job.Blob{} }, false},
		"no baseline":    {func(t *job.Task) { t.PreviousBaseline = job.Blob{} }, false},
		"other model":    {func(t *job.Task) { t.PreviousModel = t.Model }, false},
		"other baseline": {func(t *job.Task) { t.PreviousBaseline.SHA256 = digest("0") }, false},
		"swapped":        {func(t *job.Task) { t.PreviousBaseline = t.Baseline }, false},
		"not paired": {func(t *job.Task) {
			old := newTask(1, 3)
			t.Job, t.Spec, t.Data, t.Baseline = old.Job, old.Spec, old.Data, old.Baseline
		}, false},
	} {
		task := newPairedTask(1, 3)
		c.spoil(&task)
		body, err := encodeTask(task)
		if (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			continue
		}
		if back, err := decodeTask(taskSubject(testKernel, task.Job, 3), body); err != nil || back.PreviousModel != task.PreviousModel || back.PreviousBaseline != task.PreviousBaseline {
			t.Errorf("%s: came back as %+v, %v", name, back, err)
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	task := newTask(1, 3)
	task.Spec.Splits = []string{"\xff"}
	task.Job = task.Spec.ID()
	task.Data.Name = ShardName(task.Job, 3)
	if _, err := encodeTask(task); err == nil {
		t.Error("invalid UTF-8 was encoded")
	}
	for name, spoil := range map[string]func(*job.Result){
		"rows": func(r *job.Result) { r.Rows = 0 }, "NaN": func(r *job.Result) { r.Seconds = math.NaN() },
		"infinite": func(r *job.Result) { r.CPU = math.Inf(1) }, "negative": func(r *job.Result) { r.CPU = -1 },
		"other shard": func(r *job.Result) { r.Shard++ }, "job": func(r *job.Result) { r.Job = "*" },
		"no digest": func(r *job.Result) { r.Digests = nil }, "two digests": func(r *job.Result) { r.Digests = []uint64{1, 2} },
		"shards without a partial": func(r *job.Result) { r.Partial, r.Shards, r.Digests = job.Blob{}, []int{3, 4}, []uint64{1, 2} },
		"shard":                    func(r *job.Result) { r.Shard = -1 }, "attempt": func(r *job.Result) { r.Partial.Name += "/x" },
	} {
		r := newResult(newTask(1, 3), "a")
		spoil(&r)
		if _, err := encodeResult(r); err == nil {
			t.Errorf("%s: %+v was encoded", name, r)
		}
	}
}

func TestTidy(t *testing.T) {
	for text, want := range map[string]string{"": "", " a\n\tb ": "a b", "\xffx": "?x",
		strings.Repeat("é", maxText): strings.Repeat("é", maxText/2), "x" + strings.Repeat("é", maxText): "x" + strings.Repeat("é", maxText/2-1)} {
		if got := tidy(text); got != want {
			t.Errorf("%.20q became %.20q, expected %.20q", text, got, want)
		}
	}
}

// FuzzDecode checks that an accepted message matches its subject and is encoded to the
// same bytes.
func FuzzDecode(f *testing.F) {
	task := newTask(1, 3)
	t, err := encodeTask(task)
	must(f, err)
	r, err := encodeResult(newResult(task, "a"))
	must(f, err)
	q, err := encodeQuarantine(job.Quarantine{Job: task.Job, Shard: 3, Reason: "row 1 <é>", Worker: "w"})
	must(f, err)
	for prefix, body := range map[string][]byte{taskPrefix: t, resultPrefix: r, quarantinePrefix: q} {
		f.Add(subject(prefix, task.Job, 3), body)
		f.Add(subject(prefix, task.Job, 4), body)
		f.Add(subject(prefix, task.Job, 3), append([]byte(" "), body...))
	}
	f.Add("", []byte(nil))
	f.Fuzz(func(t *testing.T, on string, body []byte) {
		same := func(prefix, id string, shard int, back []byte, err error) {
			if err != nil || !bytes.Equal(back, body) || subject(prefix, id, shard) != on {
				t.Errorf("%s: %q was read and written back as %q (%v)", on, body, back, err)
			}
			if _, _, ok := parseSubject(prefix, on); !ok {
				t.Errorf("%q was accepted as a subject", on)
			}
		}
		if m, err := decodeTask(on, body); err == nil {
			back, err := encodeTask(m)
			same(taskPrefix, m.Job, m.Shard, back, err)
		}
		if m, err := decodeResult(on, body); err == nil {
			back, err := encode(checkResult, m)
			same(resultPrefix, m.Job, m.Shard, back, err)
		}
		if m, err := decodeQuarantine(on, body); err == nil {
			back, err := encode(checkQuarantine, m)
			same(quarantinePrefix, m.Job, m.Shard, back, err)
		}
	})
}
