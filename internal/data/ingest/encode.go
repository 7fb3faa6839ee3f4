package ingest

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/data/dataset"
	"shaver/internal/data/dense"
)

// rowIDs gives the ids of rows. It is not safe for concurrent use.
type rowIDs interface {
	// append appends the local ids of the row of b that p has parsed to ids, [fields]. If it returns a badRow, it may have
	// appended some of them.
	append(ids [][]int32, b *block, p *rowParser) error
}

// survey is what a goroutine finds out about the rows before they are encoded.
type survey struct {
	*blockParser
	ids         rowIDs // nil if the ids do not matter
	row         columns
	rows, train int64           // number of rows, and of those in train, without bad rows
	moments     []dense.Moments // of the dense inputs in train
	least       []int           // least id of each field
	sizes       []int           // one more than the largest id of each field
}

// add adds the row of b that was parsed last.
func (s *survey) add(b *block, train bool) error {
	if s.ids != nil {
		s.row.reset()
		if err := s.ids.append(s.row.ids, b, s.parser); err != nil {
			return err
		}
	}
	for j, ids := range s.row.ids {
		for _, id := range ids {
			s.least[j], s.sizes[j] = min(s.least[j], int(id)), max(s.sizes[j], int(id)+1)
		}
	}
	s.rows++
	if train {
		s.train++
		addMoments(s.moments, s.parser.numbers)
	}
	return nil
}

func (s *survey) merge(other *survey) {
	s.rows += other.rows
	s.train += other.train
	mergeMoments(s.moments, other.moments)
	for j := range s.least {
		s.least[j], s.sizes[j] = min(s.least[j], other.least[j]), max(s.sizes[j], other.sizes[j])
	}
}

// survey scans the files for what must be known before the rows are encoded. It sets the statistics of the dense inputs, which
// are those of train. Rows with ids that newIDs refuses are bad, and do not count. newIDs is nil if it would refuse no row.
func (r *importer) survey(newIDs func(*denseWriter) rowIDs) (*survey, error) {
	plan, fields := r.layout.dense, len(r.layout.fields)
	if plan.unmeasured() {
		if err := r.ratio.needTrain(trainStatistics, DenseSetting, DenseMissingSetting); err != nil {
			return nil, err
		}
	}
	if slices.Contains(r.paths, Stdin) && r.spool == "" {
		return nil, fault.Setting(fault.Usagef("the mean of a column needs another scan, but standard input can be read only once: give the mean and the deviation, or a vocabulary that has them"),
			DenseSetting, DenseMissingSetting)
	}
	workers := make([]*survey, r.config.Workers)
	for i := range workers {
		s := &survey{blockParser: r.newBlockParser(), moments: plan.newMoments(), least: slices.Repeat([]int{math.MaxInt}, fields), sizes: make([]int, fields)}
		if newIDs != nil {
			s.ids, s.row.ids = newIDs(nil), make([][]int32, fields)
		}
		workers[i] = s
	}
	work := func(worker int, b *block) error {
		s := workers[worker]
		return s.parse(b, func(row uint64, _ float32, _ [][]byte) error { return s.add(b, r.split(b, row) == 0) })
	}
	r.begin()
	if _, err := r.scan(0, len(r.paths), 0, work, func(*block) error { return nil }); err != nil {
		return nil, err
	}
	r.end()
	s := workers[0]
	for _, other := range workers[1:] {
		s.merge(other)
	}
	switch {
	case s.rows == 0:
		return nil, fault.Inputf("%s: no valid rows", display(r.paths[0]))
	case !plan.unmeasured():
		return s, nil
	case s.train == 0:
		return nil, r.noTrain()
	}
	return s, plan.measure(s.moments)
}

// encoding is the state of a goroutine that encodes rows.
type encoding struct {
	*blockParser
	ids   rowIDs
	dense *denseWriter
	cut   []int64 // number of lists that lost values, by field
}

