package ingest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"shaver/internal/base/fault"
	"shaver/internal/data/columnfile"
	"shaver/internal/data/dataset"
	"shaver/internal/data/folders"
	"shaver/internal/data/rawtext"
	"shaver/internal/data/vocabulary"
	"shaver/internal/num/random"
)

// Summary describes a finished import.
type Summary struct {
	dataset.Manifest
	Digest   string   // digest of the new dataset
	Bad      []string // messages about the first rows that were left out
	Unseen   []int64  // with RawConfig.Vocabulary: number of rows with the id of unseen values, by field
	Missing  []int64  // with RawConfig.Vocabulary: number of rows of Unseen whose value is the empty text, by field
	Examples []string // with RawConfig.Vocabulary: first unseen value in byte order that is not empty, or its first 100 bytes, by field
	Reserved []int    // with RawConfig.Vocabulary: number of ids that no value can get, by field
	Cut      []int64  // number of lists of which ids were left out, by field; nil without lists
	Padded   []int64  // number of lists with pads, by field
	Scans    []Scan   // scans of the input, in order; the last one encoded the rows
	Warnings []string // what is probably not meant, as sentences without a full stop
}

// Scan is one reading of all input files.
type Scan struct {
	Bytes int64 // bytes of the files on disk, without files that an earlier import counted
	Time  time.Duration
}

// Settings that errors name (see fault.Setting).
const (
	IDsSetting           = "ids" // EncodedConfig.Global
	SizesSetting         = vocabulary.SizesSetting
	SplitSetting         = "split" // Split of both configurations
	MemorySetting        = vocabulary.MemorySetting
	MinCountSetting      = "min count"
	NumbersSetting       = "numbers"                // parameter of Criteo
	ColumnsSetting       = "columns"                // Format.Columns
	DenseSetting         = "dense"                  // Columns of Dense
	DenseMissingSetting  = "dense missing"          // Missing of Dense
	ListSetting          = columnfile.ListSetting   // Columns of Lists
	ListSeparatorSetting = "list separator"         // Separator of Lists
	PadSetting           = "pad"                    // Pad of the columns of Lists
	ShareSetting         = "share"                  // RawConfig.Share
	LongSetting          = "long lists"             // Long of Lists
	LabelSetting         = "label"                  // Label and Others of Format
	WeightSetting        = "weight"                 // Format.Weight
	NumberLabelsSetting  = "number labels"          // Numbers of both configurations
	PositiveSetting      = "positive"               // Format.Positive
	BadRowSetting        = "bad row"                // OnBadRow of both configurations
	VocabularySetting    = "vocabulary"             // RawConfig.Vocabulary
	UnseenSetting        = vocabulary.UnseenSetting // parameter oov of ReadVocabulary
)

// Progress is called from time to time with the number of rows and bytes read so far, and
// the number of bytes to read. All three numbers cover every scan. Bytes are those of the
// files on disk.
type Progress func(rows, bytesRead, bytesTotal int64)

// scans is the state of the scans of the input files.
type scans struct {
	ctx      context.Context
	progress Progress
	done     int64                   // bytes of the files that were read completely, over all scans
	total    int64                   // bytes to read in all scans
	rows     int64                   // rows read in all scans
	seen     map[string]dataset.File // files by path, to detect a file that changes between scans
	ended    []Scan                  // finished scans
	logged   bool                    // files are parts of tables with a log
	runs     []string                // folders with files of several jobs

	// State of the current scan.
	bad     badRows
	sources []dataset.File // files that were read completely
	start   time.Time
	before  int64 // value of done at the start
}

// newScans returns the state before the first scan. times is the number of scans.
func newScans(ctx context.Context, policy string, progress Progress, paths []string, times int) (*scans, error) {
	bad, err := newBadRows(policy)
	if err != nil {
		return nil, err
	}
	p := &scans{ctx: ctx, bad: bad, progress: progress, seen: map[string]dataset.File{}, runs: folders.Runs(paths)}
	for _, path := range paths {
		size, err := int64(0), error(nil) // the size of standard input is unknown
		if path != Stdin {
			size, err = rawtext.Size(path)
		}
		if err != nil {
			return nil, err
		}
		p.total += int64(times) * size
	}
	return p, nil
}

