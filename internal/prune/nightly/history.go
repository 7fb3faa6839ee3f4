package nightly

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"math"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
)

// LineVersion is the form of Line.
const LineVersion = "shaver.history/1"

// What a night did with the choice of entries of the published night.
const (
	ChoiceKept   = "kept"   // it stays
	ChoiceScored = "scored" // the night was scored
)

// Line is a line of history.jsonl: what a night did. Null means that a value is unknown or
// does not exist, as the churn of the first night.
type Line struct {
	Version  string   `json:"version"`
	Night    string   `json:"night"`
	Number   int      `json:"number"`           // of the night, from 1 on
	Outcome  string   `json:"outcome"`          // published or failed
	Reasons  []string `json:"reasons"`          // why the pruned model failed its check; empty if it passed
	Answer   []string `json:"answer,omitempty"` // Checked.Answer
	Started  string   `json:"started"`          // RFC 3339, UTC
	Finished string   `json:"finished"`
	// Attempts is the number of processes that worked on the night. The times of attempts that
	// were interrupted are not counted.
	Attempts         int     `json:"attempts"`
	Seconds          float64 `json:"seconds"`
	CoreSeconds      float64 `json:"core_seconds"`
	ScoreCoreSeconds float64 `json:"score_core_seconds"` // part of CoreSeconds

	Days            []string `json:"days"` // names, oldest first
	Generation      int      `json:"generation"`
	Rows            int64    `json:"rows"`
	Evaluations     int64    `json:"evaluations"`
	FullEvaluations int64    `json:"full_evaluations"`
	RelativeError   *float64 `json:"relative_error"`
	Reduction       *float64 `json:"reduction"`
	Note            string   `json:"note,omitempty"`
	// Choice is ChoiceKept or ChoiceScored with the setting reuse, and otherwise missing. KeptRise is Chosen.Rise.
	Choice       string   `json:"choice,omitempty"`
	Why          string   `json:"why,omitempty"`
	KeptRise     *float64 `json:"kept_rise,omitempty"`
	KeptRiseLow  *float64 `json:"kept_rise_low,omitempty"`
	KeptRiseHigh *float64 `json:"kept_rise_high,omitempty"`

	Sparsity   float64  `json:"sparsity"`
	Bytes      int64    `json:"bytes"`
	DenseBytes int64    `json:"dense_bytes"`
	Churn      *float64 `json:"churn"`
	PlainChurn *float64 `json:"plain_churn"`
	Tables     []Table  `json:"tables,omitempty"` // nil in lines of older programs

	AUC              *float64 `json:"auc"`
	PrunedAUC        *float64 `json:"pruned_auc"`
	AUCDrop          *float64 `json:"auc_drop"`
	AUCDropLow       *float64 `json:"auc_drop_low"`
	AUCDropHigh      *float64 `json:"auc_drop_high"`
	AUCDropBound     *float64 `json:"auc_drop_bound,omitempty"`
	LogLoss          *float64 `json:"log_loss,omitempty"` // nil if labels are numbers
	PrunedLogLoss    *float64 `json:"pruned_log_loss,omitempty"`
	LogLossRise      *float64 `json:"log_loss_rise"`
	LogLossRiseLow   *float64 `json:"log_loss_rise_low"`
	LogLossRiseHigh  *float64 `json:"log_loss_rise_high"`
	LogLossRiseBound *float64 `json:"log_loss_rise_bound,omitempty"`
	RMSE             *float64 `json:"rmse,omitempty"` // nil unless labels are numbers
	PrunedRMSE       *float64 `json:"pruned_rmse,omitempty"`
	RMSERise         *float64 `json:"rmse_rise,omitempty"`
	RMSERiseLow      *float64 `json:"rmse_rise_low,omitempty"`
	RMSERiseHigh     *float64 `json:"rmse_rise_high,omitempty"`
	RMSERiseBound    *float64 `json:"rmse_rise_bound,omitempty"`

	Model  string `json:"model"`  // digest of the model
	Scores string `json:"scores"` // SHA-256 of scores.arrow
	Pruned string `json:"pruned"` // SHA-256 of pruned.safetensors
}

