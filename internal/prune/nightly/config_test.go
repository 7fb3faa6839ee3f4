package nightly

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"shaver/internal/base/fault"
)

// A configuration has the values of its file, and paths relative to the file.
func TestConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nightly.yaml")
	absolute := filepath.Join(t.TempDir(), "days")
	if err := os.WriteFile(path, []byte(`# a comment
model: checkpoints/new.pth
days: '`+absolute+`'
window: 3
out: results
score:
  sample: 0.05
  splits: [train, val]
  store: rows
prune: {sparsity: 0.9}
calibrate: true
check:
wait-inputs: 1h30m
metrics:
  textfile: shaver.prom
  address: :9090
tracking: {mlflow: "http://m", namespace: team}
`), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := Read(path, keys)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(path)
	want := &Config{
		Path: path, Model: filepath.Join(dir, "checkpoints", "new.pth"), Days: absolute, Window: 3, Out: filepath.Join(dir, "results"), State: filepath.Join(dir, "results", "state"), Keep: DefaultKeep,
		Score: Settings{{"sample", "0.05", 7}, {"splits", "train,val", 8}, {"store", filepath.Join(dir, "rows"), 9}}, Prune: Settings{{"sparsity", "0.9", 10}}, Calibrate: true,
		Textfile: filepath.Join(dir, "shaver.prom"), Address: ":9090", WaitInputs: 90 * time.Minute,
		Tracking: Tracking{MLflow: "http://m", Experiment: "shaver", Namespace: "team"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("found %+v, expected %+v", got, want)
	}
	if got.Score[1].Value != "train,val" || got.Score.Get("sample") != "0.05" || got.Score.Get("seed") != "" {
		t.Errorf("settings %v", got.Score)
	}
	if err := got.Errorf("score", got.Score[0], os.ErrInvalid); !strings.HasPrefix(err.Error(), path+`:7: score.sample "0.05": `) || !fault.IsInput(err) {
		t.Error(err)
	}
	if _, err := Read(path+"x", keys); !os.IsNotExist(err) {
		t.Errorf("a missing file: error %v", err)
	}
}

// Errors name the line and the key.
func TestBadConfig(t *testing.T) {
	const good = "model: m\ndays: d\nout: o\n"
	for text, want := range map[string]string{
		"":                                        "x.yaml: the key model is missing",
		"model: m\nout: o\n":                      "x.yaml: the key days is missing",
		good + "\tx: 1":                           "x.yaml is not YAML: line 3: found a tab character that violates indentation",
		good + "---\nmodel: m\n":                  "x.yaml has more than one YAML document: expected one",
		"- model":                                 "x.yaml:1: the file: expected keys with values",
		good + "modle: m":                         "x.yaml:4: modle: unknown key; expected one of model, days, window, out, state, keep, wait-inputs, source, score, prune, calibrate, onnx, delta, reuse, check, metrics, tracking",
		good + "score:\n  draws: 2":               "x.yaml:5: score.draws: unknown key; expected one of sample, splits, store",
		good + "score: 3":                         "x.yaml:4: score: expected keys with values",
		good + "metrics:\n  port: 2":              "x.yaml:5: metrics.port: unknown key; expected one of textfile, address",
		good + "days: e":                          "x.yaml:4: days: the key is there twice",
		good + "window: 0":                        `x.yaml:4: window "0": expected a whole number, at least 1`,
		good + "window: [1]":                      "x.yaml:4: window: expected a whole number, at least 1",
		good + "keep: -1":                         `x.yaml:4: keep "-1": expected a whole number, at least 1`,
		good + "calibrate: yes":                   `x.yaml:4: calibrate "yes": expected true or false`,
		good + "onnx: small":                      `x.yaml:4: onnx "small": expected dense or compact`,
		good + "onnx: [dense]":                    "x.yaml:4: onnx: expected dense or compact",
		good + "state:":                           "x.yaml:4: state: expected a path",
		good + "score:\n  sample: lots":           `x.yaml:5: score.sample "lots": expected a number`,
		good + "score:\n  sample: .nan":           `x.yaml:5: score.sample ".nan": expected a number`,
		good + "score:\n  sample: 1e999":          `x.yaml:5: score.sample "1e999": expected a number`,
		good + "score:\n  sample: {a: b}":         "x.yaml:5: score.sample: expected a number",
		good + "score:\n  splits: []":             "x.yaml:5: score.splits: expected a list that is not empty",
		good + "score:\n  splits: ['a,b']":        `x.yaml:5: score.splits "a,b": expected a text without a comma`,
		good + "score:\n  splits: [[a]]":          "x.yaml:5: score.splits: expected texts",
		good + "? [a]\n: b":                       "x.yaml:4: : unknown key; expected one of model, days, window, out, state, keep, wait-inputs, source, score, prune, calibrate, onnx, delta, reuse, check, metrics, tracking",
		good + "a: &a [1]\nscore: *a\n":           "x.yaml:4: a: unknown key; expected one of model, days, window, out, state, keep, wait-inputs, source, score, prune, calibrate, onnx, delta, reuse, check, metrics, tracking",
		"model: &m x\ndays: *m\nout: o\n":         "x.yaml:2: days: expected a path",
		"model: m\ndays: d\nout: d":               "x.yaml: out d is in days d: expected another place",
		"model: m\ndays: d\nout: d/mon/x":         "x.yaml: out d/mon/x is in days d: expected another place",
		good + "state: d/../d/mon":                "x.yaml: state d/mon is in days d: expected another place",
		"model: m\ndays: o/nights\nout: o":        "x.yaml: days o/nights is in the folder of the nights o/nights: expected another place",
		good + "state: o/nights/x":                "x.yaml: state o/nights/x is in the folder of the nights o/nights: expected another place",
		good + "state: o":                         "x.yaml: out o is in state o: expected another place",
		"model: m\ndays: d\nout: .":               "x.yaml: out . is the folder of model m: expected a folder that only has results",
		"model: c/m\ndays: d\nout: ./c":           "x.yaml: out c is the folder of model c/m: expected a folder that only has results",
		"model: ../m\ndays: d\nout: .":            "x.yaml: out . is the folder of the configuration x.yaml: expected a folder that only has results",
		"model: s://b/o/m\ndays: d\nout: s://b/o": "x.yaml: out s://b/o is the folder of model s://b/o/m: expected a folder that only has results",
		good + "metrics: {textfile: d/mon/x}":     "x.yaml: metrics.textfile d/mon/x is in days d: expected another place",
		good + "metrics: {textfile: o/nights/x}":  "x.yaml: metrics.textfile o/nights/x is in the folder of the nights o/nights: expected another place",
		good + "metrics: {textfile: o/state/x}":   "x.yaml: metrics.textfile o/state/x is in state o/state: expected another place",
		good + strings.Repeat("#", most<<20) + "": "",
	} {
		_, err := parse("x.yaml", []byte(text), keys)
		if want == "" {
			if err != nil {
				t.Errorf("%.60q: error %v", text, err)
			}
			continue
		}
		if err == nil || !fault.IsInput(err) || err.Error() != want {
			t.Errorf("%.60q: error %v, expected %s", text, err, want)
		}
	}
	path := filepath.Join(t.TempDir(), "x.yaml")
	if err := os.WriteFile(path, []byte(good+strings.Repeat("#", most<<20)), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path, keys); !fault.IsInput(err) || !strings.Contains(err.Error(), "larger than 1 MiB") {
		t.Errorf("a large file: error %v", err)
	}
	if _, err := Read(filepath.Dir(path), keys); !fault.IsInput(err) || !strings.Contains(err.Error(), "is a folder") {
		t.Errorf("a folder: error %v", err)
	}
	// A link does not hide that a folder is in another one. The folder behind it need not exist.
	link, days := filepath.Join(filepath.Dir(path), "link"), filepath.Join(filepath.Dir(path), "days")
	if err := errors.Join(os.Mkdir(days, 0o755), os.Symlink(days, link)); err != nil {
		t.Skip(err)
	}
	if err := os.WriteFile(path, []byte("model: m\ndays: days\nout: link/new/out\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path, keys); !fault.IsInput(err) || !strings.Contains(err.Error(), "is in days") {
		t.Errorf("a link to the days: error %v", err)
	}
}

// No text makes parse fail in another way than with bad input.
func FuzzParse(f *testing.F) {
	f.Add("model: m\ndays: d\nout: o\nscore: {sample: 0.1, splits: [train]}\nmetrics:\n  textfile: x\n")
	f.Add("a: &a [*a]\n")
	f.Add("score:\n- 1\n? {}\n: [")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parse("x.yaml", []byte(text), keys)
		if err != nil && !fault.IsInput(err) {
			t.Fatalf("error %v", err)
		}
		if err == nil && (c.Model == "" || c.Days == "" || c.Out == "" || c.State == "" || c.Window < 1 || c.Keep < 1) {
			t.Fatalf("%q gives %+v", text, c)
		}
	})
}
