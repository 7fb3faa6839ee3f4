package night

import (
	"context"
	"encoding/json"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"shaver/internal/app/places"
	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/ops/tracking"
	"shaver/internal/prune/nightly"
)

// tracked are the pages and files of a night that MLflow stores.
var tracked = []string{nightly.ReportFile, nightly.CheckFile, nightly.PruneFile}

// mostTracking bounds the time of all requests about one event.
const mostTracking = 30 * time.Second

// checkTracking returns bad input unless nights can be reported where the configuration says.
func checkTracking(c *nightly.Config) error {
	for _, k := range []struct{ key, url string }{{"mlflow", c.Tracking.MLflow}, {"openlineage", c.Tracking.OpenLineage}} {
		if k.url == "" {
			continue
		}
		if err := tracking.CheckURL(k.url); err != nil {
			return fault.Inputf("%s: tracking.%s %q: %w", c.Path, k.key, fault.Address(k.url), err)
		}
	}
	return nil
}

// tracker reports nights to servers. It keeps the places of the configuration, which may be
// in an object store.
type tracker struct {
	config nightly.Config // before a copy replaced its places
	say    func(format string, args ...any)
}

// observe reports an event. What fails is said and has no other effect.
func (t *tracker) observe(ctx context.Context, e nightly.Event) {
	if t.say == nil {
		t.say = func(string, ...any) {}
	}
	ctx, cancel := context.WithTimeout(ctx, mostTracking)
	defer cancel()
	if to := t.config.Tracking.OpenLineage; to != "" {
		if err := tracking.Emit(ctx, to, t.lineage(&e)); err != nil {
			t.say("%s: no event was sent to OpenLineage, which does not change the night: %v", e.Record.Night, err)
		}
	}
	if to := t.config.Tracking.MLflow; to != "" && e.Ended && e.Err == nil {
		if err := tracking.Log(ctx, to, t.config.Tracking.Experiment, t.run(&e)); err != nil {
			t.say("%s: MLflow does not have all of the night, which does not change it: %v", e.Record.Night, err)
		}
	}
}

// lineage returns the event in the form of OpenLineage.
func (t *tracker) lineage(e *nightly.Event) *tracking.Event {
	n := e.Record
	out := &tracking.Event{
		Type: tracking.Start, Time: time.Now(), Namespace: t.config.Tracking.Namespace, Job: t.config.Tracking.Experiment,
		Run: n.Night + " " + strconv.Itoa(n.Number) + " " + n.Started,
	}
	model := placeOf(t.config.Model)
	model.Version = n.Model
	out.Inputs = append(out.Inputs, model)
	for _, day := range n.Days {
		d := placeOf(inFolder(t.config.Days, day.Name))
		d.Version = day.Digest
		out.Inputs = append(out.Inputs, d)
	}
	pruned := placeOf(inFolder(t.config.Out, "nights/"+n.Night+"/"+nightly.PrunedFile))
	if e.Ended {
		pruned.Version = e.Line.Pruned
	}
	out.Outputs = append(out.Outputs, pruned)
	switch {
	case e.Ended && e.Err != nil:
		out.Type, out.Message = tracking.Fail, e.Err.Error()
	case e.Ended && e.Line.Outcome == nightly.Failed:
		out.Type, out.Message = tracking.Fail, "the pruned model failed its check: "+strings.Join(e.Line.Reasons, "; ")
	case e.Ended:
		out.Type = tracking.Complete
	}
	return out
}

// run returns a night that ended as a run of MLflow.
func (t *tracker) run(e *nightly.Event) *tracking.Run {
	l := &e.Line
	r := &tracking.Run{
		Name: l.Night, Began: Time(l.Started), Ended: Time(l.Finished), Failed: l.Outcome == nightly.Failed, Step: int64(l.Number),
		Metrics: map[string]float64{}, Parameters: map[string]string{}, Tags: map[string]string{},
	}
	for name, value := range lineValues(l) {
		switch value := value.(type) {
		case float64:
			r.Metrics[name] = value
		case string:
			r.Tags["shaver."+name] = value
		}
	}
	for _, known := range []string{"version", "night", "started", "finished"} { // which the run itself has
		delete(r.Tags, "shaver."+known)
	}
	r.Tags["mlflow.source.name"] = "shaver nightly"
	r.Tags["shaver.days"] = strings.Join(l.Days, ", ")
	if len(l.Reasons) > 0 {
		r.Tags["shaver.reasons"] = strings.Join(l.Reasons, "; ")
	}
	c := &t.config
	for section, settings := range map[string]nightly.Settings{"score": c.Score, "prune": c.Prune, "check": c.Check} {
		for _, s := range settings {
			if !local(section, s.Name) {
				r.Parameters[section+"."+s.Name] = s.Value
			}
		}
	}
	r.Parameters["window"] = strconv.Itoa(c.Window)
	r.Parameters["calibrate"] = strconv.FormatBool(c.Calibrate)
	file := func(path, name string) {
		r.Files = append(r.Files, tracking.File{Name: name, Open: func() ([]byte, error) { return files.Small(path, 64, "a file of a night") }})
	}
	for _, name := range tracked {
		file(filepath.Join(e.Folder, name), name)
	}
	file(e.Page, filepath.Base(e.Page))
	return r
}

// lineValues returns the values of a line by their names in history.jsonl.
func lineValues(l *nightly.Line) map[string]any {
	text, err := json.Marshal(l)
	if err != nil {
		return nil // a line has no value that JSON cannot express
	}
	var values map[string]any
	if json.Unmarshal(text, &values) != nil {
		return nil
	}
	return values
}

// local reports whether a setting only says where a step runs.
func local(section, name string) bool {
	for _, k := range map[string][]nightly.Key{"score": keys.Score, "prune": keys.Prune, "check": keys.Check}[section] {
		if k.Name == name {
			return k.Local
		}
	}
	return false
}

// placeOf names a path or a URL as OpenLineage does. The settings of a URL, which may be secret,
// are left out.
func placeOf(path string) tracking.Dataset {
	if places.IsURL(path) {
		if u, err := url.Parse(path); err == nil {
			return tracking.Dataset{Namespace: u.Scheme + "://" + u.Host, Name: strings.Trim(u.Path, "/")}
		}
		return tracking.Dataset{Namespace: "unknown", Name: "unknown"}
	}
	if whole, err := filepath.Abs(path); err == nil {
		path = whole
	}
	return tracking.Dataset{Namespace: "file", Name: filepath.ToSlash(path)}
}

// inFolder returns the path or the URL of a name in a folder, without the settings of a URL.
func inFolder(folder, name string) string {
	if !places.IsURL(folder) {
		return filepath.Join(folder, filepath.FromSlash(name))
	}
	folder, _, _ = strings.Cut(folder, "?")
	return strings.TrimRight(folder, "/") + "/" + name
}