// line returns the line of a night that was published or failed.
func (r *Record) line() Line {
	l := Line{
		Version: LineVersion, Night: r.Night, Number: r.Number, Outcome: r.Outcome, Reasons: []string{}, Started: r.Started, Finished: r.Finished, Attempts: r.Attempts,
		Days: []string{}, Model: r.Model, Scores: r.scores(), Pruned: r.digest(PrunedFile),
	}
	for _, d := range r.Days {
		l.Days = append(l.Days, d.Name)
	}
	for _, d := range r.Steps {
		l.Seconds += d.Seconds
		l.CoreSeconds += d.CoreSeconds
		if d.Step == stepScore {
			l.ScoreCoreSeconds = d.CoreSeconds
		}
	}
	if c := r.Chosen; c != nil {
		l.Choice, l.Why = ChoiceScored, c.Why
		if c.Kept {
			l.Choice = ChoiceKept
		}
		if c.Rise != nil {
			l.KeptRise, l.KeptRiseLow, l.KeptRiseHigh = &c.Rise.Value, c.Rise.Low, c.Rise.High
		}
	}
	if s := r.Scored; s != nil {
		l.Generation, l.Rows, l.Evaluations, l.FullEvaluations = s.Generation, s.Rows, s.Evaluations, s.FullEvaluations
		l.RelativeError, l.Reduction, l.Note = s.RelativeError, s.Reduction, s.Note
	}
	if p := r.Pruned; p != nil {
		l.Sparsity, l.Bytes, l.DenseBytes, l.Churn, l.PlainChurn = p.Sparsity, p.Bytes, p.DenseBytes, p.Churn, p.PlainChurn
		l.Tables = p.Tables
	}
	if c := r.Checked; c != nil {
		l.Reasons, l.Answer = append(l.Reasons, c.Reasons...), c.Answer
		l.AUC, l.PrunedAUC, l.LogLoss, l.PrunedLogLoss, l.RMSE, l.PrunedRMSE = c.AUC, c.PrunedAUC, c.LogLoss, c.PrunedLogLoss, c.RMSE, c.PrunedRMSE
		if d := c.AUCDrop; d != nil {
			l.AUCDrop, l.AUCDropLow, l.AUCDropHigh, l.AUCDropBound = &d.Value, d.Low, d.High, d.Bound
		}
		if d := c.LogLossRise; d != nil {
			l.LogLossRise, l.LogLossRiseLow, l.LogLossRiseHigh, l.LogLossRiseBound = &d.Value, d.Low, d.High, d.Bound
		}
		if d := c.RMSERise; d != nil {
			l.RMSERise, l.RMSERiseLow, l.RMSERiseHigh, l.RMSERiseBound = &d.Value, d.Low, d.High, d.Bound
		}
	}
	return l
}

// finite returns v, or nil if JSON cannot express it.
func finite(v *float64) *float64 {
	if v == nil || math.IsInf(*v, 0) || math.IsNaN(*v) {
		return nil
	}
	return v
}

// readHistory reads the lines of history.jsonl. A file that does not exist has no lines.
func readHistory(path string) ([]Line, error) {
	text, err := files.Small(path, mostJSON, written)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseHistory(path, text)
}

// parseHistory returns the lines of history.jsonl. path is the name of the file in errors.
func parseHistory(path string, text []byte) ([]Line, error) {
	var lines []Line
	number := 0
	for one := range bytes.Lines(text) {
		number++
		var l Line
		if err := json.Unmarshal(one, &l); err != nil {
			return nil, fault.Inputf("%s:%d: %w", path, number, err)
		}
		if l.Version != LineVersion {
			return nil, fault.Inputf("%s:%d: version %q, expected %q", path, number, l.Version, LineVersion)
		}
		if l.Number < 1 || l.Number > mostNights || !isName(l.Night) {
			return nil, fault.Inputf("%s:%d: night %q, number %d: expected a name and a number from 1 to %d", path, number, l.Night, l.Number, int64(mostNights))
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// Results returns the history of a folder of results, and which night is published, which is
// nil if none is. open opens a file of the folder by its name, and returns an error that is
// fs.ErrNotExist if there is no such file. The folder need not be on this machine.
func Results(open func(name string) (io.ReadCloser, error)) ([]Line, *Current, error) {
	read := func(name string) ([]byte, error) {
		f, err := open(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return readAll(f, name)
	}
	text, err := read(currentFile) // before the history, which has a line for each night that was published
	if err != nil {
		return nil, nil, err
	}
	var current *Current
	if text != nil {
		if current, err = parseCurrent(currentFile, text); err != nil {
			return nil, nil, err
		}
	}
	if text, err = read(historyFile); err != nil {
		return nil, nil, err
	}
	lines, err := parseHistory(historyFile, text)
	return lines, current, err
}

func writeHistory(path string, lines []Line) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	for i := range lines {
		if err := e.Encode(&lines[i]); err != nil {
			return err
		}
	}
	return write(path, text.Bytes())
}
