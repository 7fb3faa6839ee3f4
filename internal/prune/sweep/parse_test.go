package sweep

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"shaver/internal/base/fault"
)

// old is a document of a program without differences, sizes, curves and slices.
const old = `{"version":"shaver.sweep/1","model":"ab","dataset":"cd","kind":"fm","split":"test","rows":10,"features":3,"entries":6,` +
	`"settings":{"rank":"abs","protect":["a"],"field_minimum":0.1,"seed":3},"unpruned":{"auc":0.75,"log_loss":0.5},"sources":[{"job":"x","estimator":"taylor","passes":1,"baseline":"zero","splits":["train"],"sample":1,"rows":20,"seed":1}],` +
	`"points":[{"method":"taylor","source":0,"baseline":"zero","values":"float32","bits":32,"sparsity":0.5,"parameters":3,"empty_features":1,"auc":null,"log_loss":0.6,"calibrated_log_loss":0.55,"calibration":{"scale":1,"offset":0}},` +
	`{"method":"ptq8","baseline":"zero","values":"int8","bits":8,"sparsity":0.75,"parameters":6,"empty_features":0,"auc":0.7,"log_loss":0.6}]}`

// parsed is a document of this program.
const parsed = `{"version":"shaver.sweep/1","model":"ab","dataset":"cd","kind":"fm","split":"test","rows":10,"features":3,"entries":6,` +
	`"settings":{"rank":"abs","protect":["a"],"field_minimum":0.1,"seed":3},"slices":[{"least":0,"most":9,"rows":4,"positives":1},{"field":"a","least":0,"rows":5,"positives":2}],` +
	`"unpruned":{"auc":0.75,"log_loss":0.5,"bytes":90,"table_bytes":24,"memory_bytes":24,"calibration_curve":[{"rows":10,"predicted":0.4,"calibrated":0.5,"observed":0.5}],"slices":[{"auc":0.8,"log_loss":0.4},{"auc":null,"log_loss":0.5}]},` +
	`"sources":[{"job":"x","estimator":"taylor","passes":1,"baseline":"zero","splits":["train"],"sample":1,"rows":20,"seed":1},{"job":"y","estimator":"exact","passes":1,"baseline":"zero","splits":["train"],"sample":1,"rows":20,"seed":1}],` +
	`"points":[{"method":"taylor","source":0,"baseline":"zero","values":"float32","bits":32,"sparsity":0.5,"parameters":3,"empty_features":1,"auc":0.7,"log_loss":0.6,"calibrated_log_loss":0.55,"calibration":{"scale":1,"offset":0},` +
	`"bytes":70,"table_bytes":14,"memory_bytes":20,"calibration_curve":[{"rows":10,"predicted":0.4,"observed":0.5}],"slices":[{"auc":0.7,"log_loss":0.5,"difference":{"auc":{"value":-0.1,"low":-0.2,"high":0.1},"log_loss":{"value":0.1,"low":null,"high":null}}},{"auc":null,"log_loss":0.5}],` +
	`"difference":{"auc":{"value":-0.05,"low":-0.07,"high":-0.03},"log_loss":{"value":0.1,"low":0,"high":0.2},"calibrated_log_loss":{"value":0.2,"low":0.1,"high":0.3}}},` +
	`{"method":"shapley-rms","source":1,"baseline":"zero","values":"float32","bits":32,"sparsity":0.5,"parameters":3,"empty_features":1,"auc":null,"log_loss":0.6,"difference":{"auc":null,"log_loss":{"value":0.1,"low":0,"high":0.2}}},` +
	`{"method":"ptq8","baseline":"zero","values":"int8","bits":8,"sparsity":0.75,"parameters":6,"empty_features":0,"auc":0.7,"log_loss":0.6}]}`

