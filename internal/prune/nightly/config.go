package nightly

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
)

// Config is the content of a configuration file. Paths are absolute or relative to the
// working directory.
type Config struct {
	Path   string // of the file
	Model  string // the newest checkpoint
	Days   string // folder whose subfolders are datasets, one for each day, in the order of their names
	Window int    // number of days that are scored, at least 1
	Out    string // folder for the results
	State  string // folder in which scoring keeps what it needs from night to night
	Keep   int    // number of nights whose folders stay, at least 1
	// WaitInputs is how long to wait for a model or a day that is late.
	WaitInputs time.Duration

	// Source says from which table days are imported, and how; nil = days are there.
	Source Settings

	Score, Prune, Check Settings
	Calibrate           bool
	ONNX                string // form of the pruned .onnx file, DenseONNX or CompactONNX; "" = no such file
	Delta               bool   // write what an embedding store has to change
	// Reuse is by how much more the loss may rise by pruning than in the night that was scored last, for a night to keep
	// the choice of entries; nil = every night is scored.
	Reuse *float64

	Textfile string // Prometheus textfile; "" = none
	Address  string // address that serves metrics during a night; "" = none
	Tracking Tracking
}

// Tracking names the servers to which nights are reported.
type Tracking struct {
	MLflow      string // URL of the server; "" = none
	Experiment  string // of MLflow, and job of OpenLineage
	OpenLineage string // URL that takes the events; "" = none
	Namespace   string // of the job of OpenLineage
}

// Settings are the settings of a step that a file gives, in the order of the file.
type Settings []Setting

// Setting is a value in a configuration file. Value is a list if the file has a list.
type Setting struct {
	Name, Value string
	Line        int
}

// Key declares a setting that a step accepts.
type Key struct {
	Name string
	Kind Kind
	// Local settings say where a step runs. They do not change its result.
	Local bool
}

// Kind is the form of a setting's value.
type Kind int

// The kinds of settings.
const (
	Text Kind = iota
	Path      // a path relative to the configuration file
	Number
	Whole // a whole number, at least 0
	Truth // true or false
	List  // texts without commas
)

// Keys are the settings of the steps.
type Keys struct{ Source, Score, Prune, Check []Key }

// Defaults of the settings that a file may leave out.
const (
	DefaultWindow = 7
	DefaultKeep   = 7
)

// The forms of a pruned .onnx file.
const (
	DenseONNX   = "dense"
	CompactONNX = "compact"
)

// most is the size of the largest configuration file, in MiB.
const most = 1

// Read reads the configuration file at path. The file must have the keys model, days and out.
// A key that neither this package nor keys declares is bad input.
func Read(path string, keys Keys) (*Config, error) {
	text, err := files.Small(path, most, "a YAML file")
	if err != nil {
		return nil, err
	}
	return parse(path, text, keys)
}

