package dataset

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/data/dense"
)

// OpenAll opens the dataset that users name by one or more folders: a single folder as Open
// does, several as OpenDays does.
func OpenAll(dirs []string) (*Dataset, error) {
	if len(dirs) == 1 {
		return Open(dirs[0])
	}
	return OpenDays(dirs)
}

// OpenDays opens a window of days: the dataset that consists of the datasets in dirs, the
// oldest first. See Open and Join.
func OpenDays(dirs []string) (*Dataset, error) {
	days := make([]*Dataset, len(dirs))
	for i, dir := range dirs {
		var err error
		if days[i], err = Open(dir); err != nil {
			return nil, err
		}
	}
	return Join(days)
}

// Join returns the window of the given days, at least one, the oldest first. Each must be a
// single folder.
//
// The days must have the same fields and dense inputs, with the same names, order, rules and
// statistics, and the same ids of unseen values. The fields of a window are those of the
// newest day. An earlier day may have fewer ids in a field, and with vocabularies its ids
// must have the same values. Splits, rows and frequencies of a window are sums over the days.
// Readers return the rows split by split, and within a split day by day. The number of a row
// is RowsPerDay times the first 26 bits of its day's digest plus its number in the day, so it
// does not depend on the window. The digest of a window is the SHA-256 of the days' digests.
//
// Join compares vocabularies by content. It returns bad input if the days differ, if a day
// occurs twice, or if two days have the same row numbers.
func Join(days []*Dataset) (*Dataset, error) {
	if len(days) == 0 {
		return nil, fault.Usagef("no dataset: expected the folder of at least one")
	}
	d := &Dataset{window: true}
	for _, day := range days {
		if day.window {
			return nil, errors.New("dataset: a day of a window must be a single folder")
		}
		p := *day.parts[0]
		if err := p.number(d.parts); err != nil {
			return nil, err
		}
		d.parts = append(d.parts, &p)
	}
	d.digest = windowDigest(d.parts)
	newest := d.parts[len(d.parts)-1]
	for _, p := range d.parts {
		if err := p.precedes(newest); err != nil {
			return nil, err
		}
	}
	var err error
	d.Manifest, err = joined(d.parts)
	return d, err
}

// Days returns the days of a window, the oldest first. Each is a window that
// consists of the day alone, with the digest of such a window. It has the fields and the row
// numbers of d, and delivers the same dense inputs, weights over the same denominator, and rows of the same tasks.
// If d is not a window, Days returns nil.
func (d *Dataset) Days() []*Dataset {
	if !d.window {
		return nil
	}
	days := make([]*Dataset, len(d.parts))
	for i, p := range d.parts {
		days[i] = &Dataset{Manifest: p.Manifest, parts: []*part{p}, window: true, digest: windowDigest([]*part{p}), inputs: d.inputs, picked: d.picked, fields: d.newest()}
		days[i].Manifest.Fields = d.Manifest.Fields
		days[i].Manifest.Weights = d.Weights
		if divisor := d.Weights.divisor(); divisor != p.Weights.divisor() {
			days[i].digest = derived(days[i].digest, fmt.Sprintf("weights/%d", divisor))
		}
		if d.tasks != nil {
			day, err := days[i].ForTasks(d.tasks)
			if err != nil {
				panic("dataset: a day does not have the tasks of its window: " + err.Error())
			}
			day.inputs = d.inputs
			days[i] = day
		}
	}
	return days
}

// DayDigests returns the digests of the days of a window, the oldest first. If d is not a
// window, DayDigests returns nil.
func (d *Dataset) DayDigests() []string {
	var digests []string
	for _, p := range d.parts {
		if d.window {
			digests = append(digests, p.digest)
		}
	}
	return digests
}

// windowDigest returns the digest of the window of the given days.
func windowDigest(parts []*part) string {
	digest := sha256.New()
	digest.Write([]byte("shaver.days/1\n"))
	for _, p := range parts {
		digest.Write([]byte(p.digest + "\n"))
	}
	return hex.EncodeToString(digest.Sum(nil))
}

