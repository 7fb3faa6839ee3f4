package window

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"slices"

	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/base/seal"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/loss"
	"shaver/internal/value/estimator"
)

// Version is the version of a state's index.
const Version = "shaver.state/1"

// maxIndex is the largest size of an index in MiB.
const maxIndex = 64

// Index is the content of a state's index. It is immutable once it is written.
type Index struct {
	Version  string   `json:"version"`
	Digest   string   `json:"digest"` // digest of the file; see package seal
	Settings Settings `json:"settings"`
	Games    []Game   `json:"games"`          // games of the days, and last that of the newest model
	Copy     *File    `json:"copy,omitempty"` // copy of the newest model; its digest is the model's; nil until the first night is over
	Days     []Day    `json:"days"`
}

// Settings are what all days of a state share.
type Settings struct {
	Spec     int      `json:"spec"`     // job.SpecVersion of the sums
	Fields   []string `json:"fields"`   // names of the fields, [m]
	Splits   []string `json:"splits"`   // splits to score
	Baseline string   `json:"baseline"` // one of baseline.Names

	estimator.Options

	Seed   uint64 `json:"seed"`
	Kernel string `json:"kernel"` // name of the float32 kernel

	Revision int       `json:"revision,omitempty"` // estimator.Traits.Revision of the sums
	Loss     loss.Kind `json:"loss,omitempty"`     // loss of a row; empty = the log loss
	Freeze   []int     `json:"freeze,omitempty"`   // job.Spec.Freeze
}

// Game is a model with what its dropped entries read.
type Game struct {
	Model    string    `json:"model"`    // digest
	Baseline []float32 `json:"baseline"` // [D]
}

// File identifies a file of a state.
type File struct {
	Name   string `json:"file"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // hexadecimal
}

// Day is a day of a state.
type Day struct {
	Dataset    string          `json:"dataset"`            // digest
	Rows       int64           `json:"rows"`               // number of rows in the splits, all of which the sums cover
	Scored     int64           `json:"scored"`             // number of rows that the last job of the day computed
	Model      string          `json:"model"`              // digest of the model of the sums
	Generation int             `json:"generation"`         // number of paired jobs since the last full one
	Sample     float64         `json:"sample"`             // portion of the rows that the last job of the day scored; 1 = it was a full job
	Previous   *job.Previous   `json:"previous,omitempty"` // what the last job corrected; nil after a full job
	Lineage    *scores.Lineage `json:"lineage,omitempty"`  // lineage of the sums; nil after a full job
	Phi        float64         `json:"phi"`                // root mean square of phi over all entries, nat

	EfficiencyError float64 `json:"efficiency_error"` // as in scores.File, of the last job of the day
	EfficiencySE    float64 `json:"efficiency_se"`

	Sums File `json:"sums"`
}

// files returns the names of all files that the index names.
func (x *Index) files() (names []string) {
	if x == nil {
		return nil
	}
	if x.Copy != nil {
		names = append(names, x.Copy.Name)
	}
	for _, d := range x.Days {
		names = append(names, d.Sums.Name)
	}
	return names
}

// day returns the day whose dataset has the digest, or nil.
func (x *Index) day(dataset string) *Day {
	if x == nil {
		return nil
	}
	at := slices.IndexFunc(x.Days, func(d Day) bool { return d.Dataset == dataset })
	if at < 0 {
		return nil
	}
	return &x.Days[at]
}

// game returns the game of a model, or nil.
func (x *Index) game(model string) *Game {
	if x == nil {
		return nil
	}
	at := slices.IndexFunc(x.Games, func(g Game) bool { return g.Model == model })
	if at < 0 {
		return nil
	}
	return &x.Games[at]
}

// with returns a copy of x in which the days are those given, and in which the newest game
// is g. Games that no day needs are left out.
func (x *Index) with(settings Settings, days []Day, g Game) *Index {
	next := &Index{Version: Version, Settings: settings, Days: days}
	if x != nil {
		next.Copy = x.Copy
		for _, old := range x.Games {
			if old.Model != g.Model && slices.ContainsFunc(days, func(d Day) bool { return d.Model == old.Model }) {
				next.Games = append(next.Games, old)
			}
		}
	}
	next.Games = append(next.Games, g)
	return next
}

// write writes the index with its digest to path.
func (x *Index) write(path string) error {
	sealed := *x
	write := func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", " ")
		return e.Encode(&sealed)
	}
	var err error
	sealed.Digest = seal.Blank
	if sealed.Digest, err = seal.Of(write); err != nil {
		return err
	}
	return atomicfile.Write(path, write)
}

// readIndex reads an index. A damaged index, and one of another version, is bad input, which
// says what to do.
func readIndex(path string) (*Index, error) {
	data, err := files.Small(path, maxIndex, "the index of a state")
	if err != nil {
		return nil, err
	}
	x, err := parseIndex(path, data)
	if err != nil {
		return nil, fault.Inputf("%w: delete the folder of the state, or name another one; all days are then scored in full", err)
	}
	return x, nil
}

// ReadSettings returns the settings of the state in dir, or nil if there is no state yet. Its
// errors are those of Open.
func ReadSettings(dir string) (*Settings, error) {
	if err := checkFolder(dir); err != nil {
		return nil, err
	}
	x, err := readIndex(filepath.Join(dir, indexName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &x.Settings, nil
}

func parseIndex(path string, data []byte) (*Index, error) {
	var head struct {
		Version string `json:"version"`
		Digest  string `json:"digest"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("%s is not the index of a state: not JSON: %w", path, err)
	}
	if head.Version != Version {
		return nil, fmt.Errorf("%s has the version %q, this program reads %q", path, head.Version, Version)
	}
	if err := seal.Check(path, bytes.NewReader(data), head.Digest); err != nil {
		return nil, err
	}
	x := &Index{}
	if err := files.Strict(data, x); err != nil {
		return nil, fmt.Errorf("%s is not the index of a state: %w", path, err)
	}
	if err := x.validate(); err != nil {
		return nil, fmt.Errorf("%s is not the index of a state: %w", path, err)
	}
	return x, nil
}

