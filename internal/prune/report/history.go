package report

import (
	"cmp"
	_ "embed"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"shaver/internal/base/chart"
	"shaver/internal/prune/nightly"
	"shaver/internal/prune/picture"
	"shaver/internal/prune/sweep"
)

//go:embed history.html
var historyText string

var historyPage = pageOf(historyText)

// The page shows the trends of this many nights, and lists this many before it hides older
// ones.
const (
	trendNights = 90
	shownNights = 31
)

// historyDocument is the input of the template history.html.
type historyDocument struct {
	frame
	Lead, Rest     string
	Reasons, Notes []string
	Figure         chart.Inline
	Legend         string
	Tables         []tableRow
	Since          string     // night with which Tables are compared, or ""
	Rows, Older    []nightRow // the newest first
	Page           string
}

// tableRow is what a table keeps, each with its change since an earlier night.
type tableRow struct {
	Name, Portion     string
	Rows, Kept, Bytes [2]string
}

// tablesOf returns what the tables of the last night keep, and the first of the nights that says it too, or "".
func tablesOf(lines []nightly.Line) (rows []tableRow, since string) {
	last, first := &lines[len(lines)-1], &lines[slices.IndexFunc(lines, func(l nightly.Line) bool { return l.Tables != nil })]
	if first != last {
		since = oneLine(first.Night)
	}
	for _, t := range last.Tables {
		row := tableRow{Name: oneLine(t.Name), Portion: percent(portion(float64(t.Kept), float64(t.Entries))), Rows: [2]string{count(t.Rows)}, Kept: [2]string{count(t.Kept)}, Bytes: [2]string{size(&t.Bytes)}}
		for _, b := range first.Tables {
			if b.Name == t.Name && since != "" {
				change := func(now, before int64) string {
					return fmt.Sprintf("%+.1f%%", 100*(float64(now)/float64(max(before, 1))-1))
				}
				row.Rows[1], row.Kept[1], row.Bytes[1] = change(int64(t.Rows), int64(b.Rows)), change(int64(t.Kept), int64(b.Kept)), change(t.Bytes, b.Bytes)
			}
		}
		rows = append(rows, row)
	}
	return rows, since
}

type nightRow struct {
	Name, Number, Link, Outcome, Kind string
	Failed, Current                   bool
	Days                              int
	Evaluations, Share, Time          string
	Error, Reduction                  string
	AUC, Loss, LossTitle              string // Loss is the LogLoss, or the RMSE if labels are numbers
	Drop, Rise                        change
	Churn, Plain, Size                string
}

// History returns the page about nights, of which there is at least one, oldest first.
// folders has the names of the nights whose folders are there. program is the name and
// version of the program that writes the page. The page links to nights/NAME/report.html.
func History(lines []nightly.Line, folders map[string]bool, program string) ([]byte, error) {
	last := &lines[len(lines)-1]
	current := ""
	failed := 0
	for i := range lines {
		if lines[i].Outcome == nightly.Published {
			current = lines[i].Night
		} else {
			failed++
		}
	}
	d := &historyDocument{Reasons: last.Reasons}
	d.Of, d.Kind, d.Title = ofNights, "Nightly runs", oneLine(last.Night)
	d.Summary = []fact{{"nights", count(len(lines)), ""}, {"failed", count(failed), ""}}
	if current != "" {
		d.Summary = append(d.Summary, fact{"published", oneLine(current), ""})
	}
	d.Summary = append(d.Summary, fact{"rows", count(last.Rows), ""}, fact{"finished", strings.TrimSuffix(strings.Replace(last.Finished, "T", " ", 1), "Z") + " UTC", ""})
	d.Links = []link{{"latest", "Last night"}, {"trends", "Trends"}, {"nights", "All nights"}}
	d.Lead, d.Rest = lead(last, current)
	if last.Why != "" {
		d.Notes = append(d.Notes, last.Why)
	}
	if last.Note != "" {
		d.Notes = append(d.Notes, last.Note)
	}
	d.Notes = append(d.Notes, last.Answer...)
	d.Figure, d.Legend = trends(lines[max(0, len(lines)-trendNights):])
	if last.Tables != nil {
		d.Tables, d.Since = tablesOf(lines[max(0, len(lines)-trendNights):])
		d.Links = append(d.Links, link{"tables", "Tables"})
	}
	for _, l := range slices.Backward(lines) {
		row := nightRowOf(&l, current, folders)
		if len(d.Rows) < shownNights {
			d.Rows = append(d.Rows, row)
		} else {
			d.Older = append(d.Older, row)
		}
	}
	d.Page = "The times in the table are the processor time of all steps. Nights that were interrupted took longer."
	if program != "" {
		d.Page += " Page by " + program + "."
	}
	return render(historyPage, d)
}

