package prepare

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/click/modelfile"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/scores"
	"shaver/internal/value/baseline"
)

// Previous describes the previous model of a paired job and its values on the rows of the
// same dataset.
type Previous struct {
	// Open reads the previous model's checkpoint, like Request.Open.
	Open func() (modelfile.Source, error)
	Name string // what errors call the previous model, such as the path of its file
	// Scores has the previous values. Its features are those of the new model's tables. A
	// feature that the previous model lacks has a count of 0.
	Scores *scores.File
	Digest string // SHA-256 of the file with the previous values, in hexadecimal
}

// Earlier is the previous model of a paired job. It may be the same model as the new one. Its
// fields may be smaller; see model.Translator.
type Earlier struct {
	Source   modelfile.Source
	Model    *model.Model
	Baseline model.Baseline // what a dropped entry reads under the previous model
}

// Digest returns the SHA-256 of a baseline's bytes, in hexadecimal.
func Digest(b *model.Baseline) string {
	sum := sha256.Sum256(baseline.Encode(b))
	return hex.EncodeToString(sum[:])
}

// Generation returns the generation of a paired job that corrects the given values. See
// job.Previous.
func Generation(previous *scores.File) int { return previous.Spec.Generation() + 1 }

// spec returns the part of a paired job's specification that identifies p.
func (p *Previous) spec() *job.Previous {
	return &job.Previous{Model: p.Scores.Spec.Model, Baseline: Digest(&p.Scores.Baseline), Values: p.Digest, Generation: Generation(p.Scores)}
}

// earlier opens the previous model, and checks that it and its values can be paired with
// the new model ck and m. It returns nil if the job is not paired. If both models are the
// same, it is not opened twice.
func (r *Request) earlier(ck modelfile.Source, m *model.Model) (*Earlier, error) {
	if r.Previous == nil {
		return nil, nil
	}
	f := r.Previous.Scores
	if !f.Layout.SameLayout(&m.Architecture) {
		return nil, fault.Inputf("the previous scores are for %s, the model has %s", f.Layout.Size(), m.Size())
	}
	e := &Earlier{Source: ck, Model: m, Baseline: f.Baseline}
	if f.Spec.Model == ck.Digest() {
		return e, nil
	}
	var err error
	if e.Source, err = r.Previous.Open(); err != nil {
		return nil, fmt.Errorf("the previous scores need the model with digest %.12s: %w", f.Spec.Model, err)
	}
	if found := e.Source.Digest(); found != f.Spec.Model {
		return nil, fault.Inputf("%s is not the model of the previous scores: expected the digest %s, found %s", r.Previous.Name, f.Spec.Model, found)
	}
	if e.Model, err = e.Source.Model(); err != nil {
		return nil, err
	}
	e.Model = e.Model.Freeze(m.Frozen)
	if known := e.Source.Known(); known.Fields != nil {
		if err := r.Dataset.CheckKnown(known); err != nil {
			return nil, err
		}
	}
	if err := comparable(&m.Architecture, &e.Model.Architecture); err != nil {
		return nil, fault.Inputf("%w", err)
	}
	return e, nil
}

// comparable returns an error unless models with architecture a and a previous model can
// be paired. Their heads must have the same form, and the fields of the previous model may
// be smaller.
func comparable(a, earlier *model.Architecture) error {
	if _, err := model.NewTranslator(a, earlier); err != nil {
		return err
	}
	x, y := reflect.ValueOf(*a), reflect.ValueOf(*earlier)
	for i := range x.NumField() {
		name, _, _ := strings.Cut(x.Type().Field(i).Tag.Get("json"), ",")
		if slices.Contains([]string{"field_dims", "tables", "look_ups", "lists"}, name) { // compared by NewTranslator
			continue
		}
		if p, q := x.Field(i).Interface(), y.Field(i).Interface(); !reflect.DeepEqual(p, q) {
			return fmt.Errorf("the models cannot be paired: %s of the previous model is %v, expected %v", strings.ReplaceAll(name, "_", " "), q, p)
		}
	}
	return nil
}

// checkSettings returns wrong usage unless the settings of r, which a user can change, are
// those of the job that computed the previous values.
func (p *Previous) checkSettings(r *Request) error {
	was := &p.Scores.Spec
	if was.Baseline != r.Baseline {
		return fault.Usagef("baseline %s: the previous scores have the baseline %s", r.Baseline, was.Baseline)
	}
	options, others := r.Options, was.TaskOptions()
	settings := others.Settings()
	for i, s := range options.Settings() {
		if s.Value() != settings[i].Value() {
			return fault.Usagef("%s %s: the previous scores have %s %s", s.Name, s.Value(), s.Name, settings[i].Value())
		}
	}
	if revision := r.Options.Traits().Revision; was.Revision != revision {
		return fault.Usagef("the previous scores are from revision %d of the %s estimator, this program has revision %d: compute them again without previous scores", was.Revision, was.Estimator, revision)
	}
	if was.Seed != r.Seed {
		return fault.Usagef("seed %d: the previous scores have the seed %d", r.Seed, was.Seed)
	}
	return nil
}

// checkJob checks that the previous values have the same rows and fields as the job with
// the given specification, and that they are complete. rows is the number of rows of the
// splits in d.
func (p *Previous) checkJob(spec *job.Spec, d *dataset.Dataset, rows int64) error {
	f := p.Scores
	was := &f.Spec
	if was.Dataset != spec.Dataset {
		return fault.Inputf("the previous scores were computed from another dataset, with digest %.12s; the digest of this dataset is %.12s", was.Dataset, spec.Dataset)
	}
	if !slices.Equal(was.Freeze, spec.Freeze) {
		return fault.Usagef("the job freezes the fields %v, but the previous scores freeze %v (by their numbers): freeze the same ones", spec.Freeze, was.Freeze)
	}
	if !slices.Equal(was.Splits, spec.Splits) {
		return fault.Usagef("splits %s: the previous scores have the splits %s", strings.Join(spec.Splits, ","), strings.Join(was.Splits, ","))
	}
	if was.Loss != spec.Loss {
		return fault.Usagef("loss %s: the previous scores have the loss %s", spec.Loss.Name(), was.Loss.Name())
	}
	if fields := d.Fields(); !slices.Equal(f.Fields, fields) {
		return fault.Inputf("the previous scores have the fields %s, the dataset has %s", strings.Join(f.Fields, ", "), strings.Join(fields, ", "))
	}
	if f.DatasetRows != rows {
		return fault.Inputf("the previous scores are for %d rows, the splits have %d", f.DatasetRows, rows)
	}
	if was.Kernel != spec.Kernel {
		return fault.Inputf("the previous scores were computed by the kernel %s, and this job would use %s: give --kernel %s", was.Kernel, spec.Kernel, was.Kernel)
	}
	if f.QuarantinedRows > 0 {
		return fault.Inputf("the previous scores lack %d rows, which could not be computed: expected complete scores", f.QuarantinedRows)
	}
	if s := f.Stopped; s != nil && s.Reason == scores.TimeOver {
		return fault.Inputf("the previous scores are those of a job whose time was over before its rows were done: expected complete scores")
	}
	return nil
}