// add appends the row of b that was parsed last to rows.
func (e *encoding) add(rows *columns, b *block, label float32) error {
	numbers := e.parser.numbers
	if err := e.dense.standardise(numbers); err != nil {
		return err
	}
	if err := e.ids.append(rows.ids, b, e.parser); err != nil {
		for j := range rows.ids {
			rows.ids[j] = rows.ids[j][:len(rows.label)*e.parser.length(j)]
		}
		return err
	}
	for j, lost := range e.parser.cut {
		if lost {
			e.cut[j]++
		}
	}
	rows.label = append(rows.label, label)
	if e.parser.weight >= 0 {
		rows.weight = append(rows.weight, e.parser.times)
	}
	for i := range rows.dense {
		if k := i - e.dense.written; k < 0 {
			rows.dense[i] = append(rows.dense[i], e.dense.values[i])
		} else {
			rows.dense[i] = append(rows.dense[i], e.parser.labels[k])
		}
	}
	e.dense.add(numbers)
	return nil
}

// encode is the last scan. It writes the encoded rows to out and publishes the dataset. sizes are those of the fields.
func (r *importer) encode(out *builder, m *dataset.Manifest, sizes []int, newIDs func(*denseWriter) rowIDs) (*Summary, error) {
	l := r.layout
	fields, inputs := len(l.fields), l.dense.names()[:l.dense.written]
	if err := checkPads(l.fields, l.lists, sizes); err != nil {
		return nil, err
	}
	compressors := 1
	if r.config.Memory >= 256<<20 { // a single compressor would slow down the workers
		compressors = 2
	}
	out.numbers, out.lists = l.Numbers, l.lists
	if l.weight >= 0 {
		out.weights = &dataset.Weights{}
	}
	if len(l.others) > 0 {
		out.tasks = append([]string{l.names[l.at]}, l.Others...)
	}
	if err := out.start(l.fields, sizes, inputs, r.splits, compressors); err != nil {
		return nil, err
	}
	workers := make([]*encoding, r.config.Workers)
	for i := range workers {
		writer := l.dense.newWriter()
		workers[i] = &encoding{r.newBlockParser(), newIDs(writer), writer, make([]int64, fields)}
	}
	work := func(worker int, b *block) error {
		for len(b.splits) < len(r.splits) {
			b.splits = append(b.splits, columns{ids: make([][]int32, fields), dense: make([][]float32, len(inputs)+len(l.others))})
		}
		e := workers[worker]
		return e.parse(b, func(row uint64, label float32, _ [][]byte) error { return e.add(&b.splits[r.split(b, row)], b, label) })
	}
	r.begin()
	_, err := r.scan(0, len(r.paths), 0, work, func(b *block) error {
		for k := range b.splits {
			if err := out.append(k, &b.splits[k]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	all := workers[0]
	for _, e := range workers[1:] {
		all.dense.merge(e.dense)
		for j, n := range e.cut {
			all.cut[j] += n
		}
	}
	if len(inputs) > 0 && out.rows() > 0 {
		m.Dense = all.dense.described()[:len(inputs)]
	}
	m.Sources, m.Skipped = r.sources, r.bad.lines
	for _, t := range r.config.Tables {
		m.Tables = append(m.Tables, t.Table)
	}
	if r.ratio != nil {
		m.Division = &r.ratio.Division
	}
	if err := out.commit(m); err != nil {
		return nil, err
	}
	r.end()
	sum := sha256.Sum256(m.Marshal())
	summary := &Summary{Manifest: *m, Digest: hex.EncodeToString(sum[:]), Bad: r.bad.messages(), Scans: r.ended, Padded: out.padded,
		Warnings: slices.Concat(r.repeated(), oneKind(m), smallTrain(m), shifted(m), out.oddLists(), out.echoes.warnings(out))}
	if l.lists != nil {
		summary.Cut = all.cut
	}
	return summary, nil
}
