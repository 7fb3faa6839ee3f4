package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"shaver/internal/base/long"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/planted"
	"shaver/internal/prune/sweep"
)

// readmePages are README.md and the sections of the guide that continue it. A section
// ends at the next heading.
var readmePages = []struct{ file, section string }{
	{"README.md", ""},
	{"docs/guide/models.md", "## ONNX"},
	{"docs/guide/cluster.md", "## On one machine"},
}

// readmeCommands returns the indented lines of readmePages, which are commands, in order.
func readmeCommands(t *testing.T) (commands []string) {
	t.Helper()
	for _, page := range readmePages {
		text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(page.file)))
		if err != nil {
			t.Fatal(err)
		}
		before, fenced, inside := len(commands), false, page.section == ""
		for line := range strings.Lines(string(text)) {
			line = strings.TrimRight(line, "\n")
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				fenced = !fenced
			}
			if page.section != "" && !fenced && strings.HasPrefix(line, "#") {
				inside = line == page.section
			}
			if command, ok := strings.CutPrefix(line, "    "); ok && inside && !fenced {
				commands = append(commands, strings.TrimSpace(command))
			}
		}
		if len(commands) == before {
			t.Errorf("%s has no commands in %q", page.file, page.section)
		}
	}
	return commands
}

// The commands of readmePages work, in their order, with a planted model and its rows under the
// names that README uses, and random rows for a small model in ONNX. No command warns. The pruned model has the test AUC of the sweep, and
// the cluster computes the bytes of the local job.
//
// The commands run in a shell. "go run" and "go install" run in this repository, the others
// in a folder with the flights. The NATS server is not started from its source, because it
// would run without end and listen on a fixed port; a server in this process takes its place.
// Without SHAVER_LONG=2, the test and quickstart generate few rows. Nothing else of a command changes.
func TestReadme(t *testing.T) {
	long.Test(t)
	t.Parallel()
	all := long.Hours()
	for _, program := range []string{"sh", "go"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	dir, bin := t.TempDir(), t.TempDir()
	readmeFiles(t, dir, all)
	repository, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	const address, server = "nats://127.0.0.1:4222", "go run github.com/nats-io/nats-server/v2 "
	readme := readmeShell{t: t, environment: append(os.Environ(), "GOBIN="+bin, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))}
	seen := map[string]bool{}
	for _, command := range readmeCommands(t) {
		words := strings.Fields(command)
		seen[words[0]] = true
		readme.dir = dir
		if words[0] == "go" {
			readme.dir = repository
		}
		if strings.HasPrefix(command, server) {
			seen["server"] = true
			continue
		}
		if strings.Contains(command, address) {
			if readme.nats == "" {
				readme.nats = openServer(t)
			}
			command = strings.ReplaceAll(command, address, readme.nats)
		}
		if strings.HasPrefix(command, "go test") { // this test would run itself
			continue
		}
		if !all && strings.HasSuffix(command, " quickstart") {
			command += " --rows 5000"
		}
		readme.run(command)
	}
	readme.end()
	for _, word := range []string{"go", "shaver", "worker", "coordinator", "server"} {
		if !seen[word] {
			t.Errorf("the pages have no command of %s", word)
		}
	}

	var d sweep.Document
	readJSON(t, filepath.Join(dir, "sweep.json"), &d)
	at := slices.IndexFunc(d.Points, func(p sweep.Point) bool { return p.Sparsity == .9 })
	if at < 0 || d.Points[at].Method != "path" {
		t.Fatalf("sweep.json has no path at sparsity .9: %+v", d.Points)
	}
	var measured evaluation
	shaver(t, &measured, "evaluate", "--model", filepath.Join(dir, "pruned.safetensors"), "--dataset", filepath.Join(dir, "data"))
	// Calibrated weights are rounded to float32.
	if point := &d.Points[at]; math.Abs(*measured.AUC-*point.AUC) > 1e-6 || math.Abs(*measured.LogLoss-*point.CalibratedLogLoss) > 1e-6 {
		t.Errorf("the pruned model has AUC %v and LogLoss %v, the sweep %v and calibrated %v", *measured.AUC, *measured.LogLoss, *point.AUC, *point.CalibratedLogLoss)
	}
	wantSameFile(t, filepath.Join(dir, "cluster.arrow"), filepath.Join(dir, "order.arrow"))
}

