package training

import (
	"slices"
	"strconv"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/click/compact"
	"shaver/internal/click/composed"
	"shaver/internal/click/model"
	"shaver/internal/click/train"
	"shaver/internal/data/dataset"
	"shaver/internal/num/layout"
)

// tableFull is the --table that keeps all entries.
const tableFull = "full"

// TableForms lists the values of --table.
const TableForms = "full, pep, optembed, qr[:Q], tt[:R,R[:CACHE]] or cerp[:BUCKETS]"

// DefaultWarmUp is the number of epochs of a training's WarmUp.
const DefaultWarmUp = 3

// tableChoice is the meaning of a --table.
type tableChoice struct {
	find    train.Method    // "" if the training finds no entries
	scheme  composed.Scheme // "" if the table is not composed
	numbers []int           // divider of QR, ranks of TT or buckets of CERP; nil if the sparsity chooses them
	cached  int             // features with rows of their own, of TT
}

// chosen returns the meaning of Table.
func (t *Settings) chosen() (tableChoice, error) {
	name, rest, given := strings.Cut(t.Table, ":")
	wrong := func() (tableChoice, error) {
		return tableChoice{}, fault.Usagef("--table %q: expected %s, with numbers of at least 1", t.Table, TableForms)
	}
	choice, most := tableChoice{}, 0 // most numbers
	switch name {
	case "", tableFull:
	case string(train.PEP), string(train.OptEmbed):
		choice.find = train.Method(name)
	case string(composed.CERP):
		choice.find, choice.scheme, most = train.CERP, composed.CERP, 1
	case string(composed.QR):
		choice.scheme, most = composed.QR, 1
	case string(composed.TT):
		choice.scheme, most = composed.TT, 7
	default:
		return wrong()
	}
	if !given {
		return choice, nil
	}
	numbers, cache, hasCache := strings.Cut(rest, ":")
	for text := range strings.SplitSeq(numbers, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return wrong()
		}
		choice.numbers = append(choice.numbers, n)
	}
	if len(choice.numbers) > most || hasCache && choice.scheme != composed.TT {
		return wrong()
	}
	if hasCache {
		n, err := strconv.Atoi(cache)
		if err != nil || n < 1 {
			return wrong()
		}
		choice.cached = n
	}
	return choice, nil
}

// checkTable checks Table and the settings that belong to it. It sets WarmUp to 0 if the table has no
// thresholds.
func (t *Settings) checkTable() error {
	if t.Table == tableFull {
		t.Table = ""
	}
	choice, err := t.chosen()
	if err != nil {
		return err
	}
	soft := choice.find == train.PEP || choice.find == train.CERP // whether it has thresholds that warm up
	switch chosen := choice.numbers != nil && choice.find == ""; {
	case t.Table == "" && t.Sparsity != 0:
		return fault.Usagef("--sparsity has no effect without a --table other than %s", tableFull)
	case chosen && t.Sparsity != 0:
		return fault.Usagef("--table %s says how large the table is: leave out --sparsity, or the numbers", t.Table)
	case t.Table != "" && !chosen && !(t.Sparsity > 0 && t.Sparsity < 1):
		return fault.Usagef("--table %s needs a --sparsity above 0 and below 1", t.Table)
	case choice.scheme != "" && t.Optimizer == train.SparseAdam:
		return fault.Usagef("--table %s needs --optimizer %s", t.Table, train.Adam)
	case choice.find != "" && t.Epochs < 1:
		return fault.Usagef("--table %s needs at least one epoch", t.Table)
	case soft && (t.WarmUp < 0 || t.WarmUp >= t.Epochs):
		return fault.Usagef("--warm-up %d: expected at least 0 and fewer epochs than --epochs %d", t.WarmUp, t.Epochs)
	}
	if !soft {
		t.WarmUp = 0
	}
	return nil
}

// Method returns the method that finds the entries to keep, or "" if the training keeps all.
func (t *Settings) Method() train.Method {
	choice, err := t.chosen()
	if err != nil {
		panic("the table was not checked: " + err.Error())
	}
	return choice.find
}

// keep returns the number of entries of the table that the sparsity keeps.
func (o *Course) keep() (int, error) {
	n := o.from.Architecture.Parameters()
	drop, err := layout.Dropped(n, o.Sparsity)
	if err != nil {
		return 0, fault.Usagef("--sparsity: %w", err)
	}
	return n - drop, nil
}

// chooseTable sets the shape of a composed table, and the features to cache.
func (o *Course) chooseTable() error {
	choice, err := o.chosen()
	if err != nil || choice.scheme == "" {
		return err
	}
	if kind := o.from.Architecture.Kind; kind == model.NeuMF {
		return &NoModel{fault.Usagef("--table %s: a %s has four tables, which cannot be computed from smaller tensors: expected full, pep or optembed", o.Table, kind)}
	}
	n, d := o.from.Architecture.Features(), o.from.Architecture.Dim
	var s composed.Shape
	switch {
	case choice.numbers == nil:
		keep, err := o.keep()
		if err != nil {
			return err
		}
		if s, err = composed.Choose(choice.scheme, n, d, o.Sparsity, keep); err != nil {
			return &NoModel{fault.Usagef("--table %s with --sparsity %v: %w", o.Table, o.Sparsity, err)}
		}
	case choice.scheme == composed.QR:
		s = composed.ForDivider(n, d, choice.numbers[0])
	case choice.scheme == composed.CERP:
		s = composed.ForBuckets(n, d, choice.numbers[0])
	default:
		s = composed.ForRanks(n, d, choice.numbers, choice.cached)
	}
	if err := s.Validate(); err != nil {
		return fault.Usagef("--table %s: %w", o.Table, err)
	}
	if n*d > compact.MaxInflation*s.Entries() {
		return fault.Usagef("--table %s: the tensors have %d numbers for a table of %d entries: expected at least one number for every %d entries", o.Table, s.Entries(), n*d, compact.MaxInflation)
	}
	o.shape = &s
	if s.Cached == 0 {
		return nil
	}
	counts, err := o.data.Frequencies(dataset.Train)
	if err != nil {
		return err
	}
	o.cached = composed.MostFrequent(counts, s.Cached)
	return nil
}

// withTable returns settings with a new composed table, if the table is one.
func (o *Course) withTable(settings train.Options) train.Options {
	if o.shape != nil {
		settings.Composed, settings.Cached = train.InitialTable(*o.shape, o.Seed), slices.Clone(o.cached)
	}
	return settings
}
