package tracking

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"time"
)

// The types of OpenLineage events.
const (
	Start    = "START"
	Complete = "COMPLETE"
	Fail     = "FAIL"
)

const (
	producer  = "urn:shaver"
	eventForm = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
	errorForm = "https://openlineage.io/spec/facets/1-0-1/ErrorMessageRunFacet.json#/$defs/ErrorMessageRunFacet"
	dataForm  = "https://openlineage.io/spec/facets/1-0-1/DatasetVersionDatasetFacet.json#/$defs/DatasetVersionDatasetFacet"
	jobForm   = "https://openlineage.io/spec/facets/2-0-3/JobTypeJobFacet.json#/$defs/JobTypeJobFacet"
)

// Event is an OpenLineage event about a run.
type Event struct {
	Type      string // Start, Complete or Fail
	Time      time.Time
	Namespace string // of the job
	Job       string
	Run       string // text that only this run has
	Message   string // why it failed; "" = nothing
	Inputs    []Dataset
	Outputs   []Dataset
}

// Dataset is something that a run reads or writes.
type Dataset struct {
	Namespace string // such as file or s3://bucket
	Name      string
	Version   string // digest; "" = unknown
}

// Emit sends an event to the URL of a receiver. It uses the variable OPENLINEAGE_API_KEY.
func Emit(ctx context.Context, receiver string, e *Event) error {
	c := newClient(receiver, func(h http.Header) {
		if token := bearer("OPENLINEAGE_API_KEY"); token != "" {
			h.Set("Authorization", token)
		}
	})
	return c.send(ctx, http.MethodPost, "", e.document(), nil)
}

// document returns the event in its JSON form.
func (e *Event) document() map[string]any {
	facets := map[string]any{}
	if e.Message != "" {
		facets["errorMessage"] = map[string]any{"_producer": producer, "_schemaURL": errorForm, "message": e.Message, "programmingLanguage": "go"}
	}
	datasets := func(list []Dataset) []any {
		all := []any{}
		for _, d := range list {
			facets := map[string]any{}
			if d.Version != "" {
				facets["version"] = map[string]any{"_producer": producer, "_schemaURL": dataForm, "datasetVersion": d.Version}
			}
			all = append(all, map[string]any{"namespace": d.Namespace, "name": d.Name, "facets": facets})
		}
		return all
	}
	return map[string]any{
		"eventType": e.Type, "eventTime": e.Time.UTC().Format(time.RFC3339Nano), "producer": producer, "schemaURL": eventForm,
		"run": map[string]any{"runId": runID(e.Namespace, e.Job, e.Run), "facets": facets},
		"job": map[string]any{"namespace": e.Namespace, "name": e.Job, "facets": map[string]any{
			"jobType": map[string]any{"_producer": producer, "_schemaURL": jobForm, "processingType": "BATCH", "integration": "SHAVER", "jobType": "NIGHT"},
		}},
		"inputs": datasets(e.Inputs), "outputs": datasets(e.Outputs),
	}
}

// runID returns a UUID of version 8 (RFC 9562), which is the same for the same texts.
func runID(texts ...string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", texts))
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}
