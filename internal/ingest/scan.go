package ingest

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"shaver/internal/dataset"
	"shaver/internal/fault"
	"shaver/internal/random"
	"shaver/internal/rawtext"
	"shaver/internal/vocabulary"
)

// Summary is what an import did.
type Summary struct {
	dataset.Manifest
	Digest   string   // of the new dataset
	Bad      []string // messages of the first lines left out
	Unseen   []int64  // with a vocabulary that was brought: rows with the id of unseen values, by field
	Reserved []int    // with such a vocabulary: ids that no value can get, by field
	Scans    []Scan   // scans of the input, in order; the last one wrote the dataset
}

// Scan is one reading of all input files.
type Scan struct {
	Bytes int64 // of input files, as they lie on disk; without those that an earlier import had counted
	Time  time.Duration
}

// Settings that errors name (see fault.Setting), besides those of vocabulary.
const (
	IDsSetting      = "ids" // EncodedConfig.Global
	SizesSetting    = vocabulary.SizesSetting
	SplitSetting    = "split"
	MemorySetting   = vocabulary.MemorySetting
	MinCountSetting = "min count"
	NumbersSetting  = "numbers"                // the rule of Criteo
	UnseenSetting   = vocabulary.UnseenSetting // the oov of ReadVocabulary
)

// Progress is called now and then with the rows read so far and the bytes, of
// all input files as they lie on disk and of all scans of them.
type Progress func(rows, bytesRead, bytesTotal int64)

// scans is the state of the scans of the input files.
type scans struct {
	ctx      context.Context
	progress Progress
	done     int64 // bytes of files that were read to their end
	total    int64
	rows     int64
	seen     map[string]dataset.File // by path: a file must not change between scans
	ended    []Scan

	// of the current scan
	bad     badRows
	sources []dataset.File
	start   time.Time
	before  int64 // what done was
}

func newScans(ctx context.Context, policy string, progress Progress, paths []string, times int) (*scans, error) {
	bad, err := newBadRows(policy)
	if err != nil {
		return nil, err
	}
	p := &scans{ctx: ctx, bad: bad, progress: progress, seen: map[string]dataset.File{}}
	for _, path := range paths {
		size, err := int64(0), error(nil) // nobody knows standard input's
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

// begin starts a scan. What an earlier scan counted is discarded.
func (p *scans) begin() {
	p.bad.reset()
	p.sources = nil
	p.start, p.before = time.Now(), p.done
}

// end ends a scan.
func (p *scans) end() { p.ended = append(p.ended, Scan{p.done - p.before, time.Since(p.start)}) }

// tick counts a row that was read from s.
func (p *scans) tick(s *rawtext.Source) error {
	p.rows++
	if p.rows%4096 != 0 {
		return nil
	}
	if p.progress != nil && p.rows%(1<<16) == 0 {
		p.progress(p.rows, p.done+s.Read(), p.total)
	}
	return p.ctx.Err()
}

// finish ends the reading of a file.
func (p *scans) finish(s *rawtext.Source) error {
	digest, size, err := s.Digest()
	if err != nil {
		return err
	}
	return p.note(s.Path, dataset.File{File: filepath.Base(s.Path), SHA256: digest, Bytes: size})
}

// note notes the file that was at path, which must be the same in every scan.
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

// ratio is how rows are drawn into train, val and test.
type ratio struct {
	dataset.Division
	parts [3]uint64
	total uint64
}

// parseRatio reads "8:1:1": whole numbers, of which val's and test's may be 0.
func parseRatio(text string, seed uint64) (*ratio, error) {
	parts := strings.Split(text, ":")
	r := &ratio{Division: dataset.Division{Ratio: text, Seed: seed}}
	for k, part := range parts {
		n, err := strconv.ParseUint(part, 10, 32)
		if err != nil || len(parts) != 3 || k == 0 && n == 0 {
			return nil, fault.Setting(fault.Usagef("split is %q, expected train:val:test in whole numbers, as in 8:1:1", text), SplitSetting)
		}
		r.parts[k] = n
		r.total += n
	}
	return r, nil
}

// splits returns the names of the splits that get rows.
func (r *ratio) splits() []string {
	var names []string
	for k, part := range r.parts {
		if part > 0 {
			names = append(names, dataset.SplitNames[k])
		}
	}
	return names
}

// draw returns the position in splits of the split of a row. Each row is drawn
// on its own, with the ratio as probabilities, from the seed and its position in
// the input alone (rows left out count): nothing else changes where it goes, and
// the splits' sizes meet the ratio only on average.
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
