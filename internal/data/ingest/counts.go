package ingest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"shaver/internal/base/atomicfile"
	"shaver/internal/base/filelock"
	"shaver/internal/base/files"
	"shaver/internal/data/dataset"
	"shaver/internal/data/dense"
	"shaver/internal/data/vocabulary"
)

// The files are counted in groups. The counts of each group are written to spills, and a
// record lists the spills. If the import ends early and is started again, it resumes from
// the record.

// countsFolder returns the folder of the counts of an import to out.
func countsFolder(out string) string {
	out = filepath.Clean(out)
	return filepath.Join(filepath.Dir(out), "."+filepath.Base(out)+".counts")
}

// KeptCounts returns the folder of the counts that an import to out left behind when it
// ended early, or "" if it left no counts. If the same import is started again, it
// resumes from these counts. The folder may be deleted. The import then starts from the
// beginning.
func KeptCounts(out string) string {
	folder := countsFolder(out)
	if _, err := os.Stat(filepath.Join(folder, recordName)); err != nil {
		return ""
	}
	return folder
}

// lockCounts locks the folder of the counts against other imports to the same place, in
// this process or another one.
func (r *importer) lockCounts() (unlock func(), err error) {
	unlock, err = filelock.Lock(r.folder + ".lock")
	if errors.Is(err, filelock.ErrLocked) {
		return nil, fmt.Errorf("another import to %s is running: wait until it ends, or name another folder", r.config.Out)
	}
	return unlock, err
}

const recordName = "counts.json"

// record lists the files that are counted, and the spills that hold their counts.
type record struct {
	Import string          `json:"import"` // identity of the import
	Files  []countedFile   `json:"files"`
	Rows   uint64          `json:"rows"`  // number of rows in the files, including bad rows
	Train  int64           `json:"train"` // number of rows in train; with CountAll a lower bound, which is 0 only if train is empty
	Spills []countedSpill  `json:"spills"`
	Made   int             `json:"made"`            // number of groups
	Dense  []dense.Moments `json:"dense,omitempty"` // moments of the dense inputs in train, if their statistics are needed
	synced int             // number of Spills, from the start of the list, that are synced to disk
}

type countedSpill struct {
	Name  string `json:"name"` // file name in the folder of the counts
	Bytes int64  `json:"bytes"`
}

type countedFile struct {
	Path     string `json:"path"`
	Modified int64  `json:"modified"` // nanoseconds since 1970
	dataset.File
}

// countsVersion must be raised if a change of the program leads to different counts for
// the same files and configuration, or if the format of records or spills changes.
const countsVersion = "shaver.counts/4"

// identity returns the digest of everything that determines the counts, except the files.
func (r *importer) identity() string {
	digest := sha256.New()
	l, c := r.layout, r.config
	for _, part := range []struct {
		name  string
		value any
	}{
		{"version", countsVersion},
		{"columns", l.names}, {"comma", l.comma}, {"tables", l.tables},
		{"label", l.names[l.at]}, {"from", l.From},
		{"fields", l.fields}, {"pick", l.pick}, {"integers", l.integer}, {"rule", l.numbers},
		{"split", c.Split}, {"seed", c.Seed}, {"counted", c.Counted}, {"policy", r.bad.policy},
	} {
		fmt.Fprintf(digest, "%s %#v\n", part.name, part.value) // %#v quotes strings, so that different values cannot give the same text
	}
	if r.ratio == nil {
		fmt.Fprintf(digest, "given %#v\n", r.given)
	}
	if len(c.Where)+len(c.Tables) > 0 {
		fmt.Fprintf(digest, "where %q\n", c.Where)
		for _, t := range c.Tables {
			fmt.Fprintf(digest, "table %#v\n", t.Table)
		}
	}
	if l.Positive != "" { // whatever the text is, every label is one
		fmt.Fprintf(digest, "positive\n")
	}
	if len(l.others) > 0 || l.weight >= 0 {
		fmt.Fprintf(digest, "others %#v weight %d\n", l.others, l.weight)
	}
	if l.Numbers {
		fmt.Fprintf(digest, "numbers\n")
	}
	if !l.plain() {
		fmt.Fprintf(digest, "lists %#v %#v %#v %#v\n", l.rawLists.lists, l.rawLists.separator, l.long, l.owner)
	}
	for i, in := range l.dense.inputs {
		fmt.Fprintf(digest, "dense %#v\n", []any{l.inputs[i], in.Rule, in.Missing != nil || l.dense.fill, l.dense.unmeasured()})
	}
	return hex.EncodeToString(digest.Sum(nil))
}

