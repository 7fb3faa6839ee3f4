package sweeping

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"

	"shaver/internal/app/training"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/prune/cut"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/mask"
)

// ready returns the models of --models, which must have the fields of the model in p.
func (o *Input) ready(p *cut.Source, d *dataset.Dataset) (all []sweep.Ready, err error) {
	if err := o.checkKnown(p.Checkpoint, d); err != nil {
		return nil, err
	}
	for _, path := range o.Models {
		ck, err := checkpoint.ReadOutput(path, "", p.Checkpoint.Tasks...)
		if err != nil {
			return nil, err
		}
		if err := p.CheckFields(ck, path); err != nil {
			return nil, err
		}
		if err := o.checkKnown(ck, d); err != nil {
			return nil, err
		}
		if err := o.checkApart(ck, d); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		r := sweep.Ready{Open: func() (*model.Model, error) {
			_, m, err := checkpoint.ReadModel(path, "", p.Checkpoint.Tasks...)
			return m, err
		}}
		if r.Point.Method, r.File, err = modelFile(ck, path); err != nil {
			return nil, err
		}
		for _, other := range all {
			if f := other.File; f.File == r.File.File && (f.Training == "" || f.Training != r.File.Training) {
				return nil, fault.Usagef("--models has two files with the name %s: expected different names, because the result has only those", f.File)
			}
		}
		named := []float64{r.File.Sparsity}
		for _, b := range o.Budgets {
			if b.Unit == mask.Sparsity {
				named = append(named, b.Amount)
			}
		}
		if err := cut.SetSize(&r.Point, ck, p.Checkpoint.Architecture.Parameters(), named...); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// checkKnown returns bad input unless the dataset has the fields that the model ck knows. If the
// model knows none, it adds a sentence to unknown.
func (o *Input) checkKnown(ck *checkpoint.Checkpoint, d *dataset.Dataset) error {
	k := ck.Known()
	o.unknown = append(o.unknown, k.Unknown())
	return d.CheckKnown(k)
}

// modelFile returns the method that made the model ck in the file path, and the description of the
// file.
func modelFile(ck *checkpoint.Checkpoint, path string) (method string, f sweep.ModelFile, err error) {
	f = sweep.ModelFile{File: filepath.Base(path), Model: ck.Digest()}
	if ck.Training == "" {
		return sweep.OfFile, f, nil
	}
	var t training.Trained
	if err := json.Unmarshal([]byte(ck.Training), &t); err != nil {
		return "", f, fault.Inputf("%s: metadata shaver.training: %w", path, err)
	}
	settings := t.Settings
	settings.Seed, settings.Search = 0, 0 // a search is one of the ways to find the other settings
	text, err := json.Marshal(settings)
	if err != nil {
		return "", f, err
	}
	sum := sha256.Sum256(text)
	f.Training, f.Seed, f.Sparsity = hex.EncodeToString(sum[:]), &t.Seed, t.Sparsity
	if err := f.Check(); err != nil {
		return "", f, fault.Inputf("%s: metadata shaver.training: %w", path, err)
	}
	if t.Tune {
		return sweep.OfTuned, f, nil
	}
	return sweep.MethodOf(t.Table), f, nil
}
