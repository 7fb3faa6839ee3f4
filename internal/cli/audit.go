package cli

import (
	"fmt"
	"io"

	"shaver/internal/scores"
)

// AuditTable writes an audit for people.
func AuditTable(w io.Writer, a *scores.Audit) {
	fmt.Fprintf(w, "audit\t%d rows\t%d entries, against walks\n", a.Rows, a.Entries)
	fmt.Fprintf(w, "  relative RMS\t%s\twith the noise of both\n", figure(a.RelativeRMS))
	fmt.Fprintf(w, "  bias\t%s\twithout noise; up to %s may be chance\n", figure(a.RelativeBias), figure(a.BiasNoise))
	fmt.Fprintf(w, "  Spearman\t%s\twalks on half of the rows with walks on the others: %s\n", figure(a.Spearman), figure(a.WalksSpearman))
	for _, o := range a.Overlaps {
		fmt.Fprintf(w, "  overlap at %g\t%.3f\t%.3f\n", o.Sparsity, o.Overlap, o.Walks)
	}
	warning := ""
	if a.Differ() {
		warning = ": the values of plain are not to be quoted"
	}
	fmt.Fprintf(w, "  end points\t%s\tplain against balanced, up to %s may be chance%s\n", figure(a.Endpoints), figure(a.EndpointsNoise), warning)
}

func figure(v *float64) string {
	if v == nil {
		return "undefined"
	}
	return fmt.Sprintf("%.3f", *v)
}
