// Command mutants measures whether the tests notice wrong code. It changes one place at a time, such as a < into a <=,
// and runs the tests of the package, then those of the packages of the same area that import it, both with -short, and then those of
// the package without. All run with SHAVER_LONG=1. A mutant that fails no test has survived: either a test is missing, or the change has no effect, and
// accepted.txt says why.
//
//	go run ./mutants [flags] internal/value internal/jobs
//
// Each argument is an area, of which -n mutants are drawn. The draw depends only on -seed and on the code. The working tree does
// not change, because the Go command reads changed files from an overlay. A mutant that does not compile is replaced by the next one.
package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The outcomes of a mutant.
const (
	killed   = "killed"
	survived = "survived"
	invalid  = "invalid" // it does not compile
)

// result is a mutant with its outcome, as a line of the log.
type result struct {
	Seed    uint64 `json:"seed"`
	Area    string `json:"area"`
	Package string `json:"package"`
	Mutant  string `json:"mutant"` // see mutant.String
	Line    int    `json:"line"`
	Outcome string `json:"outcome"`
}

// tool runs mutants.
type tool struct {
	seed     uint64
	timeout  time.Duration // of the tests of one package
	only     *regexp.Regexp
	log      *os.File   // nil = none
	mutex    sync.Mutex // guards log and known
	known    map[string]result
	packages []*listed
}

// listed is a package as "go list" describes it.
type listed struct {
	ImportPath, Dir                    string
	GoFiles, TestGoFiles, XTestGoFiles []string
	Imports, TestImports, XTestImports []string
}

func (p *listed) tested() bool { return len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 }