// number sets the number of the first row. It returns bad input if a row would have the same
// number as a row of earlier.
func (p *part) number(earlier []*part) error {
	bits, err := strconv.ParseInt(p.digest[:8], 16, 64)
	if err != nil {
		panic("dataset: a digest is not hexadecimal: " + err.Error())
	}
	p.first = bits >> 6 * model.RowsPerDay
	for _, q := range earlier {
		switch {
		case q.digest == p.digest:
			return fault.Inputf("%s and %s are the same dataset, with the digest %.12s: expected each day once", q.name(), p.name(), p.digest)
		case q.first == p.first:
			return fault.Inputf("%s and %s cannot be days of one window: their digests %.12s and %.12s begin with the same 26 bits, so their rows would have the same numbers",
				q.name(), p.name(), q.digest, p.digest)
		}
	}
	return nil
}

// precedes returns bad input unless p can be a day of a window whose newest day is given.
func (p *part) precedes(newest *part) error {
	if p == newest {
		return nil
	}
	differ := func(format string, values ...any) error {
		return fault.Inputf("%s does not fit %s, the newest day of the window: %w", p.name(), newest.name(), fmt.Errorf(format, values...))
	}
	if own, want := p.fieldNames(), newest.fieldNames(); !slices.Equal(own, want) {
		return differ("it has the fields %q, expected %q", own, want)
	}
	if p.Labels != newest.Labels {
		return differ("only one of the two has numbers as labels")
	}
	if !slices.Equal(p.Tasks, newest.Tasks) {
		return differ("it has the labels %q, expected %q", p.Tasks, newest.Tasks)
	}
	if len(p.Dense) != len(newest.Dense) {
		return differ("it has %d dense inputs, expected %d", len(p.Dense), len(newest.Dense))
	}
	for i, in := range p.Dense {
		if in.Name != newest.Dense[i].Name {
			return differ("dense input %d is %q, expected %q", i, in.Name, newest.Dense[i].Name)
		}
		own, want := in.Standard(), newest.Dense[i].Standard()
		if own, want := own.String(), want.String(); own != want {
			return differ("dense input %d (%s) has the rule %s, expected %s: import the day with --vocabulary and without --dense-missing, so that it gets the statistics of an earlier day", i, in.Name, own, want)
		}
	}
	if own, want := p.Vocabulary != nil, newest.Vocabulary != nil; own != want {
		return differ("only one of the two has a vocabulary, so their ids cannot be compared")
	}
	for j, f := range p.Fields {
		want := newest.Fields[j]
		if own, other := f.form(), want.form(); own != other {
			return differ("field %d (%s) has %s, expected %s", j, f.Name, own, other)
		}
		if f.Size > want.Size {
			return differ("field %d (%s) has %d features, expected at most %d: give the oldest day first, and import each day with the vocabulary of the day before it", j, f.Name, f.Size, want.Size)
		}
		if p.Vocabulary == nil {
			continue
		}
		if own, want := f.OOVID(), want.OOVID(); own != want {
			return differ("field %d (%s) has the id %d for unseen values, expected %d", j, f.Name, own, want)
		}
		if err := p.samePrefix(newest, j); err != nil {
			return err
		}
	}
	return nil
}

// samePrefix returns bad input unless the vocabulary file of a field is the start of that of
// newest.
func (p *part) samePrefix(newest *part, field int) error {
	own, other := p.Vocabulary[field], newest.Vocabulary[field]
	if own.SHA256 == other.SHA256 && own.Bytes == other.Bytes {
		return nil
	}
	short, err := p.open(own.File)
	if err != nil {
		return err
	}
	defer short.Close()
	long, err := newest.open(other.File)
	if err != nil {
		return err
	}
	defer long.Close()
	digest := sha256.New()
	in := io.TeeReader(short, digest)
	id := 0 // each line of a vocabulary file belongs to one id
	for a, b := make([]byte, 1<<16), make([]byte, 1<<16); ; {
		n, err := readFull(in, a)
		if err != nil {
			return fmt.Errorf("%s: %w", p.path(own), err)
		}
		m, err := readFull(long, b[:n])
		if err != nil {
			return fmt.Errorf("%s: %w", newest.path(other), err)
		}
		same := 0
		for same < m && a[same] == b[same] {
			same++
		}
		id += bytes.Count(a[:same], []byte("\n"))
		if same < n {
			return fault.Inputf("%s does not fit %s, the newest day of the window: the id %d of field %d (%s) has another value in each of them: import each day with the vocabulary of the day before it",
				p.name(), newest.name(), id, field, p.Fields[field].Name)
		}
		if n < len(a) {
			break
		}
	}
	if hex.EncodeToString(digest.Sum(nil)) != own.SHA256 {
		return corrupt(p.path(own))
	}
	return nil
}

