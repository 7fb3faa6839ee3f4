package schemas_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"testing"

	"shaver/internal/data/arrowio"
	"shaver/internal/jobs/job"
)

// protocolForms are the forms that coordinators and workers exchange.
var protocolForms = []string{
	"task.v2.json", "result.v2.json", "quarantine.v2.json", "submission.v2.json", "lead.v1.json", "blob.v1.json", "plan.v1.json",
	"spec.v1.json", "spec.v2.json", "spec.v3.json", "estimator.v1.json", "rows.v1.arrow.json", "rows.v2.arrow.json", "rows.v3.arrow.json", "rows.v4.arrow.json", "partial.v6.arrow.json",
	"partial.v7.arrow.json", "weights.v1.safetensors.json",
}

// protocolDigests are the digests of these forms for each protocol so far.
var protocolDigests = map[int]string{
	1: "55ba3cec3c59d63f",
	2: "e0b85c58e7fb099d", // other bits of walks of graphs; rows with lists, and numbers as labels
	3: "b45e55ae9c1626d0", // residuals that are shared out, corrections, and revisions of estimators
	4: "9c492f2ae1dec044", // packed partials, and partials of several tasks
	5: "fa02581ed97c3b73", // partials cut into ranges
	6: "9a1644e45f65b0e8", // rounds of a path
	7: "1207c82df58ee2f6", // frozen fields; rows with too large values get those of walks, and a partial counts them; sums of a partial beyond 64 bits; the digest of blocks in a place
	8: "c7e3486412afc403", // fresh rows; rounds of a path that add entries
	9: "64afa1f0aec282e3", // models in a form of their own; several words; digests of shards, and tasks that compute one again; the check of a partial; weights of rows
}

// The forms that the protocol covers do not change without a new number. If this test
// fails, read rule 4 of CONTRIBUTING.md. If the change keeps builds compatible, for example
// because it only adds a pattern to a schema, replace the digest. Otherwise raise
// job.Protocol and add a digest. Changes of descriptions do not count.
func TestProtocol(t *testing.T) {
	sum := sha256.New()
	fmt.Fprintln(sum, job.SpecVersion, arrowio.PartialVersion)
	for _, name := range protocolForms {
		form := strip(parse(t, read(t, name)))
		text, err := json.Marshal(form)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(sum, "%s %s\n", name, text)
	}
	if got, want := hex.EncodeToString(sum.Sum(nil)[:8]), protocolDigests[job.Protocol]; got != want {
		t.Errorf("the forms of protocol %d have the digest %s, expected %q", job.Protocol, got, want)
	}
}

// strip removes the texts for people from a schema.
func strip(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for _, name := range []string{"description", "title"} {
			if _, text := value[name].(string); text {
				delete(value, name)
			}
		}
		for name := range value {
			value[name] = strip(value[name])
		}
	case []any:
		for i := range value {
			value[i] = strip(value[i])
		}
	}
	return value
}
