package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/base/fault"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/picture"
	"shaver/internal/value/compare"
	"shaver/internal/value/tally"
)

// comparison is what "scores compare" prints. It covers the entries of the features
// that occur in the rows of both jobs.
type comparison struct {
	Aggregate string `json:"aggregate"`
	agreement
	Overlap []overlapAt      `json:"overlap"`
	Fields  []fieldAgreement `json:"fields"` // fields without common entries are left out
	Differ  []job.Difference `json:"differ"` // settings in which the two jobs differ

	picture *picture.Picture
	ordered bool // one of the files has an order and no values
}

// agreement says how far the values of some entries agree. Figures that are not defined
// are null.
type agreement struct {
	Entries     int      `json:"entries"`
	RelativeRMS *float64 `json:"relative_rms"` // root mean square of the difference, relative to the second file's; null if that is 0
	Spearman    *float64 `json:"spearman"`     // rank correlation of the magnitudes; null if all are equal
	Shift       *float64 `json:"shift"`        // mean of the difference, relative to the mean magnitude of the second file; null if that is 0
	// Beyond is the portion of Known whose difference exceeds two standard errors; null if
	// Known is 0.
	Beyond *float64 `json:"beyond"`
	Known  int      `json:"known"` // number of entries of features in at least tally.LeastRows rows of both jobs
}

// fieldAgreement is the agreement in one field.
type fieldAgreement struct {
	Field string `json:"field"`
	agreement
}

// overlapAt is the agreement of the kept entries at a sparsity.
type overlapAt struct {
	Sparsity float64 `json:"sparsity"`
	Portion  float64 `json:"portion"` // share of the entries kept by one file that the other keeps too
}

// compareOptions are the flags of "scores compare".
type compareOptions struct {
	aggregate  string
	given      bool // the user gave the aggregate
	sparsities []float64
	picture    string
	outputs    cli.Outputs
	output     cli.Output
}

func scoresCompareCommand() *cobra.Command {
	var o compareOptions
	c := &cobra.Command{
		Use:   "compare A B",
		Short: "Compare two scores files",
		Long:  help("scores-compare"),
		Example: `  shaver scores compare tuesday.arrow monday.arrow
  shaver scores compare walks.arrow fast.arrow --sparsities 0.9,0.99
  shaver scores compare tuesday.arrow monday.arrow --picture drift.svg`,
		ValidArgsFunction: cli.FileArgs("arrow"),
		Args:              cli.Args(cobra.ExactArgs(2)),
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.output.Check(); err != nil {
				return err
			}
			for _, t := range o.sparsities {
				if !(t >= 0 && t <= 1) {
					return fault.Usagef("--sparsities: sparsity %v is outside [0, 1]", t)
				}
			}
			o.outputs.Inputs(args...)
			if c.Flags().Changed("picture") {
				if err := o.outputs.Check("--picture", o.picture, pictures); err != nil {
					return err
				}
			}
			if err := picture.Check(o.picture); err != nil {
				return err
			}
			o.given = c.Flags().Changed("aggregate")
			result, err := o.compare(args[0], args[1])
			if err != nil {
				return err
			}
			if o.picture != "" {
				if err := result.picture.Write(o.picture); err != nil {
					return err
				}
			}
			return o.output.Print(c.OutOrStdout(), result, result.table)
		},
	}
	c.Flags().StringVar(&o.aggregate, "aggregate", scores.DefaultAggregate, "`aggregate` to compare: "+scores.AggregateHelp())
	cli.OneOf(c, "aggregate", scores.Aggregates()...)
	portionsFlag(c, &o.sparsities, "sparsities", []float64{.5, .8, .9, .95, .99}, "`portions` of the entries to drop, separated by commas")
	c.Flags().StringVar(&o.picture, "picture", "", "`file` for a picture of both values and of the overlap: "+strings.Join(picture.Formats(), " or ")+" (default none)")
	cli.Files(c, "picture", "svg", "png")
	o.outputs.Flag(c, "a file at --picture that is not a picture written by shaver")
	o.output.Flag(c)
	return c
}

