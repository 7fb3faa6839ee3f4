package deploy_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"shaver/internal/base/long"
)

const otherDigest = "sha256:0123456789012345678901234567890123456789012345678901234567890123"

// another maps values of the chart to other values that the schema accepts.
var another = map[string]any{
	"image.pullPolicy": "Always", "image.digest": otherDigest, "nats.image.digest": otherDigest, "nats.url": "tls://other:4222", "nats.servers": 1, "nats.storage.maxFileStore": "9GiB",
	"workers.kind": "Job", "workers.leaveAfter": "9m", "workers.strategy": "Recreate", "data.accessModes": []string{"ReadWriteMany"}, "score.waitInputs": "3h",
	"nightly.schedule": "7 7 * * *", "nightly.modelDigest": "0123456789ab", "serve.scale.downAfter": "9m", "keda.prometheus": "http://other",
	"network.dnsCache": "169.254.20.10/32", "network.objectStore.cidrs": []string{"10.0.0.0/8"}, "network.objectStore.ports": []int{8443},
}

// leaves returns the values of the chart by their paths. Lists, empty mappings and free mappings
// are one value.
func leaves(path string, v any) map[string]any {
	m, ok := v.(map[string]any)
	if !ok || len(m) == 0 || path == "nightly.config" || path == "network.prometheus" {
		return map[string]any{path: v}
	}
	all := map[string]any{}
	for key, value := range m {
		maps.Copy(all, leaves(strings.TrimPrefix(path+"."+key, "."), value))
	}
	return all
}

func values(t *testing.T) map[string]any {
	t.Helper()
	var v map[string]any
	if err := yaml.Unmarshal([]byte(read(t, filepath.Join(root, chart, "values.yaml"))), &v); err != nil {
		t.Fatal(err)
	}
	all := leaves("", v)
	if len(all) < 80 {
		t.Fatalf("%d values", len(all))
	}
	return all
}

// The schema has every value of values.yaml and no other one, and accepts no other name.
func TestSchema(t *testing.T) {
	var schema node
	if err := json.Unmarshal([]byte(read(t, filepath.Join(root, chart, "values.schema.json"))), &schema); err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	var walk func(path string, n node)
	walk = func(path string, n node) {
		properties := n.in("properties")
		if properties == nil || path == "network.prometheus" {
			listed[path] = true
			return
		}
		if n.at("additionalProperties") != false {
			t.Errorf("schema: %s accepts names that are not in it", path)
		}
		for key := range properties {
			if key != "global" { // Helm's own
				walk(strings.TrimPrefix(path+"."+key, "."), properties.in(key))
			}
		}
	}
	walk("", schema)
	delete(listed, "imagePullSecrets.name")
	have := values(t)
	for path := range have {
		if !listed[path] {
			t.Errorf("the schema lacks %s", path)
		}
	}
	for path := range listed {
		if _, ok := have[path]; !ok {
			t.Errorf("values.yaml lacks %s", path)
		}
	}
}

// Every value has an effect on a document. Without helm, only its name must occur in a template.
func TestValuesAreUsed(t *testing.T) {
	all := values(t)
	var templates strings.Builder
	files, err := os.ReadDir(filepath.Join(root, chart, "templates"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		templates.WriteString(read(t, filepath.Join(root, chart, "templates", f.Name())))
	}
	for path := range all {
		key := path[strings.LastIndexByte(path, '.')+1:]
		// The limits of a container are used as a whole.
		if !strings.Contains(path, ".resources.") && !regexp.MustCompile(`\.`+key+`\b`).MatchString(templates.String()) {
			t.Errorf("no template uses %s", path)
		}
	}
	if helm() == "" || !long.All() {
		t.Log("helm was not found, or what takes long is left out: only names were compared")
		return
	}
	const on = "--set score.enabled=true,nightly.enabled=true,loader.enabled=true,monitoring.podMonitor=true,monitoring.rules=true,monitoring.dashboard=true" +
		",network.objectStore.enabled=true,serve.enabled=true"
	bases := []string{on + ",serve.scale.enabled=true,mergers.replicas=2", on, on + ",keda.enabled=true", on + ",workers.kind=Job", on + ",nightly.argo=true"}
	plain := make([]string, len(bases))
	for i, base := range bases {
		plain[i] = render(t, helmArgs(base)...)
	}
	for _, path := range slices.Sorted(maps.Keys(all)) {
		used := slices.ContainsFunc(bases, func(base string) bool {
			i := slices.Index(bases, base)
			if path == "workers.kind" && i != 1 || path == "keda.enabled" && i != 1 || path == "serve.scale.enabled" && i > 1 {
				return false
			}
			if strings.Contains(base, path+"=true") { // --set wins over --set-json
				return render(t, helmArgs(strings.Replace(base, path+"=true", path+"=false", 1))...) != plain[i]
			}
			args := helmArgs(base)
			if at := slices.Index(args, path+"=shaver"); at >= 0 { // of helmArgs itself
				args[at] = path + "=other"
				return render(t, args...) != plain[i]
			}
			other, err := json.Marshal(change(path, all[path]))
			if err != nil {
				t.Fatal(err)
			}
			return render(t, append(args, "--set-json", path+"="+string(other))...) != plain[i]
		})
		if !used {
			t.Errorf("no document changes with another value of %s", path)
		}
	}
}

// change returns another value.
func change(path string, value any) any {
	if v, ok := another[path]; ok {
		return v
	}
	key := path[strings.LastIndexByte(path, '.')+1:]
	switch v := value.(type) {
	case bool:
		return !v
	case int:
		return v + 1
	case string:
		switch {
		case key == "cpu":
			return "9"
		case key == "memory", key == "size", key == "scratch":
			return "77Gi"
		case key == "cache":
			return "7"
		}
		return v + "x"
	case []any:
		if key == "args" || key == "extraArgs" {
			return []string{"--other"}
		}
		return []any{map[string]string{"name": "other"}}
	}
	return map[string]string{"other": "x"}
}