// keepStdin copies standard input to a file, so that it can be read twice.
func (r *importer) keepStdin() error {
	if !slices.Contains(r.paths, Stdin) {
		return nil
	}
	if err := os.MkdirAll(r.folder, 0o777); err != nil {
		return err
	}
	r.spool = filepath.Join(r.folder, "stdin")
	file, err := os.Create(r.spool)
	if err != nil {
		return err
	}
	defer file.Close()
	in := interruptible(r.ctx, r.config.Stdin)
	defer in.Close()
	size, err := io.Copy(file, in)
	if err != nil {
		return fmt.Errorf("standard input: %w", err)
	}
	r.total += 2 * size
	return nil
}

// measures reports whether the first scan adds up the dense inputs. If the vocabulary makes rows
// bad, the scan does not know these rows, because the vocabulary is not complete yet.
func (r *importer) measures() bool { return r.layout.dense.unmeasured() && !r.strict }

// count is the first scan. It returns the spills of all files, and whether the folder of
// the counts must be kept if the import ends early.
func (r *importer) count() (spills []string, kept bool, err error) {
	if err := os.MkdirAll(r.folder, 0o777); err != nil {
		return nil, false, err
	}
	rec := r.resume()
	kept = len(rec.Files) > 0
	measured := !r.measures()
	if !measured && rec.Dense == nil {
		rec.Dense = r.layout.dense.newMoments()
	}
	r.scans.begin()
	for first := len(rec.Files); first < len(r.paths); {
		last, size := first, int64(0)
		for ; last < len(r.paths) && size < r.config.KeepEvery; last++ {
			if info, err := os.Stat(r.paths[last]); err == nil {
				size += info.Size()
			}
		}
		if err := r.countGroup(rec, first, last); err != nil {
			return nil, kept, err
		}
		if size >= r.config.KeepEvery && r.spool == "" {
			if err := r.save(rec); err != nil {
				return nil, kept, err
			}
			kept = true
		}
		first = last
	}
	if rec.Train == 0 {
		return nil, kept, r.noTrain()
	}
	if !measured {
		if err := r.layout.dense.measure(rec.Dense); err != nil {
			return nil, kept, err
		}
	}
	for _, spill := range rec.Spills {
		spills = append(spills, filepath.Join(r.folder, spill.Name))
	}
	spills, err = vocabulary.Gather(r.folder, "gathered", spills, len(r.layout.fields))
	r.end()
	return spills, kept, err
}

