package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"shaver/internal/base/long"
	"shaver/internal/data/dataset"
	"shaver/internal/ops/remote"
	"shaver/internal/ops/remote/remotetest"
	"shaver/internal/prune/nightly"
)

// objects is a bucket of a server of the test.
type objects struct {
	t *testing.T
	*remotetest.Server
	*remote.Session
}

func newObjects(t *testing.T) *objects {
	t.Helper()
	server := remotetest.Start(t, filepath.Join("..", "..", "internal", "ops", "remote", "testdata", "s3server"))
	session, err := remote.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	t.Setenv("TMPDIR", t.TempDir()) // a process that is killed leaves its scratch folder
	return &objects{t, server, session}
}

func (o *objects) at(key string) remote.Location {
	o.t.Helper()
	l, err := remote.Parse("s3://bucket/" + key)
	if err != nil {
		o.t.Fatal(err)
	}
	return l
}

// put writes a file to an object.
func (o *objects) put(file, key string) {
	o.t.Helper()
	if err := o.Replace(o.t.Context(), file, o.at(key)); err != nil {
		o.t.Fatal(err)
	}
}

// get returns the bytes of an object, and whether there is one.
func (o *objects) get(key string) ([]byte, bool) {
	o.t.Helper()
	path, ok, err := o.FetchIf(o.t.Context(), o.at(key))
	if err != nil {
		o.t.Fatal(err)
	}
	if !ok {
		return nil, false
	}
	data, err := os.ReadFile(path)
	if err != nil {
		o.t.Fatal(err)
	}
	return data, true
}

// names returns the names of the objects in a folder.
func (o *objects) names(key string) string {
	o.t.Helper()
	names, err := o.List(o.t.Context(), o.at(key))
	if err != nil {
		o.t.Fatal(err)
	}
	return strings.Join(names, " ")
}

