package sweep

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/value/estimator"
)

// The methods of models that are measured as they are. If a training made the table of a model,
// the method has the name of the kind of table, such as pep.
const (
	OfTuned = "tuned" // a pruned model that was tuned
	OfFile  = "model" // any other model
)

// ModelFile describes the file of a model that is measured as it is.
type ModelFile struct {
	File     string  `json:"file"`               // base name
	Model    string  `json:"model"`              // SHA-256 of the model
	Training string  `json:"training,omitempty"` // SHA-256 of the settings of its training without the seed; empty if the file has no settings
	Seed     *uint64 `json:"seed,omitempty"`     // seed of its training
	Sparsity float64 `json:"sparsity,omitempty"` // sparsity that its training had to reach; 0 = none
}

// Ready is a model that Run measures as it is, with its own table and head.
type Ready struct {
	File  ModelFile
	Point Point // without Model and Measure, but with the sizes of Measure
	// Open returns the model.
	Open func() (*model.Model, error)
}

// addModel measures a model as it is, and appends its file and its point to the document.
func (r *run) addModel(ctx context.Context, of *Ready) error {
	m, err := of.Open()
	if err != nil {
		return err
	}
	p := of.Point
	if err := r.compare(ctx, m, &p); err != nil {
		return fmt.Errorf("%s: %w", of.File.File, err)
	}
	p.Model = new(len(r.d.Models))
	r.d.Models = append(r.d.Models, of.File)
	r.d.Points = append(r.d.Points, p)
	return nil
}

// ModelOf returns the file of a point, or nil unless the point is that of a model that was
// measured as it is.
func (d *Document) ModelOf(p *Point) *ModelFile {
	if p.Model == nil {
		return nil
	}
	return &d.Models[*p.Model]
}

// recipe is equal for the points of models that are repeats: those with the same settings of their
// training. A model without settings has no repeats.
type recipe struct {
	training string
	model    int // index of a model without settings, or -1
}

func (d *Document) recipe(p *Point) recipe {
	if f := d.ModelOf(p); f.Training != "" {
		return recipe{f.Training, -1}
	}
	return recipe{"", *p.Model}
}

// fileLabel returns the file that labels the point of a model. For repeats it is the first of their
// files. It returns "" if the method is label enough, because the models of the method have different
// budgets.
func (d *Document) fileLabel(p *Point) string {
	type budget struct {
		sparsity         float64
		parameters       int
		baseline, values string
	}
	own, at, file, several := d.recipe(p), map[budget]recipe{}, "", p.Method == OfFile
	for i := range d.Points {
		q := &d.Points[i]
		if q.Model == nil || q.Method != p.Method {
			continue
		}
		f, of := d.ModelOf(q), d.recipe(q)
		if of == own && file == "" {
			file = f.File
		}
		b := budget{f.Sparsity, 0, q.Baseline, q.Values}
		if f.Sparsity == 0 {
			b.parameters = q.Parameters
		}
		if other, ok := at[b]; ok && other != of {
			several = true
		}
		at[b] = of
	}
	if !several {
		return ""
	}
	return file
}

var kinds = regexp.MustCompile("^[a-z]{1,32}$")

// MethodOf returns the method of a model with the given kind of table, which a training made. It is
// the kind up to a colon. If that is not a word, or is a method that makes a table smaller, MethodOf
// returns OfFile.
func MethodOf(table string) string {
	kind, _, _ := strings.Cut(table, ":")
	taken := slices.Concat([]string{SSEDS, SNIP, ByShapley}, Rivals(), estimator.Names())
	if !kinds.MatchString(kind) || slices.Contains(taken, kind) {
		return OfFile
	}
	return kind
}

// checkModel returns an error unless the point of a model has a file, no source, and a method that
// MethodOf may return.
func (d *Document) checkModel(p *Point) error {
	switch {
	case *p.Model < 0 || *p.Model >= len(d.Models):
		return fault.Inputf("model %d, expected an index below %d", *p.Model, len(d.Models))
	case p.Source != nil:
		return fault.Inputf("both a model and a source, expected at most one")
	case MethodOf(p.Method) != p.Method:
		return fault.Inputf("method %q of a model: expected the kind of its table, %s or %s", p.Method, OfTuned, OfFile)
	}
	return nil
}

// Check returns bad input if f has impossible values.
func (f *ModelFile) Check() error {
	if f.File == "" {
		return fault.Inputf("a file without a name")
	}
	if !(f.Sparsity >= 0 && f.Sparsity < 1) || math.Signbit(f.Sparsity) {
		return fault.Inputf("sparsity %v is outside [0, 1)", f.Sparsity)
	}
	return nil
}
