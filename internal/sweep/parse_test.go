package sweep

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"shaver/internal/fault"
)

const parsed = `{"version":"shaver.sweep/1","model":"ab","dataset":"cd","kind":"fm","split":"test","rows":10,"features":3,"entries":6,` +
	`"settings":{"rank":"abs","protect":["a"],"field_minimum":0.1,"seed":3},"unpruned":{"auc":0.75,"log_loss":0.5},"sources":[{"job":"x","estimator":"taylor","passes":1,"baseline":"zero","splits":["train"],"sample":1,"rows":20,"seed":1}],` +
	`"points":[{"method":"taylor","source":0,"baseline":"zero","values":"float32","bits":32,"sparsity":0.5,"parameters":3,"empty_features":1,"auc":null,"log_loss":0.6,"calibration":{"scale":1,"offset":0},"calibrated_log_loss":0.55},` +
	`{"method":"ptq8","baseline":"zero","values":"int8","bits":8,"sparsity":0.75,"parameters":6,"empty_features":0,"auc":0.7,"log_loss":0.6}]}`

func TestParse(t *testing.T) {
	d, err := Parse([]byte(parsed))
	if err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(d)
	if err != nil || string(again) != parsed {
		t.Errorf("encoded again, with error %v, the document\n%s\nbecomes\n%s", err, parsed, again)
	}
	for _, c := range []struct{ old, new, want string }{
		{`shaver.sweep/1`, `shaver.sweep/2`, `the version of the sweep is "shaver.sweep/2", this program reads shaver.sweep/1`},
		{`"source":0`, `"source":1`, `point 0: source 1, expected an index below 1`},
		{`"source":0`, `"source":-1`, `point 0: source -1, expected an index below 1`},
		{`"method":"ptq8"`, `"method":"taylor"`, `point 1: some points of method "taylor" have a source and some do not`},
		{`"sparsity":0.75`, `"sparsity":1.5`, `point 1: sparsity 1.5 is outside [0, 1]`},
		{`"auc":0.7,`, `"auc":7,`, `point 1: AUC 7 is outside [0, 1]`},
		{`"calibrated_log_loss":0.55`, `"calibrated_log_loss":-1`, `point 0: LogLoss -1 is outside [0, 1e+100]`},
		{`{"auc":0.75,"log_loss":0.5}`, `{"auc":0.75,"log_loss":-0.5}`, `unpruned: LogLoss -0.5 is outside [0, 1e+100]`},
		{`{"auc":0.75,"log_loss":0.5}`, `{"auc":0.75,"log_loss":1e308}`, `unpruned: LogLoss 1e+308 is outside [0, 1e+100]`},
		{`"rank":"abs"`, `"rank":"best"`, `settings: rank "best": the ranks are abs and signed`},
		{`"field_minimum":0.1`, `"field_minimum":1.1`, `settings: field minimum 1.1 is outside [0, 1]`},
		{`"rows":10`, `"lines":10`, `unknown field "lines"`},
		{`"log_loss":0.6}]}`, `"log_loss":0.6}]}{}`, `not the JSON of shaver sweep`},
		{`"points":[`, `"points":[]}`, `not the JSON of shaver sweep`},
		{`{"version"`, `["version"`, `not the JSON of shaver sweep`},
	} {
		text := strings.Replace(parsed, c.old, c.new, 1)
		if _, err := Parse([]byte(text)); !fault.IsInput(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error for %s: %v, expected %q", c.new, err, c.want)
		}
	}
	for points, want := range map[int]string{0: "the sweep has 0 points, expected 1 to 10000", 10_001: "the sweep has 10001 points, expected 1 to 10000"} {
		text := `{"version":"shaver.sweep/1","points":[` + strings.TrimSuffix(strings.Repeat("{},", points), ",") + `]}`
		if _, err := Parse([]byte(text)); !fault.IsInput(err) || err.Error() != want {
			t.Errorf("error for %d points: %v", points, err)
		}
	}
}

// A document that Parse accepts can be printed, encoded and parsed again.
func FuzzParse(f *testing.F) {
	f.Add([]byte(parsed))
	f.Add([]byte(`{"version":"shaver.sweep/1","points":[{"sparsity":1}]}`))
	f.Add([]byte(`{"version":"shaver.sweep/1","sources":[{}],"points":[{"source":0},{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Parse(data)
		if err != nil {
			if !fault.IsInput(err) {
				t.Fatalf("error %v is not bad input", err)
			}
			return
		}
		points := 0
		for _, s := range d.Series() {
			points += len(s.Points)
		}
		if points == 0 || points > len(d.Points) {
			t.Fatalf("the series of %d points have %d points", len(d.Points), points)
		}
		d.WriteTable(io.Discard)
		first, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(first)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := json.Marshal(again); err != nil || !bytes.Equal(first, second) {
			t.Fatalf("%s became %s, error %v", first, second, err)
		}
	})
}
