package tracking

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// request is what a server was sent.
type request struct {
	line string // method and path with its query
	auth string
	body string
}

// server records requests, and answers each with what answer returns.
type server struct {
	*httptest.Server
	sync.Mutex
	got []request
}

func newServer(t *testing.T, answer func(line string) (int, string)) *server {
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		line := r.Method + " " + r.URL.RequestURI()
		s.Lock()
		s.got = append(s.got, request{line, r.Header.Get("Authorization"), string(body)})
		s.Unlock()
		code, text := answer(line)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(s.Close)
	return s
}

func testRun() *Run {
	at := time.UnixMilli(1_700_000_000_000)
	return &Run{
		Name: "day-2.1", Began: at, Ended: at.Add(time.Minute), Failed: true, Step: 2, Metrics: map[string]float64{"churn": .25, "auc": .5},
		Parameters: map[string]string{"window": "7"}, Tags: map[string]string{"shaver.outcome": "failed", "shaver.long": strings.Repeat("x", 1000)},
		Files: []File{{"report.html", func() ([]byte, error) { return []byte("<p>"), nil }}},
	}
}

const noExperiment = `{"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "No Experiment with name='a b' exists"}`

// A run is created in a new experiment, with its metrics, parameters, tags and files, and ended.
func TestLog(t *testing.T) {
	t.Setenv("MLFLOW_TRACKING_TOKEN", "secret")
	s := newServer(t, func(line string) (int, string) {
		switch {
		case strings.Contains(line, "get-by-name"):
			return 404, noExperiment
		case strings.Contains(line, "experiments/create"):
			return 200, `{"experiment_id": "7"}`
		case strings.Contains(line, "runs/create"):
			return 200, `{"run": {"info": {"run_id": "r1", "artifact_uri": "mlflow-artifacts:/7/r1/artifacts"}}}`
		}
		return 200, "{}"
	})
	if err := Log(t.Context(), s.URL+"/", "a b", testRun()); err != nil {
		t.Fatal(err)
	}
	want := []struct{ line, body string }{
		{"GET /api/2.0/mlflow/experiments/get-by-name?experiment_name=a+b", ""},
		{"POST /api/2.0/mlflow/experiments/create", `{"name":"a b"}`},
		{"POST /api/2.0/mlflow/runs/create", `{"experiment_id":"7","run_name":"day-2.1","start_time":1700000000000,"tags":[{"key":"shaver.long","value":"` +
			strings.Repeat("x", 497) + `..."},{"key":"shaver.outcome","value":"failed"}]}`},
		{"POST /api/2.0/mlflow/runs/log-batch", `{"metrics":[{"key":"auc","value":0.5,"timestamp":1700000060000,"step":2},{"key":"churn","value":0.25,"timestamp":1700000060000,"step":2}],"params":[{"key":"window","value":"7"}],"run_id":"r1"}`},
		{"PUT /api/2.0/mlflow-artifacts/artifacts/7/r1/artifacts/report.html", "<p>"},
		{"POST /api/2.0/mlflow/runs/update", `{"end_time":1700000060000,"run_id":"r1","status":"FAILED"}`},
	}
	if len(s.got) != len(want) {
		t.Fatalf("%d requests, expected %d: %+v", len(s.got), len(want), s.got)
	}
	for i, w := range want {
		if g := s.got[i]; g.line != w.line || g.body != w.body || g.auth != "Bearer secret" {
			t.Errorf("request %d: %+v, expected %+v", i, g, w)
		}
	}
}

// What a server refuses is an error that names the request, and the run is ended all the same.
func TestLogRefused(t *testing.T) {
	s := newServer(t, func(line string) (int, string) {
		switch {
		case strings.Contains(line, "get-by-name"):
			return 200, `{"experiment": {"experiment_id": "7"}}`
		case strings.Contains(line, "runs/create"):
			return 200, `{"run": {"info": {"run_id": "r1", "artifact_uri": "file:///mlruns/r1"}}}`
		}
		return 200, "{}"
	})
	err := Log(t.Context(), s.URL, "e", testRun())
	if err == nil || !strings.Contains(err.Error(), `keeps artifacts at "file:///mlruns/r1" and does not serve them`) {
		t.Errorf("error %v", err)
	}
	if last := s.got[len(s.got)-1]; !strings.Contains(last.line, "runs/update") {
		t.Errorf("the last request is %s", last.line)
	}
	for name, test := range map[string]struct {
		code       int
		text, want string
	}{
		"not allowed": {403, `{"error_code": "PERMISSION_DENIED", "message": "no\npermission"}`, `the server answered 403 Forbidden: "no"`},
		"not MLflow":  {200, "<html>", "the answer is not the JSON of such a server"},
		"not found":   {404, "<html>", "the server answered 404 Not Found"},
	} {
		s := newServer(t, func(string) (int, string) { return test.code, test.text })
		err := Log(t.Context(), s.URL, "e", testRun())
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "get-by-name") || len(s.got) != 1 {
			t.Errorf("%s: error %v after %d requests", name, err, len(s.got))
		}
	}
	s.Close()
	if err := Log(t.Context(), s.URL, "e", testRun()); err == nil {
		t.Error("no error from a server that is gone")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Log(ctx, newServer(t, func(string) (int, string) { return 200, "{}" }).URL, "e", testRun()); err == nil {
		t.Error("no error after the end of the context")
	}
}

