package schemas_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"

	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
	"shaver/schemas"
)

// TestPage checks that docs/reference/formats.md names every schema, and that each of its JSON
// examples has the form that it claims.
func TestPage(t *testing.T) {
	data, err := os.ReadFile("../docs/reference/formats.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	names, err := fs.Glob(schemas.Files, "*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("the page does not name %s", name)
		}
	}
	shown := map[string]bool{}
	for _, m := range regexp.MustCompile("(?s)```json (\\S+)\n(.*?)```").FindAllStringSubmatch(page, -1) {
		name, text := m[1], []byte(m[2])
		shown[name] = true
		accept(t, name, text)
		var task job.Task
		if name != "task.v2.json" {
			continue
		}
		if err := json.Unmarshal(text, &task); err != nil {
			t.Error(err)
		} else if task.Spec.ID() != task.Job || task.Model.Name != bus.ModelName(task.Spec.Model) {
			t.Errorf("the task's specification belongs to job %s, and its model is %s", task.Spec.ID(), task.Model.Name)
		}
	}
	for name := range pinned {
		if name != "blob.v1.json" && name != "plan.v1.json" && !shown[name] {
			t.Errorf("the page has no example of %s", name)
		}
	}
}