// parse returns the configuration with the given text.
func parse(path string, text []byte, keys Keys) (*Config, error) {
	c := &Config{Path: path, Window: DefaultWindow, Keep: DefaultKeep, Tracking: Tracking{Experiment: "shaver", Namespace: "shaver"}}
	var document yaml.Node
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	if err := decoder.Decode(&document); err != nil && !errors.Is(err, io.EOF) {
		return nil, fault.Inputf("%s is not YAML: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fault.Inputf("%s has more than one YAML document: expected one", path)
	}
	p := &parser{path: path}
	if len(document.Content) == 1 {
		p.section("", document.Content[0], []entry{
			{"model", p.file(&c.Model)}, {"days", p.file(&c.Days)}, {"window", p.atLeastOne(&c.Window)}, {"out", p.file(&c.Out)}, {"state", p.file(&c.State)},
			{"keep", p.atLeastOne(&c.Keep)}, {"wait-inputs", p.duration(&c.WaitInputs)}, {"source", p.settings(&c.Source, keys.Source)}, {"score", p.settings(&c.Score, keys.Score)}, {"prune", p.settings(&c.Prune, keys.Prune)}, {"calibrate", p.truth(&c.Calibrate)}, {"onnx", p.onnx(&c.ONNX)}, {"delta", p.truth(&c.Delta)}, {"reuse", p.amount(&c.Reuse)},
			{"check", p.settings(&c.Check, keys.Check)}, {"metrics", p.metrics(c)}, {"tracking", p.tracking(&c.Tracking)},
		})
	}
	for _, required := range []struct{ name, value string }{{"model", c.Model}, {"days", c.Days}, {"out", c.Out}} {
		if p.err == nil && required.value == "" {
			p.err = fault.Inputf("%s: the key %s is missing", path, required.name)
		}
	}
	if p.err != nil {
		return nil, p.err
	}
	if c.State == "" {
		c.State = join(c.Out, "state")
	}
	return c, c.checkFolders()
}

// Files returns the files that nights write directly into the folder for the results.
func (c *Config) Files() []string {
	var paths []string
	for _, name := range []string{currentLink, currentFile, historyFile, historyPage, lockFile} {
		paths = append(paths, join(c.Out, name))
	}
	return paths
}

// checkFolders returns bad input if folders lie in each other so that the results of a night
// would be taken for a day, or the state for a night, or if the results do not have a folder of their
// own.
func (c *Config) checkFolders() error {
	nights := join(c.Out, nightsFolder)
	for _, input := range []struct{ name, path string }{{"model", c.Model}, {"the configuration", c.Path}} {
		if inside(input.path, c.Out) {
			return fault.Inputf("%s: out %s is the folder of %s %s: expected a folder that only has results", c.Path, c.Out, input.name, input.path)
		}
	}
	for _, pair := range []struct{ name, path, other, in string }{
		{"out", c.Out, "days", c.Days}, {"state", c.State, "days", c.Days}, {"days", c.Days, "the folder of the nights", nights},
		{"state", c.State, "the folder of the nights", nights}, {"out", c.Out, "state", c.State},
		{"metrics.textfile", c.Textfile, "days", c.Days}, {"metrics.textfile", c.Textfile, "state", c.State}, {"metrics.textfile", c.Textfile, "the folder of the nights", nights},
	} {
		if pair.path != "" && inside(pair.path, pair.in) {
			return fault.Inputf("%s: %s %s is in %s %s: expected another place", c.Path, pair.name, pair.path, pair.other, pair.in)
		}
	}
	return nil
}

// isURL reports whether a path is the URL of a place in an object store. Commands replace such
// paths before a night runs.
func isURL(path string) bool { return strings.Contains(path, "://") }

// join returns the path or the URL of a name in a folder.
func join(folder, name string) string {
	if !isURL(folder) {
		return filepath.Join(folder, name)
	}
	place, settings, has := strings.Cut(folder, "?")
	place = strings.TrimRight(place, "/") + "/" + name
	if has {
		place += "?" + settings
	}
	return place
}

// inside reports whether path is folder or lies in it.
func inside(path, folder string) bool {
	if isURL(path) || isURL(folder) {
		path, _, _ = strings.Cut(path, "?")
		folder, _, _ = strings.Cut(folder, "?")
		return strings.HasPrefix(strings.TrimRight(path, "/")+"/", strings.TrimRight(folder, "/")+"/")
	}
	from, err := filepath.Rel(resolved(folder), resolved(path))
	return err == nil && filepath.IsLocal(from)
}

// resolved returns path in absolute form. It follows the symbolic links in the part of the
// path that exists.
func resolved(path string) string {
	path, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	for end, rest := path, ""; ; end, rest = filepath.Dir(end), filepath.Join(filepath.Base(end), rest) {
		if real, err := filepath.EvalSymlinks(end); err == nil {
			return filepath.Join(real, rest)
		}
		if filepath.Dir(end) == end {
			return path
		}
	}
}

// parser reads the values of a YAML document. It keeps its first error.
type parser struct {
	path string
	err  error
}

// entry is a key of a section, and what reads its value. name is the key with its section.
type entry struct {
	key  string
	read func(name string, value *yaml.Node)
}

func (p *parser) fail(at *yaml.Node, format string, args ...any) {
	if p.err == nil {
		p.err = fault.Inputf("%s:%d: %s", p.path, at.Line, fmt.Sprintf(format, args...))
	}
}

// section reads the values of a mapping. name is its key, or "" for the document.
func (p *parser) section(name string, node *yaml.Node, entries []entry) {
	if node.Kind == yaml.ScalarNode && node.Tag == "!!null" {
		return // nothing but the key
	}
	if node.Kind != yaml.MappingNode {
		what := "the file"
		if name != "" {
			what = name
		}
		p.fail(node, "%s: expected keys with values", what)
		return
	}
	var seen []string
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		full := strings.TrimPrefix(name+"."+key.Value, ".")
		at := slices.IndexFunc(entries, func(e entry) bool { return e.key == key.Value })
		switch {
		case key.Kind != yaml.ScalarNode || at < 0:
			var known []string
			for _, e := range entries {
				known = append(known, e.key)
			}
			p.fail(key, "%s: unknown key; expected one of %s", full, strings.Join(known, ", "))
		case slices.Contains(seen, key.Value):
			p.fail(key, "%s: the key is there twice", full)
		default:
			entries[at].read(full, value)
		}
		seen = append(seen, key.Value)
	}
}