// validate returns an error that names the first invalid value.
func (x *Index) validate() error {
	s := &x.Settings
	switch {
	case s.Spec != job.SpecVersion:
		return fmt.Errorf("its sums have the version %d, this program continues %d", s.Spec, job.SpecVersion)
	case s.Revision != s.Traits().Revision:
		return fmt.Errorf("its sums are from revision %d of the %s estimator, this program continues revision %d", s.Revision, s.Estimator, s.Traits().Revision)
	case s.Loss != loss.Logistic && s.Loss != loss.Squared:
		return fmt.Errorf("its loss is %q, expected none or %s", s.Loss, loss.Squared)
	case len(s.Fields) == 0 || len(s.Splits) == 0 || s.Kernel == "":
		return errors.New("fields, splits or the kernel are missing")
	case len(x.Games) == 0:
		return errors.New("the games are missing")
	}
	for i, g := range x.Games {
		if !isDigest(g.Model) || x.game(g.Model) != &x.Games[i] {
			return fmt.Errorf("game %d has the model %q: expected a digest of its own", i, g.Model)
		}
	}
	newest := x.Games[len(x.Games)-1].Model
	if c := x.Copy; c != nil && (!isDigest(c.SHA256) || c.Name != fmt.Sprintf("model-%.16s.safetensors", c.SHA256) || c.Bytes < 1) {
		return fmt.Errorf("the copy of the model is %q with digest %q", c.Name, c.SHA256)
	}
	for i := range x.Days {
		d := &x.Days[i]
		switch {
		case !isDigest(d.Dataset) || x.day(d.Dataset) != d:
			return fmt.Errorf("day %d has the dataset %q: expected a digest of its own", i, d.Dataset)
		case d.Rows < 1 || d.Scored < 1 || d.Scored > d.Rows:
			return fmt.Errorf("day %d has %d rows, of which %d were scored", i, d.Rows, d.Scored)
		case x.game(d.Model) == nil:
			return fmt.Errorf("day %d has the sums of the model %q, expected %s or the model of another game", i, d.Model, newest)
		case d.Generation < 0 || (d.Generation > 0) != (d.Previous != nil) || (d.Previous != nil) != (d.Lineage != nil):
			return fmt.Errorf("day %d has the generation %d, which does not fit its lineage", i, d.Generation)
		case d.Previous != nil && (d.Previous.Generation != d.Generation || d.Lineage.Generation != d.Generation || !isDigest(d.Previous.Model) || !isDigest(d.Previous.Values)):
			return fmt.Errorf("day %d has a lineage that contradicts itself", i)
		case d.Lineage != nil && len(d.Lineage.Fields) != len(s.Fields):
			return fmt.Errorf("day %d has a lineage of %d fields, expected %d", i, len(d.Lineage.Fields), len(s.Fields))
		case !(d.Sample > 0 && d.Sample <= 1) || !(d.Phi >= 0 && d.Phi <= math.MaxFloat64):
			return fmt.Errorf("day %d has the sample %v and the root mean square %v", i, d.Sample, d.Phi)
		case !(d.EfficiencyError >= 0 && d.EfficiencySE >= 0):
			return fmt.Errorf("day %d has the efficiency error %v and its standard error %v", i, d.EfficiencyError, d.EfficiencySE)
		case d.Sums.Name != dayFile(d.Dataset, d.Model, d.Generation) || !isDigest(d.Sums.SHA256) || d.Sums.Bytes < 1:
			return fmt.Errorf("day %d has the sums %q with digest %q", i, d.Sums.Name, d.Sums.SHA256)
		}
	}
	return nil
}
