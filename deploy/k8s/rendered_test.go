package deploy_test

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "render the files of this folder from the chart")

const chart = "deploy/helm/shaver" // from the root of the repository

// rendered maps each file to the arguments of helm that render it.
var rendered = map[string]string{
	"shaver.yaml":                "",
	"small.yaml":                 "--values " + chart + "/values-small.yaml",
	"job.yaml":                   "--set score.enabled=true --show-only templates/score.yaml",
	"small-job.yaml":             "--values " + chart + "/values-small.yaml --set score.enabled=true --show-only templates/score.yaml",
	"loader.yaml":                "--set loader.enabled=true --show-only templates/loader.yaml",
	"mergers.yaml":               "--set mergers.replicas=4 --show-only templates/mergers.yaml",
	"serve.yaml":                 "--set serve.enabled=true --set serve.scale.enabled=true --show-only templates/serve.yaml",
	"keda.yaml":                  "--set keda.enabled=true --show-only templates/keda.yaml",
	"nightly/cronjob.yaml":       "--set nightly.enabled=true --show-only templates/nightly.yaml",
	"nightly/job.yaml":           "--set nightly.enabled=true --set-string nightly.modelDigest=000000000000 --show-only templates/nightly-job.yaml",
	"nightly/argo.yaml":          "--set nightly.enabled=true --set nightly.argo=true --show-only templates/argo.yaml",
	"monitoring/podmonitor.yaml": "--set monitoring.podMonitor=true --show-only templates/monitoring.yaml",
	"monitoring/alerts.yaml":     "--set monitoring.rules=true --show-only templates/monitoring.yaml",
	"monitoring/dashboard.yaml":  "--set monitoring.dashboard=true --show-only templates/monitoring.yaml",
}

// digestFile has the digest of the chart and of the files that were rendered from it.
const digestFile = "rendered.sha256"

// header returns the comment with which a rendered file starts.
func header(args string) string {
	return fmt.Sprintf(`# Rendered from the chart in %s by "make manifests". Change the chart, not this file.
#   helm %s
`, chart, strings.Join(helmArgs(args), " "))
}

// helmArgs returns the arguments of helm for a rendered file.
func helmArgs(args string) []string {
	return append([]string{"template", "shaver", chart, "--namespace", "shaver", "--set", "image.repository=shaver"}, strings.Fields(args)...)
}

// digest returns a digest of the names and the content of all files of the chart, and of all
// rendered files.
func digest(t *testing.T) string {
	t.Helper()
	sum, files := sha256.New(), 0
	add := func(file, content string) { fmt.Fprintf(sum, "%s %d\n%s", file, len(content), content) }
	err := fs.WalkDir(os.DirFS(filepath.Join(root, chart)), ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files++
		add(file, read(t, filepath.Join(root, chart, file)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 10 {
		t.Fatalf("the chart has %d files", files)
	}
	for _, file := range slices.Sorted(maps.Keys(rendered)) {
		add(file, read(t, file))
	}
	return hex.EncodeToString(sum.Sum(nil)) + "\n"
}

// helm returns the path of helm, or "" if this machine does not have it.
func helm() string {
	path := os.Getenv("HELM")
	if path == "" {
		path = "helm"
	}
	path, err := exec.LookPath(path)
	if err != nil {
		return ""
	}
	return path
}

// render returns what helm renders. It fails the test if helm does.
func render(t *testing.T, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), helm(), args...)
	c.Dir = root
	var out, errors strings.Builder
	c.Stdout, c.Stderr = &out, &errors
	if err := c.Run(); err != nil {
		t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, errors.String())
	}
	return out.String()
}