// scalar returns the text of a single value that is not empty.
func (p *parser) scalar(name string, value *yaml.Node, expected string) string {
	if value.Kind != yaml.ScalarNode || value.Value == "" || value.Tag == "!!null" {
		p.fail(value, "%s: expected %s", name, expected)
		return ""
	}
	return value.Value
}

// from returns path, relative to the configuration file.
func (p *parser) from(path string) string {
	if path == "" || filepath.IsAbs(path) || isURL(path) {
		return path
	}
	return filepath.Join(filepath.Dir(p.path), path)
}

func (p *parser) file(to *string) func(string, *yaml.Node) {
	return func(name string, value *yaml.Node) { *to = p.from(p.scalar(name, value, "a path")) }
}

// parsed returns what reads a value by parse, which reports whether the text is as expected.
func parsed[T any](p *parser, to *T, expected string, parse func(text string) (T, bool)) func(string, *yaml.Node) {
	return func(name string, value *yaml.Node) {
		text := p.scalar(name, value, expected)
		v, ok := parse(text)
		if !ok {
			p.fail(value, "%s %q: expected %s", name, text, expected)
		}
		*to = v
	}
}

func (p *parser) atLeastOne(to *int) func(string, *yaml.Node) {
	return parsed(p, to, "a whole number, at least 1", func(text string) (int, bool) {
		n, err := strconv.Atoi(text)
		return n, err == nil && n >= 1
	})
}

func (p *parser) amount(to **float64) func(string, *yaml.Node) {
	return parsed(p, to, "a number of at least 0, in the unit of the loss", func(text string) (*float64, bool) {
		v, err := strconv.ParseFloat(text, 64)
		return &v, err == nil && v >= 0 && !math.IsInf(v, 0)
	})
}

func (p *parser) duration(to *time.Duration) func(string, *yaml.Node) {
	return parsed(p, to, "a duration such as 30m or 6h", func(text string) (time.Duration, bool) {
		d, err := time.ParseDuration(text)
		return d, err == nil && d >= 0
	})
}

func (p *parser) truth(to *bool) func(string, *yaml.Node) {
	return parsed(p, to, "true or false", func(text string) (bool, bool) { return text == "true", text == "true" || text == "false" })
}

func (p *parser) onnx(to *string) func(string, *yaml.Node) {
	return parsed(p, to, DenseONNX+" or "+CompactONNX, func(text string) (string, bool) { return text, text == DenseONNX || text == CompactONNX })
}

func (p *parser) metrics(c *Config) func(string, *yaml.Node) {
	return func(name string, value *yaml.Node) {
		p.section(name, value, []entry{
			{"textfile", p.file(&c.Textfile)},
			{"address", func(name string, value *yaml.Node) { c.Address = p.scalar(name, value, "HOST:PORT or :PORT") }},
		})
	}
}

