//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"shaver/deploy/internal/trial"
	"shaver/deploy/k8s/try/cluster"
)

const (
	bucket    = "shaver"
	accessKey = "try"
	secretKey = "a-secret-of-this-run"
)

// nights runs three nights whose data is in an object store: the first one in full, the
// second one paired, and the third one with a check that fails.
func (s *suite) nights(t *trial.Step) {
	s.settled(t, 2)
	store := s.store(t)
	put := func(key, file string) {
		_, err := store.FPutObject(t.Ctx, bucket, key, s.data.file(file), minio.PutObjectOptions{})
		t.Check(err)
		t.Say("%s is in the store as s3://%s/%s.", file, bucket, key)
	}
	get := func(key string) string {
		o, err := store.GetObject(t.Ctx, bucket, key, minio.GetObjectOptions{})
		t.Check(err)
		defer o.Close()
		text, err := io.ReadAll(o)
		if err != nil {
			return ""
		}
		return string(text)
	}
	// The loader gets a coordinator's label, so that the policy of coordinators holds for it.
	t.Do(s.kubectl("label", "pod/loader", "app.kubernetes.io/name=coordinator", "--overwrite"))
	reached := func() bool {
		r := s.kubectl("exec", "loader", "--", "sh", "-c", `printf 'GET / HTTP/1.0\r\n\r\n' | nc -w 3 store.store.svc.cluster.local 9000`).Do(t.Ctx)
		return strings.Contains(r.Out, "HTTP/1")
	}
	t.Need(t.Wait(30*time.Second, func() bool { return !reached() }), "without network.objectStore.enabled a coordinator's pod cannot reach the store", "no answer")
	upgrade := s.helm("upgrade", "shaver", chart, "--reuse-values", "--values", s.manifest("nightly.yaml"))
	upgrade.Lines = 4
	t.Do(upgrade)
	t.Need(t.Wait(30*time.Second, reached), "with it, the pod reaches the store", "an answer over HTTP")
	t.Do(s.kubectl("label", "pod/loader", "app.kubernetes.io/name=loader", "--overwrite"))

	put("model.safetensors", "model-1.safetensors")
	put("raw/day-1.csv", "day-1.csv")
	s.importDay(t, "day-1")
	t.Do(s.kubectl("create", "job", "--from=cronjob/nightly", "night-1"))
	end := s.end(t, "night-1", 4*time.Minute)
	t.Need(end.Condition == "Complete", "the first night completes", end.String()+" "+trial.Short(s.logs(t, "night-1"), 1500))
	first := get("nightly/current.json")
	t.Contains("current.json after the first night", first, `"night": "day-1.1"`)
	s.sameNight(t, "1", first)

	put("model.safetensors", "model-2.safetensors")
	put("raw/day-2.csv", "day-2.csv")
	s.importDay(t, "day-2")
	render := s.helm("template", "shaver", chart, "--values", chart+"/values-small.yaml", "--values", s.manifest("nightly.yaml"), "--set", ownImage, "--set-string", "nightly.modelDigest=222222222222", "--show-only", "templates/nightly-job.yaml")
	render.Lines = -1
	create := s.kubectl("create", "--filename=-")
	create.Stdin = t.Do(render)
	t.Do(create)
	again := t.Try(create)
	t.Expect(again.Code != 0 && strings.Contains(again.Err, "already exists"), "a second Job for the same model is refused", trial.Short(again.Err, 200))
	end = s.end(t, "nightly-222222222222", 4*time.Minute)
	t.Need(end.Condition == "Complete", "the second night completes", end.String()+" "+trial.Short(s.logs(t, "nightly-222222222222"), 1500))
	second := get("nightly/current.json")
	t.Contains("current.json after the second night", second, `"night": "day-2.1"`)
	s.sameNight(t, "2", second)
	t.Expect(get("nightly/nights/day-1.1/night.json") != "", "the folder of the first night is still there", "nights/day-1.1/night.json")

	put("model.safetensors", "model-3.safetensors")
	put("raw/day-3.csv", "day-3.csv")
	s.importDay(t, "day-3")
	strict := s.helm("upgrade", "shaver", chart, "--reuse-values", "--set", "nightly.config.prune.sparsity=0.98")
	strict.Lines = -1
	t.Do(strict)
	t.Do(s.kubectl("create", "job", "--from=cronjob/nightly", "night-3"))
	end = s.failed(t, "night-3", 7, 4*time.Minute)
	third := get("nightly/current.json")
	t.Expect(third == second, "current.json is still that of the second night", third)

	var outcomes, generations []string
	for line := range strings.Lines(get("nightly/history.jsonl")) {
		var l struct {
			Outcome    string
			Generation int
		}
		t.Check(json.Unmarshal([]byte(line), &l))
		outcomes, generations = append(outcomes, l.Outcome), append(generations, fmt.Sprint(l.Generation))
	}
	t.Equal("outcomes in history.jsonl", strings.Join(outcomes, " "), "published published failed")
	t.Equal("generations (0: every day in full; 1: the older of the two days in the window corrected by pairs)", strings.Join(generations, " "), "0 1 1")
	lines, bad := onlyJSON(s.kubectl("logs", "job/night-3", "--tail=-1").Do(t.Ctx).Text())
	t.Expect(bad == "", "every line of a night's log is JSON", fmt.Sprintf("%d lines, not JSON: %s", lines, bad))
	t.Point("2", "three nights in an object store have a folder each; current.json named day-1.1, day-2.1 and, after the failed check (%s), still day-2.1", end)
	t.Point("20", "with network.objectStore.enabled a night and a coordinator's pod reached the store; without it, the pod did not")
	s.remove(t, "night-1", "nightly-222222222222", "night-3", "import-day-1", "import-day-2", "import-day-3")
	s.upgrade(t, "nightly.enabled=false", "network.objectStore.enabled=false", "coordinators.envFrom=null")
	t.Do(s.kubectl("delete", "namespace", "store", "--wait=false"))
}

