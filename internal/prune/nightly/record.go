package nightly

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/base/files"
)

// RecordVersion is the form of Record.
const RecordVersion = "shaver.night/1"

// How a night ended.
const (
	Published = "published"
	Failed    = "failed"    // the pruned model failed its check
	Abandoned = "abandoned" // the night could not be finished, and a later one replaced it
)

// Record is the file night.json in the folder of a night: what the night is about, and what
// is done.
type Record struct {
	Version   string    `json:"version"`
	Night     string    `json:"night"`    // name of the folder
	Number    int       `json:"number"`   // of the night, from 1 on
	Model     string    `json:"model"`    // digest of the model
	ModelFile string    `json:"file"`     // name of the copy of the checkpoint, in the folder model
	Days      []Day     `json:"days"`     // oldest first
	Settings  string    `json:"settings"` // digest of the settings that change results
	Previous  *Previous `json:"previous"` // the night that was published when this one began; null = none
	Started   string    `json:"started"`  // RFC 3339, UTC
	// Attempts is the number of processes that worked on the night.
	Attempts int      `json:"attempts"`
	Steps    []Done   `json:"steps"`
	Chosen   *Chosen  `json:"chosen,omitempty"` // nil if every night is scored, or if no night is published
	Scored   *Scored  `json:"scored"`
	Pruned   *Pruned  `json:"pruned"`
	Checked  *Checked `json:"checked"`
	Error    string   `json:"error,omitempty"`   // why the last attempt ended, unless it was interrupted
	Outcome  string   `json:"outcome,omitempty"` // published, failed or abandoned; missing = not finished
	Finished string   `json:"finished,omitempty"`
}

// Day is a day of the window.
type Day struct {
	Name   string `json:"name"` // of the folder
	Digest string `json:"digest"`
}

// Previous is an earlier night whose pruned model is taken into account.
type Previous struct {
	Night  string `json:"night"`
	Pruned string `json:"pruned"` // digest of its pruned model's file
}

// Done is a step that is finished.
type Done struct {
	Step        string            `json:"step"`
	Inputs      string            `json:"inputs"` // digest of everything that the step's files follow from
	Files       map[string]string `json:"files"`  // SHA-256 of each file
	Seconds     float64           `json:"seconds"`
	CoreSeconds float64           `json:"core_seconds"`
}

func (r *Record) finished() bool { return r.Outcome != "" }

// done returns the record of a step, or nil.
func (r *Record) done(step string) *Done {
	for i := range r.Steps {
		if r.Steps[i].Step == step {
			return &r.Steps[i]
		}
	}
	return nil
}

// digest returns the digest of a file of the night, or "" if no step has written it.
func (r *Record) digest(file string) string {
	for _, d := range r.Steps {
		if sum, ok := d.Files[file]; ok {
			return sum
		}
	}
	return ""
}

// scores returns the digest of the scores by which the night is pruned.
func (r *Record) scores() string {
	if r.Chosen != nil && r.Chosen.Kept {
		return r.Chosen.Scores
	}
	return r.digest(ScoresFile)
}

// save writes the record to the folder of its night.
func (r *Record) save(folder string) error { return writeJSON(filepath.Join(folder, RecordFile), r) }

// readRecords returns the records of the nights in a folder, in the order of their numbers.
func readRecords(nights string) ([]*Record, error) {
	entries, err := os.ReadDir(nights)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var records []*Record
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		folder := filepath.Join(nights, e.Name())
		path := filepath.Join(folder, RecordFile)
		if info, err := os.Lstat(path); !e.IsDir() || errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			return nil, fault.Inputf("%s is not the folder of a night, which has a file %s: move it to another place", folder, RecordFile)
		}
		r := &Record{}
		if err := readJSON(path, r); err != nil {
			return nil, err
		}
		if r.Version != RecordVersion || r.Night != e.Name() || r.Number < 1 || r.Number > mostNights {
			return nil, fault.Inputf("%s: version %q, night %q, number %d: expected version %q and the night %s", path, r.Version, r.Night, r.Number, RecordVersion, e.Name())
		}
		if err := r.validate(); err != nil {
			return nil, fault.Inputf("%s is not a file that shaver nightly wrote: %w", path, err)
		}
		records = append(records, r)
	}
	slices.SortFunc(records, func(a, b *Record) int { return a.Number - b.Number })
	return records, nil
}

// mostNights is the largest number of a night.
const mostNights = 1 << 40

// validate returns an error if a name in the record could lead out of its folder, or if a
// step that is done has no result.
func (r *Record) validate() error {
	names := []string{r.ModelFile}
	for _, d := range r.Days {
		names = append(names, d.Name)
	}
	if r.Previous != nil {
		names = append(names, r.Previous.Night)
	}
	for _, name := range names {
		if !isName(name) {
			return fmt.Errorf("the name %q, expected that of a file or a folder without a path", name)
		}
	}
	for _, d := range r.Steps {
		files, known := stepFiles[d.Step]
		if !known {
			return fmt.Errorf("the step %q is unknown", d.Step)
		}
		for _, file := range slices.Sorted(maps.Keys(d.Files)) {
			if !slices.Contains(files, file) && !slices.Contains(optionalFiles[d.Step], file) {
				return fmt.Errorf("the step %s has the file %q, expected %s", d.Step, file, strings.Join(files, " and "))
			}
		}
		for _, file := range files {
			if d.Files[file] == "" {
				return fmt.Errorf("the step %s has no digest of %s", d.Step, file)
			}
		}
		if d.Step == stepChoose && r.Chosen == nil || d.Step == stepScore && r.Scored == nil || d.Step == stepPrune && r.Pruned == nil || d.Step == stepCheck && r.Checked == nil {
			return fmt.Errorf("the step %s is done, but its result is missing", d.Step)
		}
	}
	return nil
}

// isName reports whether name is that of a file or a folder, and not a path.
func isName(name string) bool {
	return name != "." && name == filepath.Base(name) && filepath.IsLocal(name)
}

// written is what a file of the folder should be, for errors.
const written = "a file that shaver nightly wrote"

// mostJSON is the size of the largest JSON file that is read, in MiB.
const mostJSON = 64

// readAll reads at most mostJSON MiB. path is the name of the file in errors.
func readAll(r io.Reader, path string) ([]byte, error) {
	return files.Read(r, path, mostJSON, written)
}

// readJSON reads a file that this package wrote.
func readJSON(path string, to any) error {
	text, err := files.Small(path, mostJSON, written)
	if err != nil {
		return err
	}
	return parseJSON(path, text, to)
}

func parseJSON(path string, text []byte, to any) error {
	if err := json.Unmarshal(text, to); err != nil {
		return fault.Inputf("%s is not a file that shaver nightly wrote: %w", path, err)
	}
	return nil
}

func writeJSON(path string, value any) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetIndent("", "  ")
	if err := e.Encode(value); err != nil {
		return err
	}
	return write(path, text.Bytes())
}

func write(path string, text []byte) error {
	return atomicfile.Write(path, func(w io.Writer) error { _, err := w.Write(text); return err })
}

// digestOf returns the SHA-256 of values that are written one after the other.
func digestOf(values ...string) string {
	sum := sha256.New()
	for _, v := range values {
		fmt.Fprintf(sum, "%q\n", v)
	}
	return hex.EncodeToString(sum.Sum(nil))
}