// A dataset is imported, scored and pruned without local files. The bytes are those of local
// runs.
func TestRemote(t *testing.T) {
	o := newObjects(t)
	golden := func(name string) string { return filepath.Join(goldenDir, name) }
	for _, name := range []string{"deepfm.pth", "deepfm.json", "deepfm.rows.csv"} {
		o.put(golden(name), "in/"+name)
	}
	local := t.TempDir()
	l := func(name string) string { return filepath.Join(local, name) }
	const in, out = "s3://bucket/in/", "s3://bucket/out/"
	importing := []string{"dataset", "import", "csv", "--ids", "global", "--split", "1:1:1"}
	command(t, "shaver", append(importing, "--train", in+"deepfm.rows.csv", "--model", in+"deepfm.pth", "--out", out+"rows")...)
	command(t, "shaver", append(importing, "--train", golden("deepfm.rows.csv"), "--model", golden("deepfm.pth"), "--out", l("rows"))...)
	command(t, "shaver", "score", "--model", in+"deepfm.pth", "--dataset", out+"rows", "--out", out+"s.arrow", "--passes", "2")
	command(t, "shaver", "score", "--model", golden("deepfm.pth"), "--dataset", l("rows"), "--out", l("s.arrow"), "--passes", "2")
	command(t, "shaver", "prune", "--model", in+"deepfm.pth", "--scores", out+"s.arrow", "--sparsity", "0.5", "--out", out+"p.safetensors")
	command(t, "shaver", "prune", "--model", golden("deepfm.pth"), "--scores", l("s.arrow"), "--sparsity", "0.5", "--out", l("p.safetensors"))
	for _, name := range []string{"rows/dataset.json", "rows/train.arrow", "s.arrow", "p.safetensors"} {
		want, err := os.ReadFile(l(filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := o.get("out/" + name); string(got) != string(want) {
			t.Errorf("%s differs from that of a local run", name)
		}
	}
	if got, want := o.names("out"), "p.safetensors rows/blocks.json rows/dataset.json rows/frequencies.arrow rows/test.arrow rows/train.arrow rows/val.arrow s.arrow s.job.json"; got != want {
		t.Errorf("objects %s, expected %s", got, want)
	}
	report, _ := o.get("out/s.job.json")
	command(t, "shaver", "score", "--model", in+"deepfm.pth", "--dataset", out+"rows", "--out", out+"s.arrow", "--passes", "2")
	if again, _ := o.get("out/s.job.json"); string(again) != string(report) {
		t.Error("a job whose scores are at their URL ran again")
	}
	code, err := exitCode(exec.CommandContext(t.Context(), "shaver", "score", "--model", in+"deepfm.pth", "--dataset", out+"rows", "--out", out+"s.arrow", "--passes", "3").Run())
	if code != 2 || err != nil {
		t.Errorf("scores of another job: exit code %d (%v), expected 2", code, err)
	}
}

// remoteNights is a folder of nights in the bucket.
type remoteNights struct {
	*nightsFolder
	*objects
	key string
}

func (s *nightsSource) remote(o *objects, key string) *remoteNights {
	s.t.Helper()
	url := "s3://bucket/" + key + "/"
	return &remoteNights{s.folder("model: model.safetensors", "model: "+url+"model.safetensors", "days: days", "days: "+url+"days", "out: out", "out: "+url+"out"), o, key}
}

// bring puts the model and the day of a night in their places.
func (f *remoteNights) bring(night int) {
	t := f.objects.t
	t.Helper()
	f.put(f.model(night), f.key+"/model.safetensors")
	day := f.at(f.key + "/days/" + filepath.Base(f.day(night)))
	if err := f.PublishFolder(t.Context(), f.day(night), day, dataset.ManifestName); err != nil {
		t.Fatal(err)
	}
}

// published returns the digests of the files of the published night, and its name. All must be those that its
// record has.
func (f *remoteNights) published() map[string]string {
	t := f.objects.t
	t.Helper()
	text, ok := f.get(f.key + "/out/current.json")
	if !ok {
		return nil
	}
	var current nightly.Current
	if err := json.Unmarshal(text, &current); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{"night": current.Night}
	for _, name := range []string{nightly.ScoresFile, nightly.PrunedFile, nightly.CheckFile} {
		data, ok := f.get(f.key + "/out/" + current.Folder + "/" + name)
		if !ok {
			t.Fatalf("the published night %s has no %s", current.Night, name)
		}
		sum := sha256.Sum256(data)
		found[name] = hex.EncodeToString(sum[:])
	}
	if found[nightly.ScoresFile] != current.Scores || found[nightly.PrunedFile] != current.Pruned {
		t.Fatalf("the files of the night %s are not those that current.json names", current.Night)
	}
	return found
}

// A scratch folder has only the days that the next night needs.
func TestNightlyScratch(t *testing.T) {
	source := newNightsSource(t, 3)
	scratch := t.TempDir()
	f := source.folder()
	days := filepath.ToSlash(f.path("days"))
	f.write("nightly.yaml", strings.Replace(smallNights, "days: days", "days: file://"+days, 1))
	for night := range source.nights {
		f.bring(night)
		command(t, "shaver", f.args("--scratch", scratch)...)
	}
	wantFiles(t, filepath.Join(scratch, "file", filepath.FromSlash(days)), "day-1", "day-2")
	wantFiles(t, filepath.Join(scratch, ".versions", "file", filepath.FromSlash(days)), "day-1", "day-2")
}

// Nights whose data are in an object store publish the same bytes as local nights, even if
// each process is killed at some moment and the next one begins with an empty scratch folder. What is published is
// always a whole night.
func TestNightlyRemote(t *testing.T) {
	long.Test(t)
	o := newObjects(t)
	kills := 4
	if long.Hours() {
		kills = 40
	}
	source := newNightsSource(t, 3)
	calm := source.folder()
	var want []map[string]string // by night
	var took []time.Duration
	digests := func(files map[string]string) map[string]string {
		files = maps.Clone(files)
		for name, data := range files {
			if name != "night" {
				sum := sha256.Sum256([]byte(data))
				files[name] = hex.EncodeToString(sum[:])
			}
		}
		return files
	}
	for night := range source.nights {
		calm.bring(night)
		began := time.Now()
		calm.must()
		want, took = append(want, digests(calm.published())), append(took, time.Since(began))
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	killed := 0
	for round := 0; killed < kills; round++ {
		if round > 10*kills {
			t.Fatalf("%d kills in %d rounds: the nights end before they can be killed", killed, round)
		}
		f := source.remote(o, "round-"+string(rune('a'+round%26))+string(rune('a'+round/26)))
		for night := range source.nights {
			f.bring(night)
			for killed < kills && kill(t, f.nightsFolder, time.Duration(random.Int64N(int64(2*took[night])))) {
				killed++
				found := f.published()
				whole := found == nil && night == 0
				for _, w := range want[max(0, night-1) : night+1] {
					whole = whole || maps.Equal(found, w)
				}
				if !whole {
					t.Fatalf("after a kill in night %d, the store publishes %v", night, found)
				}
			}
			f.must()
			if found := f.published(); !maps.Equal(found, want[night]) {
				t.Fatalf("after %d kills, night %d is %v, expected %v", killed, night, found, want[night])
			}
		}
		names := f.names(f.key + "/out")
		for _, unwanted := range []string{"day-0.1", "day-1.1/model/", "lock", "tmp"} {
			if strings.Contains(names, unwanted) && !strings.Contains(names, "nights/"+unwanted+".") {
				t.Errorf("objects %s: unexpected %s", names, unwanted)
			}
		}
		history, _ := f.get(f.key + "/out/history.jsonl")
		if n := strings.Count(string(history), "\n"); n != source.nights {
			t.Errorf("the history has %d lines, expected %d", n, source.nights)
		}
		if _, err := os.Lstat(f.path("out")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a local folder of results (%v)", err)
		}
		if code, log := f.run(); code != 0 || !strings.Contains(log, "nothing to do") {
			t.Errorf("the last night again: exit code %d, %s", code, log)
		}
	}
	t.Logf("%d kills", killed)
}