// begin starts a scan. It discards the bad rows and sources of an earlier scan.
func (p *scans) begin() {
	p.bad.reset()
	p.sources = nil
	p.start, p.before = time.Now(), p.done
}

// end ends a scan.
func (p *scans) end() { p.ended = append(p.ended, Scan{p.done - p.before, time.Since(p.start)}) }

// note records a file that was read completely. It must be the same in every scan.
func (p *scans) note(path string, file dataset.File) error {
	if before, ok := p.seen[path]; ok && before != file {
		return fmt.Errorf("%s changed while it was read", path)
	}
	p.seen[path] = file
	p.sources = append(p.sources, file)
	p.done += file.Bytes
	if p.progress != nil {
		p.progress(p.rows, p.done, max(p.done, p.total))
	}
	return p.ctx.Err()
}

// repeated returns warnings about rows that the dataset probably has twice: one about files that were read completely and have
// the same content, and one about files of several jobs in one folder.
func (p *scans) repeated() (warnings []string) {
	if p.logged { // the log of a table says which files are current
		return nil
	}
	first, text, repeats := map[string]string{}, "", 0 // first has the name of the first file with each digest
	for _, file := range p.sources {
		switch name, there := first[file.SHA256]; {
		case !there:
			first[file.SHA256] = file.File
			continue
		case repeats > 0:
		case name == file.File:
			text = fmt.Sprintf("%s was read twice, so its rows are in the dataset twice: name each file once, in one split", name)
		default:
			text = fmt.Sprintf("%s and %s have the same content, so their rows are in the dataset twice: leave one of them out", name, file.File)
		}
		repeats++
	}
	if repeats > 1 {
		text += fmt.Sprintf("; in all, %d files repeat an earlier one", repeats)
	}
	if repeats > 0 {
		warnings = append(warnings, text)
	}
	if len(p.runs) > 0 {
		warnings = append(warnings, fmt.Sprintf("files of several jobs of Spark are in one folder, as in %s: if a job wrote the rows of an earlier one again, leave the files of the earlier one out", p.runs[0]))
	}
	return warnings
}

// ratio draws rows into splits.
type ratio struct {
	dataset.Division
	parts [4]uint64 // of dataset.SplitNames
	total uint64    // sum of parts
}

// parseRatio parses a ratio train:val:test or train:val:test:fresh of whole numbers, such as 8:1:1. At least one of them
// must be above 0; see needTrain.
func parseRatio(text string, seed uint64) (*ratio, error) {
	parts := strings.Split(text, ":")
	r := &ratio{Division: dataset.Division{Ratio: text, Seed: seed}}
	for k, part := range parts {
		n, err := strconv.ParseUint(part, 10, 32)
		if err != nil || len(parts) < 3 || len(parts) > len(r.parts) {
			return nil, fault.Setting(fault.Usagef("split is %q, expected train:val:test or train:val:test:fresh in whole numbers, such as 8:1:1", text), SplitSetting)
		}
		r.parts[k] = n
		r.total += n
	}
	if r.total == 0 {
		return nil, fault.Setting(fault.Usagef("split is %q: one of the numbers must be above 0", text), SplitSetting)
	}
	return r, nil
}

// needTrain returns an error if no row is drawn into train. use says what the rows of train are for, and
// settings are others that make them unnecessary. r may be nil.
func (r *ratio) needTrain(use string, settings ...string) error {
	if r == nil || r.parts[0] > 0 {
		return nil
	}
	return fault.Setting(fault.Usagef("split is %q: the part of train must be above 0, because %s", r.Ratio, use), append([]string{SplitSetting}, settings...)...)
}

// splits returns the names of the splits whose part is not 0.
func (r *ratio) splits() []string {
	var names []string
	for k, part := range r.parts {
		if part > 0 {
			names = append(names, dataset.SplitNames[k])
		}
	}
	return names
}

// draw returns the split of a row as a position in splits. It depends only on the ratio, the
// seed and the position of the row in the input, where rows that are left out count too.
// Each row is drawn independently, with the parts of the ratio as probabilities, so the
// sizes of the splits match the ratio only on average.
func (r *ratio) draw(row uint64) int {
	stream := random.At(r.Seed, random.Split, row, 0)
	x := stream.Below(r.total)
	k := 0
	for _, part := range r.parts {
		if part == 0 {
			continue
		}
		if x < part {
			break
		}
		x -= part
		k++
	}
	return k
}