// readFull fills buffer and returns the number of bytes, which is smaller than that of
// buffer only at the end of r.
func readFull(r io.Reader, buffer []byte) (int, error) {
	n, err := io.ReadFull(r, buffer)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = nil
	}
	return n, err
}

// joined returns the facts about all rows of the days in parts. It names no files.
func joined(parts []*part) (Manifest, error) {
	newest := parts[len(parts)-1]
	m := newest.Manifest
	m.Splits, m.Frequencies, m.Vocabulary, m.Sources, m.Tables, m.Division, m.Skipped, m.Dense = nil, File{}, nil, nil, nil, nil, 0, joinedDense(parts)
	if m.Weights = nil; slices.ContainsFunc(parts, func(p *part) bool { return p.Weights != nil }) {
		m.Weights = &Weights{}
	}
	rows := int64(0)
	for _, p := range parts {
		if p.rows() > MaxRows-rows {
			return m, fault.Inputf("%s has %d rows after %d rows in earlier days of the window: expected at most %d in all", p.name(), p.rows(), rows, int64(MaxRows))
		}
		rows += p.rows()
		m.Skipped += p.Skipped
		switch {
		case p.Weights != nil:
			m.Weights.Join(p.Weights.Divisor, p.Weights.Largest)
		case m.Weights != nil:
			m.Weights.Join(WeightUnits, WeightUnits)
		}
		m.Sources, m.Tables = append(m.Sources, p.Sources...), append(m.Tables, p.Tables...)
		for _, s := range p.Splits {
			k := m.splitAt(s.Name)
			if k < 0 {
				k = len(m.Splits)
				m.Splits = append(m.Splits, Split{Name: s.Name})
			}
			if m.Weights != nil && p.Weights == nil {
				s.Weight = float64(s.Rows)
			}
			m.Splits[k].join(&s)
		}
	}
	slices.SortFunc(m.Splits, func(a, b Split) int {
		return cmp.Compare(slices.Index(SplitNames, a.Name), slices.Index(SplitNames, b.Name))
	})
	return m, nil
}

// join adds the rows of other, which has the same name.
func (s *Split) join(other *Split) {
	rows := s.Rows
	s.Rows += other.Rows
	s.Weight += other.Weight
	tasks := slices.Clone(other.Tasks)
	for k, t := range s.Tasks {
		tasks[k].Missing += t.Missing
		tasks[k].Positives += t.Positives
	}
	s.Tasks = tasks
	switch {
	case other.Positives != nil:
		sum := *other.Positives
		if s.Positives != nil {
			sum += *s.Positives
		}
		s.Positives = &sum
	case s.Labels == nil:
		labels := *other.Labels
		s.Labels = &labels
	default:
		s.Labels.join(other.Labels, float64(rows), float64(other.Rows))
	}
}

// join adds labels of n rows to labels of rows rows.
func (l *Labels) join(other *Labels, rows, n float64) {
	l.Min, l.Max = min(l.Min, other.Min), max(l.Max, other.Max)
	part, off := n/(rows+n), other.Mean-l.Mean
	variance := (1-part)*l.Deviation*l.Deviation + part*other.Deviation*other.Deviation + part*(1-part)*off*off
	l.Mean = min(max(l.Mean+part*off, l.Min), l.Max)
	l.Deviation = min(math.Sqrt(variance), l.Max-l.Min)
}

// joinedDense returns the dense inputs of the window, which describe the numbers in all rows.
func joinedDense(parts []*part) []dense.Input {
	inputs := slices.Clone(parts[len(parts)-1].Dense)
	for i := range inputs {
		all := dense.Values{Min: math.Inf(1), Max: math.Inf(-1)}
		filled, rows := int64(0), 0.0
		for _, p := range parts {
			in, n := p.Dense[i], float64(p.rows())
			rows += n
			all.Min, all.Max = min(all.Min, in.Values.Min), max(all.Max, in.Values.Max)
			all.Mean += (in.Values.Mean - all.Mean) * n / rows
			filled += in.Filled
		}
		all.Mean = min(max(all.Mean, all.Min), all.Max)
		inputs[i].Values, inputs[i].Filled = all, filled
	}
	return inputs
}