// modelled is a document with models.
const modelled = `{"version":"shaver.sweep/3","model":"ab","dataset":"cd","kind":"fm","split":"test","rows":10,"features":3,"entries":6,"unpruned":{"auc":0.75,"log_loss":0.5},"sources":[],` +
	`"models":[{"file":"a.safetensors","model":"ef","training":"0123","seed":0,"sparsity":0.5},{"file":"b.safetensors","model":"ef"}],` +
	`"points":[{"method":"pep","model":0,"baseline":"zero","values":"float32","bits":32,"sparsity":0.5,"parameters":3,"empty_features":1,"auc":0.7,"log_loss":0.6},` +
	`{"method":"model","model":1,"baseline":"zero","values":"float32","bits":32,"sparsity":0.5,"parameters":3,"empty_features":1,"auc":0.7,"log_loss":0.6}]}`

// A document with models says in its version that it has some.
func TestParseModels(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{`shaver.sweep/3`, `shaver.sweep/1`, `the version of the sweep is "shaver.sweep/1", and it has 2 models: expected 1 to 1000 models with shaver.sweep/3, and none with others`},
		{`"model":1`, `"model":2`, `point 1: model 2, expected an index below 2`},
		{`"model":1`, `"model":-1`, `point 1: model -1, expected an index below 2`},
		{`"model":0`, `"source":0,"model":0`, `point 0: both a model and a source`},
		{`"method":"pep"`, `"method":"magnitude"`, `point 0: method "magnitude" of a model: expected the kind of its table, tuned or model`},
		{`"method":"pep"`, `"method":"taylor"`, `point 0: method "taylor" of a model`},
		{`"method":"pep"`, `"method":"<b>"`, `point 0: method "<b>" of a model`},
		{`"sparsity":0.5}`, `"sparsity":1}`, `model 0: sparsity 1 is outside [0, 1)`},
		{`"a.safetensors"`, `""`, `model 0: a file without a name`},
		{`"method":"model","model":1,`, `"method":"model",`, `point 1: method "model" without a source`},
	} {
		text := strings.Replace(modelled, c.old, c.new, 1)
		if _, err := Parse([]byte(text)); !fault.IsInput(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error for %s: %v, expected %q", c.new, err, c.want)
		}
	}
}