// common holds the values of the entries that are compared, in the order of the tables.
type common struct {
	left, right []float64
	errors      []float64 // standard errors of left - right; NaN if a feature occurs in too few rows for them
	ordered     bool      // one of the files has an order and no values, so only ranks can be compared
}

func (c *common) append(o *common) {
	c.left, c.right, c.errors = append(c.left, o.left...), append(c.right, o.right...), append(c.errors, o.errors...)
}

// part returns the entries [from, to).
func (c *common) part(from, to int) *common {
	return &common{c.left[from:to:to], c.right[from:to:to], c.errors[from:to:to], c.ordered}
}

func (c *common) agreement() agreement {
	a := agreement{
		Entries: len(c.left), RelativeRMS: scores.Figure(compare.RelativeRMS(c.left, c.right)),
		Spearman: scores.Figure(compare.Spearman(c.left, c.right)), Shift: scores.Figure(compare.Shift(c.left, c.right)),
	}
	if c.ordered {
		a.RelativeRMS, a.Shift = nil, nil
		return a
	}
	beyond := 0
	for i, e := range c.errors {
		if math.IsNaN(e) {
			continue
		}
		a.Known++
		if math.Abs(c.left[i]-c.right[i]) > 2*e {
			beyond++
		}
	}
	a.Beyond = scores.Figure(float64(beyond) / float64(a.Known))
	return a
}

func (o *compareOptions) compare(fileA, fileB string) (*comparison, error) {
	a, err := scores.Read(fileA)
	if err != nil {
		return nil, err
	}
	b, err := scores.Read(fileB)
	if err != nil {
		return nil, err
	}
	if !a.Layout.SameLayout(&b.Layout) {
		return nil, fault.Inputf("%s has fields of %v features and %s, %s has %v and %s: expected the same tables", fileA, a.Layout.FieldDims, a.Layout.Size(), fileB, b.Layout.FieldDims, b.Layout.Size())
	}
	if o.picture != "" {
		if err := cmp.Or(a.CheckValues(fileA, "--picture"), b.CheckValues(fileB, "--picture")); err != nil {
			return nil, err
		}
	}
	if a.Ranks() && b.Ranks() && !o.given {
		o.aggregate = scores.ByPath
	}
	all, fields, err := commonOf(a, b, o.aggregate)
	if err != nil {
		return nil, fault.Usagef("%w", err)
	}
	if len(all.left) == 0 {
		return nil, fault.Inputf("%s and %s: no feature occurs in the rows of both", fileA, fileB)
	}
	r := &comparison{ordered: all.ordered, Aggregate: o.aggregate, agreement: all.agreement(), Differ: job.Differences(&a.Spec, &b.Spec)}
	for _, t := range o.sparsities {
		r.Overlap = append(r.Overlap, overlapAt{t, compare.Overlap(all.left, all.right, t)})
	}
	for j, f := range fields {
		if len(f.left) > 0 {
			r.Fields = append(r.Fields, fieldAgreement{a.Fields[j], f.agreement()})
		}
	}
	if o.picture != "" {
		r.picture = o.draw(fileA, fileB, all)
	}
	return r, nil
}