// A redirect carries the token only to the server that redirects, and an error does not quote where a redirect led.
func TestRedirect(t *testing.T) {
	t.Setenv("OPENLINEAGE_API_KEY", "key")
	other := newServer(t, func(string) (int, string) { return 200, "" })
	to := ""
	s := newServer(t, nil)
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.got = append(s.got, request{r.URL.Path, r.Header.Get("Authorization"), ""})
		if r.URL.Path != "/end" {
			http.Redirect(w, r, to, http.StatusTemporaryRedirect)
		}
	})
	for _, test := range []struct{ to, auth string }{{other.URL + "/end", ""}, {s.URL + "/end", "Bearer key"}, {"/end", "Bearer key"}} {
		to, other.got, s.got = test.to, nil, nil
		if err := Emit(t.Context(), s.URL+"/begin", &Event{}); err != nil {
			t.Fatal(err)
		}
		if all := append(s.got, other.got...); len(all) != 2 || all[0].auth != "Bearer key" || all[1].auth != test.auth {
			t.Errorf("to %s: %+v, expected %q", test.to, all, test.auth)
		}
	}
	other.Close()
	for _, to = range []string{other.URL + "/end?code=s3cret", s.URL + "/begin?code=s3cret"} {
		if err := Emit(t.Context(), s.URL+"/begin", &Event{}); err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "POST "+s.URL+"/begin: ") {
			t.Errorf("to %s: error %v", to, err)
		}
	}
}

// An event has the form of OpenLineage, and all events of a run have the same id.
func TestEmit(t *testing.T) {
	t.Setenv("OPENLINEAGE_API_KEY", "key")
	s := newServer(t, func(string) (int, string) { return 201, "" })
	e := &Event{Type: Start, Time: time.UnixMilli(1_700_000_000_000), Namespace: "n", Job: "j", Run: "day 1", Inputs: []Dataset{{"file", "/m.pth", "d1"}}, Outputs: []Dataset{{"s3://b", "out", ""}}}
	if err := Emit(t.Context(), s.URL+"/api/v1/lineage", e); err != nil {
		t.Fatal(err)
	}
	e.Type, e.Message = Fail, "broken"
	if err := Emit(t.Context(), s.URL+"/api/v1/lineage", e); err != nil {
		t.Fatal(err)
	}
	type event struct {
		EventType, EventTime, Producer, SchemaURL string
		Run                                       struct {
			RunID  string `json:"runId"`
			Facets map[string]map[string]any
		}
		Job             struct{ Namespace, Name string }
		Inputs, Outputs []struct {
			Namespace, Name string
			Facets          map[string]map[string]any
		}
	}
	var events []event
	for _, r := range s.got {
		if r.line != "POST /api/v1/lineage" || r.auth != "Bearer key" {
			t.Errorf("request %+v", r)
		}
		var e event
		if err := json.Unmarshal([]byte(r.body), &e); err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	first, second := events[0], events[1]
	if first.EventType != "START" || second.EventType != "FAIL" || first.EventTime != "2023-11-14T22:13:20Z" || first.Job.Namespace != "n" || first.Job.Name != "j" {
		t.Errorf("events %+v", events)
	}
	if first.Run.RunID != second.Run.RunID || !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(first.Run.RunID) {
		t.Errorf("run %s, then %s", first.Run.RunID, second.Run.RunID)
	}
	if len(first.Run.Facets) != 0 || second.Run.Facets["errorMessage"]["message"] != "broken" {
		t.Errorf("facets %v, then %v", first.Run.Facets, second.Run.Facets)
	}
	if in := first.Inputs[0]; in.Namespace != "file" || in.Name != "/m.pth" || in.Facets["version"]["datasetVersion"] != "d1" || len(first.Outputs[0].Facets) != 0 {
		t.Errorf("inputs %+v, outputs %+v", first.Inputs, first.Outputs)
	}
}

func TestCheckURL(t *testing.T) {
	for _, address := range []string{"", "localhost:5000", "/tmp", "ftp://a", "http://", "http://user:secret@a", "http://a?b=c", "http://a#b", "http://a\x7f"} {
		if CheckURL(address) == nil {
			t.Errorf("%q is accepted", address)
		}
	}
	for _, address := range []string{"http://localhost:5000", "https://a/b/"} {
		if err := CheckURL(address); err != nil {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// An answer is decoded or is an error with one line of bounded length.
func FuzzAnswer(f *testing.F) {
	f.Add(200, []byte(`{"run": {"info": {"run_id": "r1"}}}`))
	f.Add(404, []byte(noExperiment))
	f.Add(500, []byte(`{"message": "a\nb"}`))
	f.Fuzz(func(t *testing.T, code int, text []byte) {
		var run created
		err := parse(code, "status", text, &run)
		if err != nil && (strings.Contains(err.Error(), "\n") || len(err.Error()) > 2000) {
			t.Errorf("error %q", err)
		}
		if err == nil && !slices.Contains([]int{2}, code/100) {
			t.Errorf("no error for the status %d", code)
		}
	})
}
