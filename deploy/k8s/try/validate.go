//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"shaver/deploy/internal/trial"
)

// definitions are the custom resources that manifests use, as files of Go modules.
var definitions = []struct{ module, version, file string }{
	{"github.com/prometheus-operator/prometheus-operator", "v0.85.0", "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml"},
	{"github.com/prometheus-operator/prometheus-operator", "v0.85.0", "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml"},
	{"github.com/kedacore/keda/v2", "v2.21.0", "config/crd/bases/keda.sh_scaledobjects.yaml"},
}

// argo defines WorkflowTemplate with any content, because its module is not published.
const argo = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: workflowtemplates.argoproj.io}
spec:
  group: argoproj.io
  scope: Namespaced
  names: {kind: WorkflowTemplate, plural: workflowtemplates}
  versions:
  - {name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// define installs the custom resources that can be had. It returns the API groups of them.
func (s *suite) define(t *trial.Step) []string {
	var groups []string
	apply := func(group, file, stdin string) {
		c := s.Kubectl("apply", "--server-side", "--filename="+file)
		c.Stdin, c.Show = stdin, "kubectl apply --server-side --filename="+filepath.Base(file)
		if stdin != "" {
			c.Show = "kubectl apply --server-side --filename=- # WorkflowTemplate with any content"
		}
		t.Do(c)
		groups = append(groups, group)
	}
	for _, d := range definitions {
		file := filepath.Join(s.cache, "crds", filepath.Base(d.file))
		if _, err := os.Stat(file); err != nil {
			if err := fetch(t, d.module+"@"+d.version, d.file, file); err != nil {
				t.Say("%s cannot be had: %v", filepath.Base(d.file), err)
				continue
			}
		}
		group, _, _ := strings.Cut(filepath.Base(d.file), "_")
		apply(group, file, "")
	}
	apply("argoproj.io", "-", argo)
	for _, d := range []string{"podmonitors.monitoring.coreos.com", "prometheusrules.monitoring.coreos.com", "scaledobjects.keda.sh", "workflowtemplates.argoproj.io"} {
		c := s.Kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd/"+d)
		c.Lines = -1
		t.Try(c)
	}
	return groups
}

// moduleDir returns the folder of a Go module, given as PATH@VERSION.
func moduleDir(t *trial.Step, module string) (string, error) {
	out, err := exec.CommandContext(t.Ctx, "go", "mod", "download", "-json", module).Output()
	if err != nil {
		return "", err
	}
	var m struct{ Dir string }
	err = json.Unmarshal(out, &m)
	return m.Dir, err
}

// fetch copies a file of a Go module.
func fetch(t *trial.Step, module, name, to string) error {
	dir, err := moduleDir(t, module)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}

// manifests returns the rendered files of deploy/k8s, with the command of helm that renders
// each.
func (s *suite) manifests(t *trial.Step) map[string]string {
	commands := map[string]string{}
	for _, pattern := range []string{"*.yaml", "nightly/*.yaml", "monitoring/*.yaml"} {
		files, _ := filepath.Glob(filepath.Join(s.source(), "deploy", "k8s", pattern))
		for _, f := range files {
			text, err := os.ReadFile(f)
			t.Check(err)
			if _, rest, ok := strings.Cut(string(text), "\n#   helm "); ok {
				name, _ := filepath.Rel(s.source(), f)
				commands[name], _, _ = strings.Cut(rest, "\n")
			}
		}
	}
	return commands
}

// validate lets the API server check every manifest, and compares the files with what the
// chart renders.
func (s *suite) validate(t *trial.Step) {
	s.define(t)
	commands := s.manifests(t)
	var names, different, refused, warned []string
	for name := range commands {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(s.source(), name))
		t.Check(err)
		render := s.helm(strings.Fields(commands[name])...)
		render.Show, render.Lines = "helm "+commands[name], -1
		_, body, _ := strings.Cut(string(text), "\n---\n")
		_, out, _ := strings.Cut("\n"+t.Do(render), "\n---\n")
		if strings.TrimSpace(out) != strings.TrimSpace(body) {
			different = append(different, name)
		}
		verb := "apply"
		if strings.Contains(string(text), "\n  generateName:") {
			verb = "create"
		}
		check := s.kubectl(verb, "--namespace="+space, "--dry-run=server", "--validate=strict", "--filename="+name)
		check.Lines = 6
		r := t.Try(check)
		if r.Code != 0 {
			refused = append(refused, name+": "+trial.Short(r.Text(), 300))
		}
		if strings.Contains(r.Err, "Warning") {
			warned = append(warned, name+": "+trial.Short(r.Err, 300))
		}
	}
	t.Expect(len(names) >= 8 && different == nil, "every file of deploy/k8s is what the chart renders", fmt.Sprintf("%d files, different: %v", len(names), different))
	t.Expect(refused == nil, "the API server accepts every file (strict, dry run)", fmt.Sprintf("refused: %v", refused))
	t.Expect(warned == nil, "no warning, also not of pod security", fmt.Sprintf("warnings: %v", warned))
	for _, values := range []string{
		"workers.kind=Job", "serve.enabled=true,serve.scale.enabled=true", "monitoring.rules=true,monitoring.dashboard=true",
		"data.enabled=false,network.objectStore.enabled=true,nightly.enabled=true", "nats.servers=1",
		"mergers.replicas=2,commonLabels.team=ranking",
	} {
		render := s.helm("template", "shaver", chart, "--namespace", space, "--set", ownImage+","+values)
		render.Lines = -1
		check := s.kubectl("apply", "--namespace="+space, "--dry-run=server", "--validate=strict", "--filename=-")
		check.Stdin, check.Lines = t.Do(render), -1
		r := t.Try(check)
		t.Expect(r.Code == 0 && !strings.Contains(r.Err, "Warning"), "the API server accepts the chart with "+values, trial.Short(r.Err, 300))
	}
	t.Point("19", "the API server accepts PodMonitor and PrometheusRule by the definitions of their operator")
}

// check is the step of -validate: an API server without controllers.
func (s *suite) check(t *trial.Step) {
	t.Do(s.Kubectl("create", "namespace", space))
	t.Do(s.Kubectl("label", "namespace", space, "pod-security.kubernetes.io/enforce=restricted", "pod-security.kubernetes.io/warn=restricted"))
	t.Do(s.Kubectl("create", "serviceaccount", "default", "--namespace="+space)) // otherwise a controller makes it
	s.validate(t)
}
