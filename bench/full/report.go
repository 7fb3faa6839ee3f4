//go:build linux

package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"shaver/internal/app/cli"
)

// write writes two tables in Markdown: what each stage took, and what plan predicted of the jobs.
func write(w io.Writer, s *state) error {
	var b strings.Builder
	b.WriteString("| stage | rows | seconds | program | processor time | peak memory | on disk |\n|---|---|---|---|---|---|---|\n")
	for _, one := range s.Stages {
		for i, p := range one.Programs {
			if i == 0 {
				fmt.Fprintf(&b, "| %s | %s | %.1f ", one.Name, positive(one.Rows), one.Seconds)
			} else {
				b.WriteString("| | | ")
			}
			fmt.Fprintf(&b, "| %s | %.1f s | %s |", p.Name, p.Processor, cli.Size(p.Memory))
			if i == 0 && one.Disk > 0 {
				b.WriteString(" " + cli.Size(one.Disk))
			}
			b.WriteString(" |\n")
		}
	}
	b.WriteString("\n| | predicted | measured | ratio |\n|---|---|---|---|\n")
	for _, one := range s.Stages {
		if f := one.Plan; f != nil {
			one.compare(&b)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// positive returns a number as text, which is empty for 0.
func positive(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// compare writes the lines of a job.
func (r *record) compare(b *strings.Builder) {
	f := r.Plan
	line := func(what string, predicted, measured float64, text func(float64) string) {
		fmt.Fprintf(b, "| %s: %s | %s | %s | %.2f |\n", r.Name, what, text(predicted), text(measured), measured/predicted)
	}
	seconds := func(x float64) string { return fmt.Sprintf("%.1f s", x) }
	size := func(x float64) string { return cli.Size(int64(x)) }
	var workers, coordinator usage
	for _, p := range r.Programs {
		switch {
		case p.Name == "coordinator":
			coordinator = p
		case strings.HasPrefix(p.Name, "worker"):
			workers.Processor, workers.Memory = workers.Processor+p.Processor, max(workers.Memory, p.Memory)
		}
	}
	line("time", f.Seconds, r.Seconds, seconds)
	line("processor time of the workers", 3600*f.CoreHours, workers.Processor, seconds)
	line("memory of a worker", float64(f.WorkerMemory), float64(workers.Memory), size)
	line("memory of the coordinator", float64(f.CoordinatorMemory), float64(coordinator.Memory), size)
	line("bytes from the workers", float64(f.BytesFromWorkers), float64(r.Bus.Workers.Sent), size)
	for _, one := range []struct {
		what  string
		bytes int64
	}{
		{"bytes to the workers", r.Bus.Workers.Received}, {"bytes from the coordinator", r.Bus.Coordinator.Sent},
		{"bytes to the coordinator", r.Bus.Coordinator.Received}, {"largest size of the streams", r.Bus.Stored},
	} {
		fmt.Fprintf(b, "| %s: %s | | %s | |\n", r.Name, one.what, cli.Size(one.bytes))
	}
}