// commonOf returns the entries of the features that occur in the rows of both files, all
// together and by field.
func commonOf(a, b *scores.File, aggregate string) (all *common, fields []common, err error) {
	var values, errors [2][]float64
	ordered := a.Ranks() || b.Ranks()
	for i, f := range []*scores.File{a, b} {
		if f.Ranks() && a.Ranks() != b.Ranks() { // the aggregate is that of the other file
			values[i], err = f.Aggregate(scores.ByPath)
		} else {
			values[i], err = f.Aggregate(aggregate)
		}
		if err != nil {
			return nil, nil, err
		}
		if f.Ranks() {
			for k := range values[i] {
				values[i][k]++ // compare.Overlap never keeps an entry whose value is 0
			}
		}
		if ordered {
			errors[i] = slices.Repeat([]float64{math.NaN()}, len(values[i]))
		} else if errors[i], err = f.AggregateSE(aggregate); err != nil {
			return nil, nil, err
		}
	}
	all, fields = &common{ordered: ordered}, make([]common, len(a.Fields))
	spans := a.Layout.Spans()
	ends := make([]int, len(spans)+1) // number of entries before each span, and of all
	for k, s := range spans {
		for f := s.Row; f < s.Row+s.Rows; f++ {
			if a.Count[f] == 0 || b.Count[f] == 0 {
				continue
			}
			from, to := a.Shape.Row(f)
			all.left, all.right = append(all.left, values[0][from:to]...), append(all.right, values[1][from:to]...)
			for i := from; i < to; i++ {
				e := math.Hypot(errors[0][i], errors[1][i])
				if min(a.Count[f], b.Count[f]) < tally.LeastRows {
					e = math.NaN()
				}
				all.errors = append(all.errors, e)
			}
		}
		ends[k+1] = len(all.left)
	}
	for k, s := range spans {
		if part, f := all.part(ends[k], ends[k+1]), &fields[s.Field]; len(f.left) == 0 {
			*f = *part // most fields have one span, which needs no copy
		} else {
			f.append(part)
		}
	}
	return all, fields, nil
}

// draw returns the picture of the comparison.
func (o *compareOptions) draw(fileA, fileB string, all *common) *picture.Picture {
	const cells = 72
	d := compare.NewDensity(all.left, all.right, cells)
	p := picture.Agreement{X: filepath.Base(fileB), Y: filepath.Base(fileA), Unit: o.aggregate + ", nat", Low: d.Low, High: d.High, Count: d.Count}
	for _, t := range []float64{0, .25, .5, .7, .8, .85, .9, .93, .95, .97, .98, .99, .995, .999} {
		p.Overlap.X = append(p.Overlap.X, t)
		p.Overlap.Y = append(p.Overlap.Y, compare.Overlap(all.left, all.right, t))
	}
	return p.Draw()
}

func (r *comparison) table(w io.Writer) {
	for _, d := range r.Differ {
		fmt.Fprintf(w, "%s\t%s\t%s\n", d.Name, d.A, d.B)
	}
	fmt.Fprintf(w, "entries\t%d\n", r.Entries)
	if !r.ordered {
		fmt.Fprintf(w, "relative RMS\t%s\n", figure(r.RelativeRMS, 1, "%.4f"))
	}
	fmt.Fprintf(w, "Spearman\t%s\n", figure(r.Spearman, 1, "%.4f"))
	if !r.ordered {
		fmt.Fprintf(w, "shift\t%s\n", figure(r.Shift, 100, "%+.2f%%"))
		fmt.Fprintf(w, "beyond 2 SE\t%s\tof %d entries with standard errors\n", figure(r.Beyond, 100, "%.2f%%"), r.Known)
	}
	for _, o := range r.Overlap {
		fmt.Fprintf(w, "kept by both\t%.4f\tat sparsity %g\n", o.Portion, o.Sparsity)
	}
	if r.ordered {
		fmt.Fprintln(w, "\nFIELD\tENTRIES\tSPEARMAN")
		for _, f := range r.Fields {
			fmt.Fprintf(w, "%s\t%d\t%s\n", cli.Printable(f.Field), f.Entries, figure(f.Spearman, 1, "%.4f"))
		}
		return
	}
	fmt.Fprintln(w, "\nFIELD\tENTRIES\tRELATIVE RMS\tSPEARMAN\tSHIFT\tBEYOND 2 SE")
	for _, f := range r.Fields {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\n", cli.Printable(f.Field), f.Entries, figure(f.RelativeRMS, 1, "%.4f"), figure(f.Spearman, 1, "%.4f"), figure(f.Shift, 100, "%+.2f%%"), figure(f.Beyond, 100, "%.2f%%"))
	}
}

// figure formats a figure times a factor, or "-" if it is not defined.
func figure(v *float64, factor float64, format string) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf(format, *v*factor)
}