func main() {
	t := &tool{known: map[string]result{}}
	flag.Uint64Var(&t.seed, "seed", 1, "seed of the draw")
	n := flag.Int("n", 100, "mutants of each area")
	together := flag.Int("together", runtime.NumCPU(), "mutants that run at the same time")
	flag.DurationVar(&t.timeout, "timeout", 4*time.Minute, "time for the tests of one package; a mutant that takes longer is killed")
	only := flag.String("only", "", "regular expression that the file, the function or the change must match, such as \"mask/previous.go Previous\\.\"")
	log := flag.String("log", "", "file to which outcomes are appended; those that it has are not computed again")
	page := flag.String("page", "", "Markdown file for the scores and the survivors")
	least := flag.Float64("least", 0, "least score of an area; a lower one is a failure")
	flag.Parse()
	var err error
	if t.only, err = regexp.Compile(*only); err != nil {
		fmt.Fprintln(os.Stderr, "mutants: -only:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := t.run(ctx, flag.Args(), *n, *together, *log, *page, *least); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func (t *tool) run(ctx context.Context, areas []string, n, together int, log, page string, least float64) error {
	if len(areas) == 0 {
		return errors.New("no area: expected folders such as internal/value")
	}
	if log != "" {
		if err := t.open(log); err != nil {
			return err
		}
		defer t.log.Close()
	}
	var err error
	if t.packages, err = list(ctx); err != nil {
		return err
	}
	var all []result
	for _, area := range areas {
		results, err := t.area(ctx, filepath.ToSlash(filepath.Clean(area)), n, together)
		if err != nil {
			return err
		}
		all = append(all, results...)
	}
	s, err := summarise(all, accepted)
	if err != nil {
		return err
	}
	text := s.markdown()
	fmt.Print(text)
	if page != "" {
		if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, a := range s.areas {
		if a.score() < least {
			return fmt.Errorf("%s: the tests kill %.0f%% of the mutants, expected at least %.0f%%", a.name, 100*a.score(), 100*least)
		}
	}
	return nil
}

// open reads the log, and lets outcomes be appended to it.
func (t *tool) open(path string) (err error) {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for i, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		var r result
		if line == "" {
			continue
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return fmt.Errorf("%s: line %d: %w", path, i+1, err)
		}
		t.known[r.Mutant] = r
	}
	t.log, err = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	return err
}

// list returns the packages of the module.
func list(ctx context.Context) (all []*listed, err error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-json=ImportPath,Dir,GoFiles,TestGoFiles,XTestGoFiles,Imports,TestImports,XTestImports", "./...").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); decoder.More(); {
		p := new(listed)
		if err := decoder.Decode(p); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// area draws mutants of the packages in a folder, and returns the outcomes of n of them that compile.
func (t *tool) area(ctx context.Context, area string, n, together int) ([]result, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	var drawn []mutant
	for _, p := range t.packages {
		folder, err := filepath.Rel(root, p.Dir)
		if err != nil {
			return nil, err
		}
		if folder = filepath.ToSlash(folder); folder != area && !strings.HasPrefix(folder, area+"/") || strings.HasSuffix(folder, "test") {
			continue
		}
		for _, name := range p.GoFiles {
			of, err := mutantsOf(folder+"/"+name, p)
			if err != nil {
				return nil, err
			}
			drawn = append(drawn, slices.DeleteFunc(of, func(m mutant) bool { return !t.only.MatchString(m.String()) })...)
		}
	}
	if len(drawn) == 0 {
		return nil, fmt.Errorf("%s: no package of this module has such code there", area)
	}
	rand.New(rand.NewPCG(t.seed, 0)).Shuffle(len(drawn), func(i, j int) { drawn[i], drawn[j] = drawn[j], drawn[i] })

	// The first n of the draw that compile count, in whatever order they end.
	outcomes := make([]result, len(drawn))
	var next, compiled int
	var mutex sync.Mutex
	var group sync.WaitGroup
	errs := make(chan error, together)
	for range together {
		group.Go(func() {
			for {
				mutex.Lock()
				i := next
				if compiled >= n || i == len(drawn) || ctx.Err() != nil {
					mutex.Unlock()
					return
				}
				next, compiled = next+1, compiled+1
				mutex.Unlock()
				r, err := t.outcome(ctx, area, &drawn[i])
				if err != nil {
					errs <- err
					return
				}
				outcomes[i] = r
				if r.Outcome == invalid {
					mutex.Lock()
					compiled--
					mutex.Unlock()
				}
			}
		})
	}
	group.Wait()
	select {
	case err := <-errs:
		return nil, err
	default:
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var results []result
	for _, r := range outcomes[:next] {
		if r.Outcome != invalid {
			results = append(results, r)
		}
	}
	return results, nil
}

// outcome returns what becomes of a mutant.
func (t *tool) outcome(ctx context.Context, area string, m *mutant) (result, error) {
	t.mutex.Lock()
	r, ok := t.known[m.String()]
	t.mutex.Unlock()
	if ok {
		return r, nil
	}
	start := time.Now()
	r = result{Seed: t.seed, Area: area, Package: m.pkg.ImportPath, Mutant: m.String(), Line: m.line}
	var err error
	if r.Outcome, err = t.try(ctx, area, m); err != nil {
		return r, err
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.known[r.Mutant] = r
	fmt.Fprintf(os.Stderr, "%-8s %5.1f s  %s:%d\n", r.Outcome, time.Since(start).Seconds(), r.Mutant, r.Line)
	if t.log != nil {
		line, err := json.Marshal(&r)
		if err != nil {
			return r, err
		}
		if _, err := t.log.Write(append(line, '\n')); err != nil {
			return r, err
		}
	}
	return r, nil
}

// try runs the tests of the mutant's package, and then those of each package of the area that imports it.
func (t *tool) try(ctx context.Context, area string, m *mutant) (string, error) {
	folder, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(folder)
	changed, overlay := filepath.Join(folder, "changed.go"), filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(changed, m.source(), 0o644); err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(m.pkg.Dir, filepath.Base(m.file)): changed}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(overlay, replace, 0o644); err != nil {
		return "", err
	}
	tests := t.tests(area, m.pkg)
	if len(tests) == 0 {
		if err := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, m.pkg.ImportPath).Run(); err != nil {
			return invalid, ctx.Err()
		}
	}
	for _, p := range tests {
		if outcome, err := t.test(ctx, overlay, p, true); err != nil || outcome != survived {
			return outcome, err
		}
	}
	if m.pkg.tested() {
		return t.test(ctx, overlay, m.pkg, false)
	}
	return survived, nil
}

// tests returns the packages whose tests a mutant of p runs.
func (t *tool) tests(area string, p *listed) (all []*listed) {
	if p.tested() {
		all = append(all, p)
	}
	for _, other := range t.packages {
		if other == p || !other.tested() || !strings.Contains(other.ImportPath+"/", "/"+area+"/") {
			continue
		}
		for _, imports := range [][]string{other.Imports, other.TestImports, other.XTestImports} {
			for _, path := range imports {
				if path == p.ImportPath && (len(all) == 0 || all[len(all)-1] != other) {
					all = append(all, other)
				}
			}
		}
	}
	return all
}

// test runs the tests of a package with the overlay. A mutant may allocate without end, so the memory is limited.
func (t *tool) test(ctx context.Context, overlay string, p *listed, short bool) (string, error) {
	args := []string{"test", "-overlay", overlay, "-short=" + strconv.FormatBool(short), "-failfast", "-vet=off", "-timeout", t.timeout.String(), p.ImportPath}
	command := exec.CommandContext(ctx, "go", args...)
	if runtime.GOOS != "windows" {
		command = exec.CommandContext(ctx, "sh", append([]string{"-c", `ulimit -v 12000000; exec go "$@"`, "go"}, args...)...)
	}
	command.Env = append(os.Environ(), "SHAVER_LONG=1")
	start := time.Now()
	out, err := command.CombinedOutput()
	forget(filepath.Join(p.Dir, "testdata", "rapid"), start)
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err == nil:
		return survived, nil
	case !errors.As(err, &exit):
		return "", err
	}
	for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "FAIL\t") && strings.HasSuffix(lines.Text(), "[build failed]") {
			return invalid, nil
		}
	}
	return killed, nil
}

// forget removes what package rapid has recorded in a folder since start. It would replay the failures of a mutant in later runs.
func forget(folder string, start time.Time) {
	files, _ := filepath.Glob(filepath.Join(folder, "*", "*.fail"))
	for _, file := range files {
		if at, err := os.Stat(file); err == nil && at.ModTime().After(start.Add(-time.Second)) {
			_ = os.Remove(file)
			_ = os.Remove(filepath.Dir(file)) // if it is empty
		}
	}
	_ = os.Remove(folder)
}

//go:embed accepted.txt
var accepted string