// lead says in a sentence how the last night ended, and in others what it cost.
func lead(l *nightly.Line, current string) (first, rest string) {
	name := oneLine(l.Night)
	if l.Outcome == nightly.Published {
		first = fmt.Sprintf("The night %s is published.", name)
	} else {
		first = fmt.Sprintf("The night %s failed its check.", name)
		if current == "" {
			rest = "Nothing is published. "
		} else {
			rest = fmt.Sprintf("The night %s stays published. ", oneLine(current))
		}
	}
	rest += fmt.Sprintf("Without %s of its entries the model takes %s instead of %s", dropped(l.Sparsity), size(&l.Bytes), size(&l.DenseBytes))
	for _, m := range []struct {
		verb string
		by   *sweep.Interval
	}{{"raises its RMSE", interval(l.RMSERise, l.RMSERiseLow, l.RMSERiseHigh)}, {"loses AUC", interval(l.AUCDrop, l.AUCDropLow, l.AUCDropHigh)}} {
		if c := changeOf(m.by); c.Interval != "" {
			rest += fmt.Sprintf(" and %s by %s (95%% interval)", m.verb, c.Interval)
		} else if m.by != nil {
			rest += fmt.Sprintf(" and %s by %s on these rows", m.verb, c.Value)
		}
	}
	rest += "."
	if l.FullEvaluations > 0 && l.Choice != nightly.ChoiceKept {
		rest += fmt.Sprintf(" Scoring took %s of the row evaluations of a full job", percent(portion(float64(l.Evaluations), float64(l.FullEvaluations))))
		if l.RelativeError != nil {
			rest += fmt.Sprintf(", with an error of %s relative to the scores", percent(*l.RelativeError))
		}
		rest += "."
	}
	if l.Churn != nil {
		rest += fmt.Sprintf(" %s of the kept entries changed", rate(*l.Churn))
		if l.PlainChurn != nil {
			rest += fmt.Sprintf("; without hysteresis %s would have", rate(*l.PlainChurn))
		}
		rest += "."
	}
	return first, rest
}

// trends draws the curves of the nights.
func trends(lines []nightly.Line) (chart.Inline, string) {
	var failed, full []float64
	for _, l := range lines {
		if l.Outcome != nightly.Published {
			failed = append(failed, float64(l.Number))
		}
		if l.Generation == 0 && l.Choice != nightly.ChoiceKept {
			full = append(full, float64(l.Number))
		}
	}
	curve := func(label string, style int, of func(*nightly.Line) *float64) chart.Series {
		c := chart.Series{Label: label, Style: style}
		for i := range lines {
			if v := of(&lines[i]); v != nil {
				c.X, c.Y = append(c.X, float64(lines[i].Number)), append(c.Y, *v)
			}
		}
		return c
	}
	scaled := func(factor float64, of func(*nightly.Line) *float64) func(*nightly.Line) *float64 {
		return func(l *nightly.Line) *float64 {
			v := of(l)
			if v == nil {
				return nil
			}
			y := factor * *v
			return &y
		}
	}
	cost := func(l *nightly.Line) *float64 {
		if l.FullEvaluations == 0 {
			return nil
		}
		v := 100 * float64(l.Evaluations) / float64(l.FullEvaluations)
		return &v
	}
	var all []picture.Trend
	for _, m := range []struct {
		name, unit    string
		whole, pruned func(*nightly.Line) *float64
	}{
		{"AUC", "", func(l *nightly.Line) *float64 { return l.AUC }, func(l *nightly.Line) *float64 { return l.PrunedAUC }},
		{"LogLoss", ", nat", func(l *nightly.Line) *float64 { return l.LogLoss }, func(l *nightly.Line) *float64 { return l.PrunedLogLoss }},
		{"RMSE", "", func(l *nightly.Line) *float64 { return l.RMSE }, func(l *nightly.Line) *float64 { return l.PrunedRMSE }},
	} {
		all = append(all, picture.Trend{Title: m.name + m.unit, About: m.name + " of the unpruned and of the pruned model by night", Marked: failed, Curves: []chart.Series{curve("unpruned", noMethod, m.whole), curve("pruned", 0, m.pruned)}})
	}
	for _, m := range []struct {
		title, of string
		get       func(*nightly.Line) (value, low, high, bound *float64)
	}{
		{"Drop of the AUC, and what the check allows", "drop", func(l *nightly.Line) (value, low, high, bound *float64) {
			return l.AUCDrop, l.AUCDropLow, l.AUCDropHigh, l.AUCDropBound
		}},
		{"Rise of LogLoss, and what the check allows", "rise", func(l *nightly.Line) (value, low, high, bound *float64) {
			return l.LogLossRise, l.LogLossRiseLow, l.LogLossRiseHigh, l.LogLossRiseBound
		}},
		{"Rise of RMSE, and what the check allows", "rise", func(l *nightly.Line) (value, low, high, bound *float64) {
			return l.RMSERise, l.RMSERiseLow, l.RMSERiseHigh, l.RMSERiseBound
		}},
	} {
		value := func(l *nightly.Line) *float64 { v, _, _, _ := m.get(l); return v }
		changes := curve(m.of, 0, value)
		for i := range lines {
			if v, low, high, _ := m.get(&lines[i]); v != nil {
				changes.Low, changes.High = append(changes.Low, *cmp.Or(low, v)), append(changes.High, *cmp.Or(high, v))
			}
		}
		allowed := curve("allowed", 1, func(l *nightly.Line) *float64 { _, _, _, bound := m.get(l); return bound })
		all = append(all, picture.Trend{Title: m.title, About: m.title + ", by night, with its 95% interval", Marked: failed, Zero: true, Curves: []chart.Series{changes, allowed}})
	}
	all = append(all, []picture.Trend{
		{Title: "Row evaluations, % of a full job", About: "Row evaluations by night, in percent of those of a full job", Marked: failed, Zero: true, Curves: []chart.Series{curve("", 0, cost)}},
		{Title: "Core time of the steps, s", About: "Core-seconds by night, of scoring and of all steps", Marked: failed, Zero: true, Curves: []chart.Series{
			curve("scoring", 0, func(l *nightly.Line) *float64 { return &l.ScoreCoreSeconds }), curve("all", 1, func(l *nightly.Line) *float64 { return &l.CoreSeconds }),
		}},
		{Title: "Churn, % of the kept entries", About: "Churn by night, with and without hysteresis, in percent", Marked: failed, Zero: true, Curves: []chart.Series{
			curve("with hysteresis", 0, scaled(100, func(l *nightly.Line) *float64 { return l.Churn })), curve("without", 1, scaled(100, func(l *nightly.Line) *float64 { return l.PlainChurn })),
		}},
		{Title: "Error of the scores, % of the scores", About: "Error of the scores compared with a full job, by night, in percent of the scores", Marked: failed, Zero: true, Curves: []chart.Series{
			curve("", 0, scaled(100, func(l *nightly.Line) *float64 { return l.RelativeError })),
		}},
	}...)
	all = slices.DeleteFunc(all, func(t picture.Trend) bool {
		return !slices.ContainsFunc(t.Curves, func(c chart.Series) bool { return len(c.X) > 0 })
	})
	var notes []string
	if len(failed) > 0 {
		notes = append(notes, "A cross at the bottom marks a night that failed its check.")
	}
	if len(full) > 0 && len(full) < len(lines) {
		notes = append(notes, fmt.Sprintf("%s of these nights scored all days in full.", capital(count(len(full)))))
	}
	names := map[float64]string{}
	for i := range lines {
		names[float64(lines[i].Number)] = oneLine(lines[i].Night)
	}
	return picture.Nights(names, all...).Inline(), strings.Join(notes, " ")
}