func TestParse(t *testing.T) {
	for _, text := range []string{old, parsed, modelled} {
		d, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(d)
		if err != nil || string(again) != text {
			t.Errorf("encoded again, with error %v, the document\n%s\nbecomes\n%s", err, text, again)
		}
	}
	for _, c := range []struct{ old, new, want string }{
		{`shaver.sweep/1`, `shaver.sweep/4`, `the version of the sweep is "shaver.sweep/4", this program reads shaver.sweep/1, shaver.sweep/2 and shaver.sweep/3`},
		{`shaver.sweep/1`, `shaver.sweep/3`, `the version of the sweep is "shaver.sweep/3", and it has 0 models: expected 1 to 1000 models with shaver.sweep/3, and none with others`},
		{`shaver.sweep/1`, `shaver.sweep/2`, `the version of the sweep is "shaver.sweep/2", but its loss is ""`},
		{`"auc":0.75,"log_loss":0.5`, `"auc":0.75,"rmse":0.5`, `unpruned: the metrics are not those of the loss logistic`},
		{`"source":0`, `"source":2`, `point 0: source 2, expected an index below 2`},
		{`"source":0`, `"source":-1`, `point 0: source -1, expected an index below 2`},
		{`"method":"ptq8"`, `"method":"taylor"`, `point 2: method "taylor" without a source: expected one of magnitude, random, frequency, ptq4`},
		{`"method":"ptq8"`, `"method":"best"`, `point 2: method "best" without a source: expected one of magnitude`},
		{`"method":"taylor"`, `"method":"shapley"`, `point 0: method "shapley" ranks by scores of the estimator taylor: expected one of taylor-rms, taylor, taylor-abs`},
		{`"method":"shapley-rms"`, `"method":"exact-rms"`, `point 1: method "exact-rms" ranks by scores of the estimator exact: expected one of shapley-rms, shapley, shapley-abs`},
		{`"method":"shapley-rms"`, `"method":"ptq8"`, `point 1: method "ptq8" ranks by scores of the estimator exact`},
		{`"method":"taylor"`, `"method":"snip"`, `point 0: method "snip" ranks by scores of the pruned model: expected those of the model before its training`},
		{`"job":"x"`, `"job":"x","model":"ab"`, `point 0: method "taylor" ranks by scores of another model: expected snip`},
		{`"method":"shapley-rms"`, `"method":"sseds"`, `point 1: method "sseds" needs scores of the estimator taylor with the baseline zero, not of exact with zero`},
		{`"estimator":"taylor"`, `"estimator":"guess"`, `point 0: source 0 has the estimator "guess": expected one of permutation`},
		{`"sparsity":0.75`, `"sparsity":1.5`, `point 2: sparsity 1.5 is outside [0, 1]`},
		{`"auc":0.7,`, `"auc":7,`, `point 0: AUC 7 is outside [0, 1]`},
		{`"calibrated_log_loss":0.55`, `"calibrated_log_loss":-1`, `point 0: LogLoss -1 is outside [0, 1e+100]`},
		{`"auc":0.75,"log_loss":0.5`, `"auc":0.75,"log_loss":-0.5`, `unpruned: LogLoss -0.5 is outside [0, 1e+100]`},
		{`"auc":0.75,"log_loss":0.5`, `"auc":0.75,"log_loss":1e308`, `unpruned: LogLoss 1e+308 is outside [0, 1e+100]`},
		{`"rank":"abs"`, `"rank":"best"`, `settings: rank "best": the ranks are abs and signed`},
		{`"field_minimum":0.1`, `"field_minimum":1.1`, `settings: field minimum 1.1 is outside [0, 1]`},
		{`"bytes":70`, `"bytes":-70`, `point 0: a size of -70 bytes`},
		{`"bytes":70,`, ``, `point 0: only some of bytes, table_bytes and memory_bytes`},
		{`"predicted":0.4,"calibrated"`, `"predicted":1.4,"calibrated"`, `unpruned: calibration curve, bin 0: 10 rows and the probability 1.4`},
		{`"rows":10,"predicted":0.4,"observed"`, `"rows":0,"predicted":0.4,"observed"`, `point 0: calibration curve, bin 0: 0 rows`},
		{`,{"auc":null,"log_loss":0.5}]},`, `]},`, `unpruned: metrics of 1 slices, expected 2`},
		{`{"auc":0.8,"log_loss":0.4}`, `{"auc":1.8,"log_loss":0.4}`, `unpruned: slice 0: AUC 1.8 is outside [0, 1]`},
		{`"low":-0.2,"high":0.1`, `"low":-0.2,"high":-0.15`, `point 0: slice 0: interval [-0.2, -0.15] of the difference -0.1`},
		{`"low":-0.07,"high":-0.03`, `"low":-0.04,"high":-0.03`, `point 0: interval [-0.04, -0.03] of the difference -0.05`},
		{`"low":-0.07,"high":-0.03`, `"low":-0.07,"high":null`, `point 0: an interval has only one end`},
		{`"value":0.1,"low":null`, `"value":1e200,"low":null`, `point 0: slice 0: difference 1e+200 is outside ±1e+100`},
		{`"rows":10`, `"lines":10`, `unknown field "lines"`},
		{`"auc":0.7,"log_loss":0.6}]}`, `"auc":0.7,"log_loss":0.6}]}{}`, `not the JSON of shaver sweep`},
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
	f.Add([]byte(old))
	f.Add([]byte(parsed))
	f.Add([]byte(modelled))
	f.Add([]byte(`{"version":"shaver.sweep/1","unpruned":{"log_loss":1},"sources":[{"estimator":"taylor","baseline":"zero"},{"model":"ab","estimator":"taylor","baseline":"zero"}],"points":[{"method":"sseds","source":0,"log_loss":1},{"method":"snip","source":1,"log_loss":1}]}`))
	f.Add([]byte(`{"version":"shaver.sweep/1","points":[{"method":"random","sparsity":1}]}`))
	f.Add([]byte(`{"version":"shaver.sweep/1","sources":[{"estimator":"taylor"}],"points":[{"method":"taylor","source":0},{"method":"ptq8"}]}`))
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
		d.Decide(DefaultBound)
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
