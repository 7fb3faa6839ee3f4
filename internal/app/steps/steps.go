// Package steps has the steps from scores to a published model as functions over options that check themselves. Commands bind
// flags to the options, and nights the keys of their configuration.
package steps

import "shaver/internal/app/cli"

// progress returns what shows the progress of a step over rows, and what ends that.
func progress(what string) (begin func(rows int64) func(rows int), end func()) {
	var p *cli.Progress
	begin = func(rows int64) func(int) {
		p = cli.NewProgress(what, "rows", rows)
		return func(rows int) { p.Add(int64(rows)) }
	}
	return begin, func() {
		if p != nil {
			p.End()
		}
	}
}