func (p *parser) tracking(t *Tracking) func(string, *yaml.Node) {
	return func(name string, value *yaml.Node) {
		text := func(to *string, expected string) func(string, *yaml.Node) {
			return func(name string, value *yaml.Node) { *to = p.scalar(name, value, expected) }
		}
		p.section(name, value, []entry{
			{"mlflow", text(&t.MLflow, "the URL of a server")}, {"experiment", text(&t.Experiment, "a text")},
			{"openlineage", text(&t.OpenLineage, "the URL of a receiver")}, {"namespace", text(&t.Namespace, "a text")},
		})
	}
}

// settings reads the section of a step.
func (p *parser) settings(to *Settings, keys []Key) func(string, *yaml.Node) {
	return func(name string, value *yaml.Node) {
		var entries []entry
		for _, key := range keys {
			entries = append(entries, entry{key.Name, func(full string, value *yaml.Node) {
				*to = append(*to, Setting{key.Name, p.value(full, value, key.Kind), value.Line})
			}})
		}
		p.section(name, value, entries)
	}
}

// value returns the text of a value of the given kind.
func (p *parser) value(name string, value *yaml.Node, kind Kind) string {
	if kind == List && value.Kind == yaml.SequenceNode {
		var list []string
		for _, item := range value.Content {
			text := p.scalar(name, item, "texts")
			if strings.Contains(text, ",") {
				p.fail(item, "%s %q: expected a text without a comma", name, text)
			}
			list = append(list, text)
		}
		if len(list) == 0 {
			p.fail(value, "%s: expected a list that is not empty", name)
		}
		return strings.Join(list, ",")
	}
	expected := [...]string{Text: "a text", Path: "a path", Number: "a number", Whole: "a whole number, at least 0", Truth: "true or false", List: "a list"}[kind]
	text := p.scalar(name, value, expected)
	good := true
	switch kind {
	case Number:
		number, err := strconv.ParseFloat(text, 64)
		good = err == nil && !math.IsInf(number, 0) && !math.IsNaN(number)
	case Whole:
		_, err := strconv.ParseUint(text, 10, 64)
		good = err == nil
	case Truth:
		good = text == "true" || text == "false"
	case Path:
		text = p.from(text)
	}
	if !good {
		p.fail(value, "%s %q: expected %s", name, text, expected)
	}
	return text
}

// Errorf returns bad input about a setting of the named section. err says what is wrong.
func (c *Config) Errorf(section string, s Setting, err error) error {
	return fault.Inputf("%s:%d: %s.%s %q: %w", c.Path, s.Line, section, s.Name, s.Value, err)
}

// Get returns the value of a setting, or "" if the file does not have it.
func (s Settings) Get(name string) string {
	for _, setting := range s {
		if setting.Name == name {
			return setting.Value
		}
	}
	return ""
}

// digest returns a digest of everything in c that changes the results of a night, except
// the model and the days.
func (c *Config) digest(keys Keys) string {
	sum := sha256.New()
	section := func(name string, settings Settings, keys []Key) {
		var lines []string
		for _, s := range settings {
			local := slices.ContainsFunc(keys, func(k Key) bool { return k.Name == s.Name && k.Local })
			if !local {
				lines = append(lines, fmt.Sprintf("%s.%s=%q\n", name, s.Name, s.Value))
			}
		}
		slices.Sort(lines) // the order of the file has no effect
		for _, line := range lines {
			io.WriteString(sum, line)
		}
	}
	section("score", c.Score, keys.Score)
	section("prune", c.Prune, keys.Prune)
	section("check", c.Check, keys.Check)
	fmt.Fprintf(sum, "calibrate=%t\nwindow=%d\n", c.Calibrate, c.Window)
	if c.ONNX != "" {
		fmt.Fprintf(sum, "onnx=%s\n", c.ONNX)
	}
	if c.Delta {
		io.WriteString(sum, "delta\n")
	}
	if c.Reuse != nil {
		fmt.Fprintf(sum, "reuse=%g\n", *c.Reuse)
	}
	return hex.EncodeToString(sum.Sum(nil))
}
