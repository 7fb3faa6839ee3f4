package training

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/train"
	"shaver/internal/data/dataset"
)

// state returns the path of the state, from which the same command continues.
func (o *Course) state() string { return stateOf(o.Out) }

// stateOf returns the path of the state of the training that writes to out.
func stateOf(out string) string {
	return filepath.Join(filepath.Dir(out), "."+filepath.Base(out)+".training")
}

// save writes the state. t is the trainer of the trial under way, or nil between trials.
func (o *Course) save(t *train.Trainer) error {
	text, err := json.Marshal(o.State)
	if err != nil {
		return err
	}
	var numbers []checkpoint.Vector
	if t != nil {
		numbers = slices.Concat(vectors(t), o.best, keptVector(o.kept))
	}
	return checkpoint.WriteVectors(o.state(), string(text), numbers)
}

// keptVector returns the vector of the entries to keep, or nil without any.
func keptVector(kept []bool) []checkpoint.Vector {
	if kept == nil {
		return nil
	}
	values := make([]float32, len(kept))
	for i, in := range kept {
		if in {
			values[i] = 1
		}
	}
	return []checkpoint.Vector{{Name: "kept", Values: values}}
}

func vectors(t *train.Trainer) (all []checkpoint.Vector) {
	for _, v := range t.State() {
		all = append(all, checkpoint.Vector(v))
	}
	return all
}

// resume reads the state of an interrupted training, if there is one. It returns the numbers
// of the trainer of the trial under way, or nil if none is.
func (o *Course) resume() (numbers []checkpoint.Vector, err error) {
	path := o.state()
	var s State
	err = checkpoint.ReadVectors(path, func(text string) ([]checkpoint.Vector, error) {
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			return nil, fault.Inputf("%s: %w", path, err)
		}
		ours, err := json.Marshal(o.Options.Settings)
		if err != nil {
			return nil, err
		}
		theirs, err := json.Marshal(s.Settings)
		if err != nil {
			return nil, err
		}
		if string(ours) != string(theirs) {
			if o.Outputs.Force {
				return nil, errForced
			}
			return nil, fault.Usagef("%s is the state of a training with other settings, another model or another dataset: give --force to start over", path)
		}
		if len(s.History) == 0 && s.Finding == nil {
			return nil, nil
		}
		numbers, err = o.layout(&s)
		return numbers, err
	})
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, errForced):
		return nil, o.checkFinished()
	case err != nil:
		return nil, err
	}
	if s.Digest != "" {
		if digest, err := files.Digest(o.Out); err != nil || digest != s.Digest && !o.ahead(&s) {
			return nil, fault.Inputf("%s is not the file that the training wrote: delete %s to start over", o.Out, path)
		}
	}
	if !s.valid(o.data.Rows(dataset.Val) > 0) {
		return nil, fault.Inputf("%s has an invalid history: delete it to start over", path)
	}
	o.State = s
	return numbers, nil
}

// checkFinished returns wrong usage if a training that begins would replace a model that is not its
// own result. Another kernel and another version of the program make the same training.
func (o *Course) checkFinished() error {
	if _, err := os.Stat(o.Out); errors.Is(err, fs.ErrNotExist) || o.Replace {
		return nil
	}
	return o.Outputs.Check("--out", o.Out, func(path string) string {
		text := checkpoint.TrainingOf(path)
		if text == "" {
			return "is a model that no training wrote"
		}
		var theirs Trained
		if err := json.Unmarshal([]byte(text), &theirs); err != nil {
			return "is the model of a training of another version"
		}
		ours := o.Options.Settings
		ours.Version, ours.Kernel = theirs.Version, theirs.Kernel
		if o.Search > 0 {
			ours.LearningRate, ours.WeightDecay, ours.Dropout = theirs.LearningRate, theirs.WeightDecay, theirs.Dropout
		}
		x, errX := json.Marshal(ours)
		y, errY := json.Marshal(theirs.Settings)
		if errX != nil || errY != nil || string(x) != string(y) {
			return "is the model of a training with other settings, another model or another dataset"
		}
		return ""
	})
}

// ahead reports whether the file at Out has the epoch after those of a state. This happens if the training was
// killed after it wrote the file and before it wrote the state. It will write the same file again.
func (o *Course) ahead(s *State) bool {
	ck, err := checkpoint.Read(o.Out)
	if err != nil {
		return false
	}
	var theirs Trained
	if err := json.Unmarshal([]byte(ck.Training), &theirs); err != nil {
		return false
	}
	settings := o.settings(nil)
	if o.Search > 0 {
		settings.Trial(len(s.Trials))
	}
	ours := Trained{o.with(&settings), theirs.Epoch}
	if ours.Number = o.first(); len(s.History) > 0 {
		ours.Number = last(s.History) + 1
	}
	x, errX := json.Marshal(ours)
	y, errY := json.Marshal(theirs)
	return errX == nil && errY == nil && string(x) == string(y)
}

// layout returns vectors for the numbers of the trainer of a state. It reads the entries to keep of
// the state, if they are found.
func (o *Course) layout(s *State) ([]checkpoint.Vector, error) {
	p, err := o.from.Parameters()
	if err != nil {
		return nil, err
	}
	if (o.Method() == "") != (s.Finding == nil) {
		return nil, fault.Inputf("%s has an invalid history: delete it to start over", o.state())
	}
	settings := o.settings(o.dropped)
	if o.Search > 0 {
		settings.Trial(len(s.Trials))
	}
	switch {
	case s.Finding == nil:
		settings = o.withTable(settings)
	case s.Finding.Kept == 0:
		if settings, err = o.finder(settings); err != nil {
			return nil, err
		}
	default:
		if err := o.readKept(s.Finding.Kept); err != nil {
			return nil, err
		}
		o.apply(p, &settings)
	}
	t, err := train.New(o.from.Architecture, p, settings)
	if err != nil {
		return nil, fault.Usagef("%w", err)
	}
	if o.Method() == train.OptEmbed && s.Finding.Kept == 0 {
		return append(vectors(t), o.copyOf(t)...), nil
	}
	return vectors(t), nil
}

// valid reports whether the epochs of a state follow each other, and are measured if there
// are validation rows.
func (s *State) valid(measured bool) bool {
	epochs := s.History
	if s.Finding != nil && s.Finding.Kept == 0 {
		if epochs = s.Finding.history(); len(s.History) > 0 || bestOf(epochs, s.Finding.Best) == nil {
			return false
		}
	}
	for i, e := range epochs {
		if e.Number != epochs[0].Number+i || measured && e.Validation == nil {
			return false
		}
	}
	for _, t := range s.Trials {
		if t.Best != nil && t.Best.Validation == nil {
			return false
		}
	}
	return len(s.Trials) <= max(0, s.Settings.Search) && (len(s.History) == 0 || s.History[0].Number >= 0 && bestOf(s.History, s.Best) != nil)
}

// errForced means that --force discards a state.
var errForced = errors.New("state discarded")

// Started reports whether an earlier process began a training that writes to out.
func Started(out string) bool {
	_, err := os.Stat(stateOf(out))
	return err == nil
}