// readmeShell runs commands as a user types them.
type readmeShell struct {
	t           *testing.T
	dir, nats   string
	environment []string
	background  []*exec.Cmd
}

// run runs a command. It fails the test if the command fails or warns. A command that ends
// with & runs until end.
func (s *readmeShell) run(command string) {
	s.t.Helper()
	command, background := strings.CutSuffix(command, " &")
	c := exec.Command("sh", "-c", command)
	if background {
		c = exec.Command("sh", "-c", "exec "+command)
	}
	var stderr, stdout bytes.Buffer
	c.Dir, c.Env, c.Stdout, c.Stderr = s.dir, s.environment, &stdout, &stderr
	begun := time.Now()
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	if background {
		s.background = append(s.background, c)
		s.t.Cleanup(func() { _ = c.Process.Kill() }) // fails if the process has ended
		return
	}
	err := c.Wait()
	s.t.Logf("%.1f s: %s", time.Since(begun).Seconds(), command)
	if err != nil {
		s.t.Fatalf("%s: %v\n%s%s", command, err, &stdout, &stderr)
	}
	s.wantNoWarning(command, stderr.String())
}

// end ends the commands in the background.
func (s *readmeShell) end() {
	s.t.Helper()
	for _, c := range s.background {
		if err := c.Process.Signal(syscall.SIGTERM); err != nil {
			s.t.Errorf("%s: %v", c, err)
		}
		_ = c.Wait() // a worker that is asked to leave ends with an exit code of its own
		s.wantNoWarning(c.String(), c.Stderr.(*bytes.Buffer).String())
	}
}

func (s *readmeShell) wantNoWarning(command, stderr string) {
	s.t.Helper()
	for line := range strings.Lines(stderr) {
		untrained := strings.Contains(command, "model.onnx") && strings.Contains(line, "predicts worse than a constant") // the test made it without training
		if strings.Contains(line, "WARN") && !untrained || strings.Contains(line, "ERROR") {
			s.t.Errorf("%s: %s", command, line)
		}
	}
}

// openServer starts a NATS server with JetStream and returns its address.
func openServer(t *testing.T) string {
	t.Helper()
	ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() {
		ns.Shutdown()
		ns.WaitForShutdown()
	})
	if !ns.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not become ready")
	}
	return "nats://" + ns.Addr().String()
}

// readmeFiles puts a planted model and its rows into dir under the names that README uses, and a model in
// ONNX with rows.
func readmeFiles(t *testing.T, dir string, all bool) {
	t.Helper()
	write := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p, err := planted.New(planted.Default)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoint.WriteDense(filepath.Join(dir, "model.pth"), p.Checkpoint); err != nil {
		t.Fatal(err)
	}
	part := 8000 // so that the train rows are enough for a path
	if all {
		part = 50_000
	}
	var rows bytes.Buffer
	if err := p.WriteCSV(&rows, 7*part); err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(rows.Bytes(), []byte("\n"))
	for name, of := range map[string][2]int{"train": {0, 4}, "val": {4, 5}, "test": {5, 6}, "fresh": {6, 7}} {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, err := w.Write(slices.Concat(lines[0], bytes.Join(lines[1+part*of[0]:1+part*of[1]], nil)))
		if err := errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		write(name+".csv.gz", packed.Bytes())
	}
	export, err := os.ReadFile(filepath.Join("..", "..", "testdata", "onnx", "fuxictr-deepfm-numeric.dynamo.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	write("model.onnx", export)
	write("log.csv", exportLog())
}

// exportLog returns random rows for fuxictr-deepfm-numeric. The columns of the dense inputs
// are not the last ones.
func exportLog() []byte {
	r := rand.New(rand.NewPCG(1, 2))
	log := bytes.NewBufferString("label,age,user,item,price,category,city,device\n")
	for range 40_000 {
		fmt.Fprintf(log, "%d,%d,%d,%d,%.2f,%d,%d,%d\n", r.IntN(2), 18+r.IntN(60), r.IntN(7), r.IntN(11), 100*r.Float64(), r.IntN(5), r.IntN(4), r.IntN(3))
	}
	return log.Bytes()
}
