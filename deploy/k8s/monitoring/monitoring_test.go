// Package monitoring_test checks the alert rules and the dashboard of the chart. That the
// metrics exist is checked by TestJobServe of cmd/shaver, which runs the programs.
package monitoring_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

const (
	rulesFile     = "../../helm/shaver/files/alerts.yaml"
	dashboardFile = "../../helm/shaver/files/dashboard.json"
)

// promtool runs promtool. CI must have it.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	program, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("promtool is missing (Debian's package prometheus has it)")
		}
		t.Skip("promtool is missing (Debian's package prometheus has it)")
	}
	if out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
		t.Fatalf("promtool %q: %v\n%s", args, err, out)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// The rules pass promtool's unit tests, and Prometheus accepts the dashboard's queries.
func TestRules(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "queries.yaml"), queries(t))
	write(t, filepath.Join(dir, "alerts.yaml"), read(t, rulesFile))
	write(t, filepath.Join(dir, "alerts_test.yaml"), read(t, "testdata/alerts_test.yaml"))
	promtool(t, "check", "rules", "--lint-fatal", filepath.Join(dir, "alerts.yaml"))
	promtool(t, "test", "rules", filepath.Join(dir, "alerts_test.yaml"))
	promtool(t, "check", "rules", "--lint-fatal", filepath.Join(dir, "queries.yaml"))
}

// Every rule has a unit test in which it fires, and one in which it does not. This needs no
// promtool.
func TestRulesAreTested(t *testing.T) {
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Labels      struct{ Severity string }
				Annotations struct{ Summary, Description string }
			}
		}
	}
	var tests struct {
		Tests []struct {
			Alerts []struct {
				Name   string `yaml:"alertname"`
				Expect []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	if err := yaml.Unmarshal(read(t, rulesFile), &rules); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(read(t, "testdata/alerts_test.yaml"), &tests); err != nil {
		t.Fatal(err)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, one := range tests.Tests {
		for _, a := range one.Alerts {
			if len(a.Expect) > 0 {
				fires[a.Name] = true
			} else {
				silent[a.Name] = true
			}
		}
	}
	n := 0
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			n++
			if !fires[r.Alert] || !silent[r.Alert] {
				t.Errorf("%s: fires in a test: %v; is silent in a test: %v", r.Alert, fires[r.Alert], silent[r.Alert])
			}
			if r.Annotations.Summary == "" || r.Annotations.Description == "" || !slices.Contains([]string{"warning", "critical"}, r.Labels.Severity) {
				t.Errorf("%s has no summary, description or severity", r.Alert)
			}
		}
	}
	if n < 10 {
		t.Errorf("%d rules were found", n)
	}
}

// dashboard is the part of the dashboard that the tests look at.
type dashboard struct {
	Panels []struct {
		ID      int
		Type    string
		Title   string
		GridPos struct{ X, Y, W, H int }
		Targets []struct{ RefID, Expr string }
	}
}

// The dashboard is one of Grafana's own type, and its panels do not overlap.
func TestDashboard(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile("testdata/dashboard.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal(read(t, dashboardFile), &value); err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(value); err != nil {
		t.Error(err)
	}
	value.(map[string]any)["panels"].([]any)[1].(map[string]any)["tittle"] = "a misspelt property"
	if schema.Validate(value) == nil {
		t.Error("the schema accepts a property that Grafana does not know")
	}
	var d dashboard
	if err := json.Unmarshal(read(t, dashboardFile), &d); err != nil {
		t.Fatal(err)
	}
	ids, taken := map[int]string{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if other, used := ids[p.ID]; used {
			t.Errorf("%q and %q have the id %d", p.Title, other, p.ID)
		}
		ids[p.ID] = p.Title
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%q has no query", p.Title)
		}
		if p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%q is wider than the page", p.Title)
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other, used := taken[at]; used {
					t.Fatalf("%q and %q overlap", p.Title, other)
				}
				taken[at] = p.Title
			}
		}
	}
}

// queries returns the dashboard's queries as a file of rules.
func queries(t *testing.T) []byte {
	t.Helper()
	var d dashboard
	if err := json.Unmarshal(read(t, dashboardFile), &d); err != nil {
		t.Fatal(err)
	}
	type rule struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var rules []rule
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			rules = append(rules, rule{fmt.Sprintf("panel_%d_%s", p.ID, target.RefID), os.Expand(target.Expr, func(name string) string {
				if name != "__rate_interval" {
					t.Errorf("%q: unknown variable %s", p.Title, name)
				}
				return "1m"
			})})
		}
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	return text
}