// The files of this folder are what helm renders from the chart. Without helm, only the digest of
// the chart and the files is compared.
func TestRendered(t *testing.T) {
	if *rewrite && helm() == "" {
		t.Fatal("-rewrite needs helm, in the PATH or in the variable HELM")
	}
	for file, args := range rendered {
		if *rewrite {
			write(t, file, header(args)+render(t, helmArgs(args)...))
		} else if helm() != "" && read(t, file) != header(args)+render(t, helmArgs(args)...) {
			t.Errorf("%s differs from what helm renders: run make manifests", file)
		}
	}
	if *rewrite {
		write(t, digestFile, digest(t))
	} else if read(t, digestFile) != digest(t) {
		t.Error("the chart or a rendered file has changed since the last make manifests: run it")
	}
	if helm() == "" {
		t.Log("helm was not found, so only the digest was compared")
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Every YAML file of this folder is rendered.
func TestNothingElse(t *testing.T) {
	for _, folder := range []string{".", "nightly", "monitoring"} {
		entries, err := os.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			file := filepath.ToSlash(filepath.Join(folder, e.Name()))
			if _, ok := rendered[file]; filepath.Ext(file) == ".yaml" && !strings.HasSuffix(file, "_test.yaml") && !ok {
				t.Errorf("%s is not in the list of rendered files", file)
			}
		}
	}
}

// The chart's values lead to other documents, or to an error.
func TestChart(t *testing.T) {
	if helm() == "" {
		t.Skip("helm was not found")
	}
	for args, want := range map[string]string{
		"--set workers.kind=Job":                                                                        "- --leave-after=10m\n",
		"--set workers.kind=Job --set workers.suspend=true":                                             "suspend: true\n  parallelism: 2\n",
		"--set score.enabled=true --set coordinators.suspend=true":                                      "parallelism: 1\n  suspend: true\n",
		"--set nats.servers=1 --set score.enabled=true":                                                 "- --replicas=1\n",
		"--set nats.servers=1":                                                                          "/etc/nats/shaver/server.conf",
		"--set nats.storage.maxFileStore=9GiB":                                                          "max_file_store: 9GiB",
		"--set workers.store=true":                                                                      "- --store=dir:/data\n",
		"--set network.objectStore.enabled=true":                                                        "cidr: 0.0.0.0/0",
		"--set serviceAccounts.annotations.role=arn --set serviceAccounts.coordinator=me":               "name: me\n",
		"--set score.enabled=true --set score.name=tuesday":                                             "name: tuesday\n",
		"--set score.enabled=true --set score.waitInputs=6h":                                            "- --wait-inputs=6h\n",
		"--set nightly.enabled=true --set nightly.name=movies --set nightly.config.days=s3://rows/days": "days: s3://rows/days",
		"--values " + chart + "/values-nightly.yaml --set nightly.name=movies":                          "name: movies\n",
		"--set serve.enabled=true --set serve.scale.enabled=true":                                       "resourceNames: [worker]",
		"--set serve.enabled=true --set serve.nightly=/data/nightly":                                    "- --nightly=/data/nightly\n",
	} {
		if got := render(t, helmArgs(args)...); !strings.Contains(got, want) {
			t.Errorf("%s: no %q in the documents", args, want)
		}
	}
	queued := documents(t, "queued", render(t, helmArgs("--set queue=batch,workers.kind=Job,score.enabled=true,nightly.enabled=true,mergers.replicas=1,coordinators.labels.kueue\\.x-k8s\\.io/priority-class=low")...))
	queued = append(queued, documents(t, "queued night", render(t, helmArgs("--set queue=batch,nightly.enabled=true,nightly.modelDigest=012345abcdef --show-only templates/nightly-job.yaml")...))...)
	jobs := 0
	for _, d := range queued {
		metadata := d.in("metadata")
		if d.text("kind") == "CronJob" {
			metadata = d.in("spec", "jobTemplate", "metadata")
		}
		want := ""
		if strings.HasSuffix(d.text("kind"), "Job") {
			jobs++
			want = "batch"
		}
		if got := metadata.text("labels", "kueue.x-k8s.io/queue-name"); got != want {
			t.Errorf("%s is in the queue %q, expected %q", d.name(), got, want)
		}
		if d.template().text("metadata", "labels", "kueue.x-k8s.io/queue-name") != "" {
			t.Errorf("%s: its pods are in a queue too", d.name())
		}
	}
	if jobs != 4 {
		t.Errorf("%d Jobs are in the queue, expected 4", jobs)
	}
	// helm upgrade --reuse-values with the values of an older chart, which lack those that are new.
	const older = "--set commonLabels=null,queue=null,image.digest=null,nats.image.digest=null,nats.affinity=null,workers.leaveAfter=null,workers.annotations=null" +
		",coordinators.suspend=null,coordinators.labels=null,coordinators.annotations=null"
	if got := documents(t, "older", render(t, helmArgs(older+" --set score.enabled=true,nightly.enabled=true,mergers.replicas=1")...)); len(got) < 10 {
		t.Errorf("%d documents with the values of an older chart", len(got))
	}
	scaled := render(t, helmArgs("--set serve.enabled=true --set serve.scale.enabled=true --show-only templates/workers.yaml")...)
	if strings.Contains(scaled, "replicas:") {
		t.Error("the number of workers is fixed, although serve changes it")
	}
	if !strings.Contains(render(t, helmArgs("--set mergers.replicas=4 --set score.enabled=true --set score.args={--ranges=4} --show-only templates/score.yaml")...), "--ranges=4") {
		t.Error("a job whose ranges have their mergers lacks --ranges")
	}
	elsewhere := render(t, append(helmArgs("--set keda.enabled=true --show-only templates/keda.yaml"), "--namespace", "batch")...)
	if strings.Contains(elsewhere, `namespace=\"shaver\"`) || strings.Count(elsewhere, `namespace=\"batch\"`) != 2 {
		t.Errorf("the query of KEDA is not about the namespace of the release:\n%s", elsewhere)
	}
	other := render(t, helmArgs("--values "+chart+"/values-nightly.yaml")...)
	if strings.Count(other, "\nkind: ") != 2 {
		t.Errorf("values-nightly.yaml renders more than a CronJob and its ConfigMap:\n%s", other)
	}
	for bad, want := range map[string]string{
		"workers.replica=3":                      "at '/workers': additional properties 'replica' not allowed",
		"workers.resources.limits.gpu=1":         "at '/workers/resources/limits': additional properties 'gpu' not allowed",
		"workers.kind=Pod":                       "at '/workers/kind'",
		"nats.servers=2":                         "at '/nats/servers'",
		"nats.url=nats:4222":                     "at '/nats/url'",
		"coordinators.resources.limits.cpu=500m": "at '/coordinators/resources/limits/cpu'",
		"nightly.modelDigest=XYZ":                "at '/nightly/modelDigest'",
		"score.waitInputs=soon":                  "at '/score/waitInputs'",
		"serve.enabled=true,serve.scale.enabled=true,keda.enabled=true": "serve.scale.enabled needs",
		"keda.enabled=true,workers.kind=Job":                            "keda.enabled needs workers.kind Deployment",
		"score.enabled=true,score.args={--ranges=4}":                    "score.args has --ranges=4, which needs mergers.replicas of at least 4, found 0",
		"score.enabled=true,score.args={--ranges=4},mergers.replicas=3": "score.args has --ranges=4, which needs mergers.replicas of at least 4, found 3",
		"image.repository=":     "image.repository is not set",
		"image.digest=sha256:0": "at '/image/digest'",
		"commonLabels.size=1":   "at '/commonLabels/size'",
	} {
		c := exec.CommandContext(t.Context(), helm(), append(helmArgs(""), "--set", bad)...)
		c.Dir = root
		if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v: %s, expected an error with %q", bad, err, out, want)
		}
	}
}

// The files by which the chart configures the servers are those of docker-compose.yml.
func TestServerFiles(t *testing.T) {
	files, err := os.ReadDir(natsFolder)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		if strings.HasSuffix(f.Name(), ".conf") {
			names = append(names, f.Name())
		}
	}
	if want := []string{"cluster.conf", "roles.conf", "server.conf"}; !slices.Equal(names, want) {
		t.Errorf("files %v, expected %v", names, want)
	}
	configured, text := false, read(t, "shaver.yaml")
	for _, name := range names {
		for line := range strings.Lines(read(t, filepath.Join(natsFolder, name))) {
			if line = strings.TrimSpace(line); line != "" && !strings.Contains(text, line) {
				t.Errorf("shaver.yaml lacks the line %q of %s", line, name)
			}
			configured = true
		}
	}
	if !configured {
		t.Error("the files are empty")
	}
}