// countGroup counts the values in the files r.paths[first:last], and adds the files and
// the spills to rec.
func (r *importer) countGroup(rec *record, first, last int) error {
	// The other half of the memory is for blocks and garbage.
	limit := (r.config.Memory - r.held) / 2 / int64(r.config.Workers)
	counters, parsers := make([]*vocabulary.Counter, r.config.Workers), make([]*blockParser, r.config.Workers)
	for i := range counters {
		counters[i] = vocabulary.NewCounter(r.folder, fmt.Sprintf("%d-%d", rec.Made, i), len(r.layout.fields), limit)
		parsers[i] = r.newBlockParser()
	}
	rows := make([]rowCounter, r.config.Workers)
	for i := range rows {
		rows[i] = rowCounter{rawLists: &r.layout.rawLists, counter: counters[i]}
	}
	moments := make([][]dense.Moments, r.config.Workers) // of train
	for i := range moments {
		moments[i] = make([]dense.Moments, len(rec.Dense))
	}
	measuring := len(rec.Dense) > 0
	all := r.config.Counted == CountAll
	work := func(worker int, b *block) error {
		return parsers[worker].parse(b, func(row uint64, _ float32, values [][]byte) error {
			if !all || measuring || b.train == 0 { // with CountAll, it only matters whether train has any rows
				if r.split(b, row) == 0 {
					b.train++
					if measuring {
						addMoments(moments[worker], parsers[worker].parser.numbers)
					}
				} else if !all {
					return nil
				}
			}
			if r.layout.plain() {
				return counters[worker].Add(values)
			}
			return rows[worker].add(values, parsers[worker].parser.lists)
		})
	}
	var err error
	sources := len(r.sources)
	rec.Rows, err = r.scan(first, last, rec.Rows, work, func(b *block) error { rec.Train += b.train; return nil })
	if err != nil {
		return err
	}
	for _, m := range moments {
		mergeMoments(rec.Dense, m)
	}
	var g errgroup.Group
	for _, c := range counters {
		g.Go(c.Flush)
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, c := range counters {
		for _, path := range c.Spills() {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			rec.Spills = append(rec.Spills, countedSpill{filepath.Base(path), info.Size()})
		}
	}
	rec.Made++
	for k, file := range r.sources[sources:] {
		counted := countedFile{Path: r.paths[first+k], File: file}
		if info, err := os.Stat(counted.Path); err == nil {
			counted.Modified = info.ModTime().UnixNano()
		}
		rec.Files = append(rec.Files, counted)
	}
	return nil
}

// save makes the spills durable, and then writes the record that lists them.
func (r *importer) save(rec *record) error {
	for _, spill := range rec.Spills[rec.synced:] {
		if err := syncFile(filepath.Join(r.folder, spill.Name)); err != nil {
			return err
		}
	}
	if err := atomicfile.SyncFolder(r.folder); err != nil {
		return err
	}
	rec.synced = len(rec.Spills)
	rec.Import = r.identity()
	text, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(r.folder, recordName), func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

func syncFile(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

// resume returns the record of an earlier import, if this import can resume from it.
// Otherwise it empties the folder of the counts and returns an empty record. The digests of
// the counted files are checked later, when the last scan reads the files.
func (r *importer) resume() *record {
	rec := &record{}
	text, err := files.Small(filepath.Join(r.folder, recordName), 256, "the counts of an import")
	if err == nil && files.Strict(text, rec) == nil && r.fits(rec) {
		for _, f := range rec.Files {
			r.seen[f.Path] = f.File
			r.done += f.Bytes
		}
		rec.synced = len(rec.Spills)
		return rec
	}
	entries, _ := os.ReadDir(r.folder)
	for _, e := range entries {
		if path := filepath.Join(r.folder, e.Name()); path != r.spool {
			os.RemoveAll(path)
		}
	}
	return &record{}
}

// fits reports whether the import can resume from rec. The identity must be the same, the
// counted files must be the first of this import and unchanged, and all spills must exist.
func (r *importer) fits(rec *record) bool {
	if want := len(r.layout.dense.inputs); r.measures() && len(rec.Dense) != want {
		return false
	}
	if rec.Import != r.identity() || len(rec.Files) > len(r.paths) {
		return false
	}
	for k, f := range rec.Files {
		info, err := os.Stat(f.Path)
		if err != nil || f.Path != r.paths[k] || info.Size() != f.Bytes || info.ModTime().UnixNano() != f.Modified {
			return false
		}
	}
	for _, spill := range rec.Spills {
		info, err := os.Stat(filepath.Join(r.folder, filepath.Base(spill.Name)))
		if err != nil || info.Size() != spill.Bytes {
			return false
		}
	}
	return true
}