// store starts the S3-compatible server and returns a client.
func (s *suite) store(t *trial.Step) *minio.Client {
	program := filepath.Join(s.cache, "bin", "s3server")
	t.Check(s.Load(t.Ctx, cluster.Image{Name: "localhost/store:1", Files: map[string]string{"/s3server": program}, Entrypoint: []string{"/s3server"}, Temporary: []string{"/tmp"}}))
	t.Do(s.kubectl("apply", "--filename="+s.manifest("store.yaml")))
	t.Do(s.kubectl("wait", "--namespace=store", "--for=condition=Ready", "pod/store", "--timeout=2m"))
	t.Do(s.kubectl("create", "secret", "generic", "object-store", "--from-literal=AWS_ACCESS_KEY_ID="+accessKey, "--from-literal=AWS_SECRET_ACCESS_KEY="+secretKey,
		"--from-literal=AWS_REGION=us-east-1", "--from-literal=AWS_ENDPOINT_URL_S3=http://store.store.svc.cluster.local:9000"))
	ip := t.Do(s.kubectl("get", "pod/store", "--namespace=store", "-o", "jsonpath={.status.podIP}"))
	client, err := minio.New(ip+":9000", &minio.Options{Creds: credentials.NewStaticV4(accessKey, secretKey, ""), Region: "us-east-1", Transport: &http.Transport{DialContext: s.Dial}})
	t.Check(err)
	return client
}

// importDay imports a day's raw rows, from the store into the store.
func (s *suite) importDay(t *trial.Step, day string) {
	text, err := os.ReadFile(filepath.Join(s.source(), s.manifest("import.yaml")))
	t.Check(err)
	create := s.kubectl("create", "--filename=-")
	create.Stdin, create.Show = strings.ReplaceAll(string(text), "DAY", day), "sed s/DAY/"+day+"/ "+s.manifest("import.yaml")+" | kubectl create --filename=-"
	t.Do(create)
	end := s.end(t, "import-"+day, 3*time.Minute)
	t.Need(end.Condition == "Complete", "the import completes", end.String()+" "+trial.Short(s.logs(t, "import-"+day), 800))
}

// sameNight runs a night on this machine with local files, and expects the same digests of
// its scores and its pruned model.
func (s *suite) sameNight(t *trial.Step, night, current string) {
	dir := filepath.Join(s.work, "nights")
	t.Check(os.MkdirAll(filepath.Join(dir, "days"), 0o755))
	model, err := os.ReadFile(s.data.file("model-" + night + ".safetensors"))
	t.Check(err)
	t.Check(os.WriteFile(filepath.Join(dir, "model.safetensors"), model, 0o644))
	config := `model: model.safetensors
days: days
out: nightly
window: 2
score: {estimator: multilinear, draws: 2, baseline: codebook, splits: [train], sample: 0.3, full-every: 7, max-inherited-error: 0.1}
prune: {sparsity: 0.3, hysteresis: 1}
calibrate: true
check: {split: test, max-auc-drop: 0.05, max-logloss-rise: 0.05}
`
	t.Check(os.WriteFile(filepath.Join(dir, "nightly.yaml"), []byte(config), 0o644))
	local := func(args ...string) {
		c := s.local(args...)
		c.Dir, c.Lines = dir, 3
		t.Do(c)
	}
	local("dataset", "import", "csv", "--train", s.data.file("day-"+night+".csv"), "--split", "8:1:1", "--model", "model.safetensors", "--out", "days/day-"+night)
	local("nightly", "--config", "nightly.yaml")
	here, err := os.ReadFile(filepath.Join(dir, "nightly", "current.json"))
	t.Check(err)
	t.Expect(string(here) == current, "the published digests of the same night on this machine: "+strings.TrimSpace(string(here)), strings.TrimSpace(current))
}
