package iceberg

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/data/lake"
)

// server is a REST catalogue. Its answers are by method and path.
func server(t *testing.T, answers map[string]func(w http.ResponseWriter, r *http.Request)) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer := answers[r.Method+" "+r.URL.EscapedPath()]; answer != nil {
			answer(w, r)
			return
		}
		http.Error(w, "none", http.StatusNotFound)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func says(text string) func(w http.ResponseWriter, r *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, text) }
}

// withToken answers only if the request has a token.
func withToken(answer func(w http.ResponseWriter, r *http.Request)) func(w http.ResponseWriter, r *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer s3cret" {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		answer(w, r)
	}
}

// A catalogue gives a table's metadata, for a token that the environment has or that a credential is exchanged for. The prefix of its
// overrides counts before that of its defaults.
func TestLoad(t *testing.T) {
	w := newTable(t)
	w.commit(w.manifest(0, "", w.parquet("data/a", "id", 1, []any{1}, "name", 2, []any{"x"})))
	metadata, err := json.Marshal(w.metadata)
	if err != nil {
		t.Fatal(err)
	}
	exchanged := false
	url := server(t, map[string]func(w http.ResponseWriter, r *http.Request){
		"POST /api/v1/oauth/tokens": func(w http.ResponseWriter, r *http.Request) {
			if r.FormValue("grant_type") != "client_credentials" || r.FormValue("client_id") != "me" || r.FormValue("client_secret") != "my:key" || r.FormValue("scope") != "all" {
				t.Errorf("the form is %v", r.Form)
			}
			exchanged = true
			says(`{"access_token":"s3cret"}`)(w, r)
		},
		"GET /api/v1/config": withToken(func(w http.ResponseWriter, r *http.Request) {
			if got := r.URL.RawQuery; got != "warehouse=w+1" {
				t.Errorf("the query is %q", got)
			}
			says(`{"defaults":{"prefix":"x"},"overrides":{"prefix":"p/q r"}}`)(w, r)
		}),
		"GET /api/v1/p/q%20r/namespaces/a%1Fb/tables/t%2Fc": withToken(says(`{"metadata-location":"s3a://lake/t/metadata/7.json","metadata":` + string(metadata) + `,"config":{"s3.access-key-id":"k"}}`)),
	})
	address := url + "/api/?warehouse=w+1&scope=all"
	t.Setenv(tokenVariable, "s3cret")
	for _, credential := range []string{"", "me:my:key"} {
		if t.Setenv(credentialVariable, credential); credential != "" {
			t.Setenv(tokenVariable, "")
		}
		table, err := Load(t.Context(), address, "a.b.t/c")
		if err != nil {
			t.Fatal(err)
		}
		if table.Location != "s3://lake/t" || exchanged != (credential != "") {
			t.Errorf("the location is %s, exchanged %t", table.Location, exchanged)
		}
		s, err := table.Read(t.Context(), lake.Folder(w.folder), lake.Request{})
		if err != nil || len(s.Files) != 1 || s.Files[0].Name != "data/a" {
			t.Errorf("the snapshot is %+v, %v", s, err)
		}
		_, err = table.Read(t.Context(), lake.Folder(w.folder), lake.Request{At: "9"})
		refused(t, err, "s3a://lake/t/metadata/7.json: no snapshot 9")
	}
}

// The errors of a catalogue say what to do, and no secret.
func TestLoadErrors(t *testing.T) {
	t.Setenv(tokenVariable, "s3cret")
	t.Setenv(credentialVariable, "me:s3cret")
	var got *http.Request
	other := server(t, map[string]func(w http.ResponseWriter, r *http.Request){"GET /v1/config": func(w http.ResponseWriter, r *http.Request) { got = r }})
	status := func(n int) func(w http.ResponseWriter, r *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) { http.Error(w, "s3cret", n) }
	}
	const table = "GET /v1/namespaces/n/tables/t"
	for want, answers := range map[string]map[string]func(w http.ResponseWriter, r *http.Request){
		"/v1/config: 401 Unauthorized: the catalogue refuses access: check SHAVER_CATALOG_TOKEN": {"GET /v1/config": status(401)},
		"/v1/config: 404 Not Found: expected the configuration of a catalogue; check its URL":    {},
		"/v1/config: 503 Service Unavailable":                                                    {"GET /v1/config": status(503)},
		"/v1/config: the answer is not JSON":                                                     {"GET /v1/config": says("<html>")},
		"says that its URL is https://h/c: use that one":                                         {"GET /v1/config": says(`{"overrides":{"uri":"https://h/c?s3cret"}}`)},
		"the catalogue redirects to " + other: {"GET /v1/config": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other+"/v1/config?s3cret", http.StatusFound)
		}},
		"/v1/namespaces/n/tables/t: 403 Forbidden":                                   {"GET /v1/config": says("{}"), table: status(403)},
		"/v1/namespaces/n/tables/t: 404 Not Found: expected a table; check its name": {"GET /v1/config": says("{}")},
		"n.t: expected the metadata of an Iceberg table":                             {"GET /v1/config": says("{}"), table: says("{}")},
		"is larger than 64 MiB":                                                      {"GET /v1/config": says(strings.Repeat(" ", mostMetadata<<20+1))},
	} {
		_, err := Load(t.Context(), server(t, answers), "n.t")
		refused(t, err, want)
		if err == nil || strings.Contains(err.Error(), "s3cret") || fault.IsInput(err) == strings.Contains(want, "503") {
			t.Errorf("the error is %v", err)
		}
	}
	if got != nil {
		t.Errorf("the other server got %v", got.Header)
	}
	t.Setenv(tokenVariable, "")
	for want, answer := range map[string]func(w http.ResponseWriter, r *http.Request){
		"/v1/oauth/tokens: 401": status(401), "has no access_token": says("{}"), "400 Bad Request: expected a token": status(400),
	} {
		_, err := Load(t.Context(), server(t, map[string]func(w http.ResponseWriter, r *http.Request){"POST /v1/oauth/tokens": answer}), "n.t")
		refused(t, err, want)
		if err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the error is %v", err)
		}
	}
	for _, c := range [][2]string{{"ftp://h", "n.t"}, {"http://me:s3cret@h", "n.t"}, {"http://h#s3cret", "n.t"}, {"http://h?token=s3cret", "n.t"}, {"http://h?warehouse=s3cret", "t"}, {"http://h", "n."}} {
		if _, err := Load(t.Context(), c[0], c[1]); !fault.IsUsage(err) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: the error is %v", c, err)
		}
	}
	Load(t.Context(), server(t, map[string]func(w http.ResponseWriter, r *http.Request){"POST /v1/oauth/tokens": func(w http.ResponseWriter, r *http.Request) {
		if got := r.FormValue("scope"); got != "catalog" {
			t.Errorf("the scope is %q", got)
		}
	}}), "n.t")
	t.Setenv(credentialVariable, "s3cret")
	if _, err := Load(t.Context(), other, "n.t"); !fault.IsUsage(err) || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the error is %v", err)
	}
}
