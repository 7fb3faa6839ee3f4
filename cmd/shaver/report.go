package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"shaver/internal/atomicfile"
	"shaver/internal/cli"
	"shaver/internal/fault"
	"shaver/internal/launch"
	"shaver/internal/picture"
	"shaver/internal/report"
	"shaver/internal/scores"
	"shaver/internal/sweep"
)

type reportOptions struct {
	model, scores, sweep, dataset, aggregate string
	out, pictures                            string
	output                                   cli.Output
}

// written is what "report" prints.
type written struct {
	Out      string   `json:"out"`
	Bytes    int      `json:"bytes"`
	Pictures []string `json:"pictures"`
}

func reportCommand() *cobra.Command {
	var o reportOptions
	c := &cobra.Command{
		Use:   "report",
		Short: "Write what a job found, and what pruning by it costs, as one HTML page",
		Long: `Write one HTML page that needs nothing beside it, neither a network nor a script:
what each field is worth and keeps, what is kept of rare and of frequent features,
how sure the values and the division at each sparsity are, and the facts of the job;
with --sweep, the document of "shaver sweep -o json" over the same scores, also AUC
and LogLoss of each method.

What the job took is read from NAME.job.json beside the scores, if it is there. With
--dataset, features are called what its vocabulary calls them. --pictures writes the
page's pictures as files, too.

` + cli.ExitHelp,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.Required(c, "model", "scores", "out"); err != nil {
				return err
			}
			if err := o.output.Check(); err != nil {
				return err
			}
			return o.run(c)
		},
	}
	f := c.Flags()
	f.StringVar(&o.model, "model", "", "the checkpoint that was scored")
	f.StringVar(&o.scores, "scores", "", "its scores")
	f.StringVar(&o.sweep, "sweep", "", "what \"shaver sweep -o json\" found with them")
	f.StringVar(&o.dataset, "dataset", "", "the dataset that was scored, for its vocabulary")
	f.StringVar(&o.aggregate, "aggregate", scores.Sum, "what of the scores to rank by: "+scores.AggregateHelp())
	f.StringVar(&o.out, "out", "", "file to write, HTML")
	f.StringVar(&o.pictures, "pictures", "", "folder to write the pictures into as "+strings.Join(picture.Formats(), " and "))
	o.output.Flag(c)
	return c
}

func (o *reportOptions) run(c *cobra.Command) error {
	if err := cli.CheckOut(o.out, o.model, o.scores, o.sweep); err != nil {
		return err
	}
	facts, err := o.facts()
	if err != nil {
		return err
	}
	r, err := report.Write(facts)
	if err != nil {
		return err
	}
	result := written{Out: o.out, Bytes: len(r.HTML), Pictures: []string{}}
	if o.pictures != "" {
		if err := os.MkdirAll(o.pictures, 0o755); err != nil {
			return fault.Usagef("--pictures: %w", err)
		}
		for _, p := range r.Pictures {
			for _, format := range picture.Formats() {
				path := filepath.Join(o.pictures, p.Name+format)
				if err := p.Write(path); err != nil {
					return err
				}
				result.Pictures = append(result.Pictures, path)
			}
		}
	}
	if err := atomicfile.Write(o.out, func(w io.Writer) error { _, err := w.Write(r.HTML); return err }); err != nil {
		return err
	}
	return o.output.Print(c.OutOrStdout(), result, func(w io.Writer) {
		fmt.Fprintf(w, "report\t%s\t%d bytes\n", result.Out, result.Bytes)
		for _, path := range result.Pictures {
			fmt.Fprintf(w, "picture\t%s\n", path)
		}
	})
}

// facts reads everything that the report tells of.
func (o *reportOptions) facts() (*report.Facts, error) {
	p, err := openPruner(o.model, o.scores)
	if err != nil {
		return nil, err
	}
	s := p.scores[0]
	f := &report.Facts{Architecture: &p.checkpoint.Architecture, Entries: p.table, Scores: s, Aggregate: o.aggregate}
	if f.Digest, err = scores.Digest(o.scores); err != nil {
		return nil, err
	}
	if f.Run, err = readRun(o.scores, f.Digest); err != nil {
		return nil, err
	}
	if o.sweep != "" {
		if f.Sweep, err = readSweep(o.sweep); err != nil {
			return nil, fmt.Errorf("%s: %w", o.sweep, err)
		}
		if err := f.Check(); err != nil {
			return nil, fmt.Errorf("%s: %w", o.sweep, err)
		}
	}
	f.Ends, err = o.ends(p)
	return f, err
}

// ends returns the most and the least valuable features of each field.
func (o *reportOptions) ends(p *pruner) ([]report.Ends, error) {
	ranked, err := p.ranked(o.aggregate, o.dataset, make([]bool, len(p.table)))
	if err != nil {
		return nil, err
	}
	named := func(list []featureValue) (features []report.Feature) {
		for _, x := range list {
			name := x.Name
			if name == "" {
				name = "id " + strconv.Itoa(x.ID)
			}
			features = append(features, report.Feature{Name: name, Count: x.Count, Worth: x.Worth})
		}
		return features
	}
	var all []report.Ends
	for _, features := range ranked {
		top, bottom := ends(features, 3)
		all = append(all, report.Ends{Top: named(top), Bottom: named(bottom)})
	}
	return all, nil
}

// readRun reads what the job took from beside the scores; nil if it is not there.
func readRun(scoresFile, digest string) (*report.Run, error) {
	path := launch.ReportPath(scoresFile)
	data, err := readSmall(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var r launch.JobReport
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fault.Inputf("%s is not the report of a run: %w", path, err)
	}
	if r.Digests.Scores != digest {
		return nil, fault.Inputf("%s is of other scores: their digest is %.12s, that of %s %.12s", path, r.Digests.Scores, scoresFile, digest)
	}
	if r.Shards == 0 { // the run that computed the scores told nothing
		return nil, nil
	}
	return &report.Run{Seconds: r.Seconds, CPUSeconds: r.CPUSeconds, Resumed: r.Resumed, Shards: r.Shards, Workers: len(r.Workers)}, nil
}

func readSweep(path string) (*sweep.Document, error) {
	data, err := readSmall(path)
	if err != nil {
		return nil, err
	}
	return sweep.Parse(data)
}

// readSmall reads a file that has no reason to be large.
func readSmall(path string) ([]byte, error) {
	const most = 64 << 20
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && len(data) > most {
		err = fault.Inputf("it has more than %d MiB", most>>20)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return data, nil
}