func nightRowOf(l *nightly.Line, current string, folders map[string]bool) nightRow {
	row := nightRow{
		Name: oneLine(l.Night), Number: fmt.Sprintf("no. %d", l.Number), Outcome: l.Outcome, Failed: l.Outcome == nightly.Failed, Current: l.Night == current,
		Kind: "full", Days: len(l.Days), Evaluations: count(l.Evaluations), Share: "-", Time: duration(l.CoreSeconds), Error: "-",
		AUC: dash(l.PrunedAUC, decimal), Loss: dash(l.PrunedLogLoss, decimal), LossTitle: "LogLoss, nat", Churn: dash(l.Churn, rate), Size: size(&l.Bytes),
		Drop: changeOf(interval(l.AUCDrop, l.AUCDropLow, l.AUCDropHigh)), Rise: changeOf(interval(l.LogLossRise, l.LogLossRiseLow, l.LogLossRiseHigh)),
	}
	if l.RMSE != nil {
		row.LossTitle = "RMSE"
		row.Loss, row.Rise = dash(l.PrunedRMSE, decimal), changeOf(interval(l.RMSERise, l.RMSERiseLow, l.RMSERiseHigh))
	}
	if row.Current {
		row.Outcome = "current"
	}
	if l.Choice == nightly.ChoiceKept {
		row.Kind = "choice kept"
	} else if l.Generation > 0 {
		row.Kind = fmt.Sprintf("paired, generation %d", l.Generation)
	}
	if l.PlainChurn != nil {
		row.Plain = rate(*l.PlainChurn)
	}
	if l.FullEvaluations > 0 {
		row.Share = percent(portion(float64(l.Evaluations), float64(l.FullEvaluations)))
	}
	if l.RelativeError != nil {
		row.Error = percent(*l.RelativeError)
	}
	if l.Reduction != nil {
		row.Reduction = fmt.Sprintf("variance / %.3g", *l.Reduction)
	}
	if folders[l.Night] {
		row.Link = "nights/" + url.PathEscape(l.Night) + "/" + nightly.ReportFile
	}
	return row
}

// dash writes a value, or a dash if it is unknown.
func dash(v *float64, write func(float64) string) string {
	if v == nil {
		return "-"
	}
	return write(*v)
}

// interval returns a difference with its interval, or nil if it is unknown.
func interval(v, low, high *float64) *sweep.Interval {
	if v == nil {
		return nil
	}
	return &sweep.Interval{Value: *v, Low: low, High: high}
}
