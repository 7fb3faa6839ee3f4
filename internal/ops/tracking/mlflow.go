package tracking

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"shaver/internal/base/fault"
)

// Run is a run of MLflow that has ended.
type Run struct {
	Name       string
	Began      time.Time
	Ended      time.Time
	Failed     bool
	Step       int64 // of the metrics
	Metrics    map[string]float64
	Parameters map[string]string
	Tags       map[string]string
	Files      []File // which become artifacts
}

// File is a file that MLflow stores.
type File struct {
	Name string // path with slashes
	Open func() ([]byte, error)
}

// The most items of a request of log-batch, and the most bytes of a value.
const (
	mostMetrics    = 1000
	mostParameters = 100
	mostValue      = 500
	// maxFile bounds the bytes of a file, which is held in memory.
	maxFile = 64 << 20
)

type parameter struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

type metric struct {
	Key       string  `json:"key"`
	Value     float64 `json:"value"`
	Timestamp int64   `json:"timestamp"` // Unix milliseconds
	Step      int64   `json:"step"`
}

// created is the answer to runs/create.
type created struct {
	Run struct {
		Info struct {
			ID        string `json:"run_id"`
			Artifacts string `json:"artifact_uri"`
		} `json:"info"`
	} `json:"run"`
}

// Log creates a run with its metrics, parameters, tags and files in an experiment of the MLflow
// server, and ends it. It creates the experiment if it does not exist. It uses the variables
// MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD. Files are stored only
// if the server serves artifacts, as it does by default; otherwise the error says so. The run is there
// also if an error says that a part of it is not.
func Log(ctx context.Context, server, experiment string, r *Run) error {
	c := newClient(server, func(h http.Header) {
		user, password := os.Getenv("MLFLOW_TRACKING_USERNAME"), os.Getenv("MLFLOW_TRACKING_PASSWORD")
		if token := bearer("MLFLOW_TRACKING_TOKEN"); token != "" {
			h.Set("Authorization", token)
		} else if user != "" {
			h.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":"+password)))
		}
	})
	const api = "/api/2.0/mlflow/"
	id, err := c.experiment(ctx, api, experiment)
	if err != nil {
		return err
	}
	var run created
	begin := map[string]any{"experiment_id": id, "run_name": r.Name, "start_time": r.Began.UnixMilli(), "tags": pairs(r.Tags)}
	if err := c.send(ctx, http.MethodPost, api+"runs/create", begin, &run); err != nil {
		return err
	}
	if run.Run.Info.ID == "" {
		return fmt.Errorf("POST %s: the answer has no run_id", fault.Address(c.server+api+"runs/create"))
	}
	var metrics []metric
	for key, value := range r.Metrics {
		metrics = append(metrics, metric{key, value, r.Ended.UnixMilli(), r.Step})
	}
	slices.SortFunc(metrics, func(a, b metric) int { return strings.Compare(a.Key, b.Key) })
	var failures []error
	parameters := pairs(r.Parameters)
	for len(metrics)+len(parameters) > 0 {
		m, p := min(len(metrics), mostMetrics-mostParameters), min(len(parameters), mostParameters)
		batch := map[string]any{"run_id": run.Run.Info.ID, "metrics": metrics[:m], "params": parameters[:p]}
		if err := c.send(ctx, http.MethodPost, api+"runs/log-batch", batch, nil); err != nil {
			failures = append(failures, err)
			break
		}
		metrics, parameters = metrics[m:], parameters[p:]
	}
	if err := c.store(ctx, run.Run.Info.Artifacts, r.Files); err != nil {
		failures = append(failures, err)
	}
	status := "FINISHED"
	if r.Failed {
		status = "FAILED"
	}
	end := map[string]any{"run_id": run.Run.Info.ID, "status": status, "end_time": r.Ended.UnixMilli()}
	if err := c.send(ctx, http.MethodPost, api+"runs/update", end, nil); err != nil {
		failures = append(failures, err)
	}
	if len(failures) > 0 {
		return failures[0]
	}
	return nil
}

// experiment returns the id of the experiment with a name.
func (c *client) experiment(ctx context.Context, api, name string) (string, error) {
	var found struct {
		Experiment struct {
			ID string `json:"experiment_id"`
		} `json:"experiment"`
	}
	err := c.send(ctx, http.MethodGet, api+"experiments/get-by-name?experiment_name="+url.QueryEscape(name), nil, &found)
	if err == nil && found.Experiment.ID != "" {
		return found.Experiment.ID, nil
	}
	var a *answered
	if err != nil && (!errors.As(err, &a) || a.code != "RESOURCE_DOES_NOT_EXIST") {
		return "", err
	}
	var made struct {
		ID string `json:"experiment_id"`
	}
	if err := c.send(ctx, http.MethodPost, api+"experiments/create", map[string]any{"name": name}, &made); err != nil {
		return "", err
	}
	return made.ID, nil
}

// store stores files as artifacts of the run with the given artifact_uri.
func (c *client) store(ctx context.Context, at string, files []File) error {
	if len(files) == 0 {
		return nil
	}
	u, err := url.Parse(at)
	if err != nil || u.Scheme != "mlflow-artifacts" {
		return fmt.Errorf("the pages are not stored, because the server keeps artifacts at %.100q and does not serve them: start it with --serve-artifacts", at)
	}
	for _, f := range files {
		data, err := f.Open()
		if err == nil && len(data) > maxFile {
			err = fmt.Errorf("%s has %d bytes, expected at most %d", f.Name, len(data), maxFile)
		}
		if err != nil {
			return err
		}
		path := strings.Trim(u.EscapedPath(), "/") + "/" + (&url.URL{Path: f.Name}).EscapedPath()
		if err := c.send(ctx, http.MethodPut, "/api/2.0/mlflow-artifacts/artifacts/"+path, data, nil); err != nil {
			return err
		}
	}
	return nil
}

// pairs returns the items of m in the order of their keys. Long values are cut.
func pairs(m map[string]string) []parameter {
	list := []parameter{}
	for key, value := range m {
		if len(value) > mostValue {
			value = strings.ToValidUTF8(value[:mostValue-3], "") + "..."
		}
		list = append(list, parameter{key, value})
	}
	slices.SortFunc(list, func(a, b parameter) int { return strings.Compare(a.Key, b.Key) })
	return list
}
