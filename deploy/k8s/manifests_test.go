// Package deploy_test checks the deployment files against the programs. It checks that
// flags exist, that all images are the same build, and that the restricted profile admits
// the pods.
package deploy_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"shaver/internal/cli"
	"shaver/internal/launch"
)

// The only images that may be used.
const (
	ownImage  = "shaver:dev"
	natsImage = "nats:2.15"
)

// document is one YAML document of a file.
type document struct {
	file string
	node
}

// node is a mapping. Reading a path that does not exist gives a zero value.
type node map[string]any

func (n node) at(path ...string) any {
	var v any = map[string]any(n)
	for _, key := range path {
		m, _ := v.(map[string]any)
		v = m[key]
	}
	return v
}

func (n node) in(path ...string) node {
	m, _ := n.at(path...).(map[string]any)
	return m
}

func (n node) text(path ...string) string {
	s, _ := n.at(path...).(string)
	return s
}

func (n node) list(path ...string) []node {
	items, _ := n.at(path...).([]any)
	var all []node
	for _, item := range items {
		m, _ := item.(map[string]any)
		all = append(all, m)
	}
	return all
}

func (n node) texts(path ...string) []string {
	items, _ := n.at(path...).([]any)
	var all []string
	for _, item := range items {
		all = append(all, fmt.Sprint(item))
	}
	return all
}

func read(t testing.TB, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// manifests returns every document of every YAML file in this folder.
func manifests(t *testing.T) []document {
	t.Helper()
	var all []document
	each := func(file string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(file) != ".yaml" {
			return err
		}
		decoder := yaml.NewDecoder(strings.NewReader(read(t, file)))
		for {
			var n map[string]any
			if err := decoder.Decode(&n); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			all = append(all, document{file, n})
		}
	}
	for _, folder := range []string{".", natsFolder} {
		if err := filepath.WalkDir(folder, each); err != nil {
			t.Fatal(err)
		}
	}
	if len(all) < 10 {
		t.Fatalf("%d documents", len(all))
	}
	return all
}

func (d *document) name() string {
	return d.file + ": " + d.text("kind") + " " + d.text("metadata", "name")
}

// template returns the pod template of a workload, or nil for any other document.
func (d *document) template() node {
	if d.text("kind") == "CronJob" {
		return d.in("spec", "jobTemplate", "spec", "template")
	}
	return d.in("spec", "template")
}

// checkCommand parses the arguments as the program does, and stops where the program
// would begin its work.
func checkCommand(t *testing.T, where, program string, args []string, required ...string) {
	t.Helper()
	var c *cobra.Command
	switch program {
	case "/bin/worker":
		c, required = launch.WorkCommand("worker"), append(required, "nats")
	case "/bin/coordinator":
		c, required = launch.ScoreCommand("coordinator", true), append(required, "nats")
	case "/bin/shaver":
		// With an unknown format, the program ends once it has parsed its flags.
		const unknown = "-o none: the formats are table and json"
		shaver := exec.CommandContext(t.Context(), "go", append([]string{"run", "shaver/cmd/shaver"}, append(args, "-o", "none")...)...)
		if out, err := shaver.CombinedOutput(); err == nil || !strings.Contains(string(out), unknown) {
			t.Errorf("%s: %v prints %s, expected an error about the format only", where, shaver.Args, out)
		}
		if !slices.ContainsFunc(args, func(arg string) bool { return arg == "--nats" || strings.HasPrefix(arg, "--nats=") }) {
			t.Errorf("%s: no --nats in %v", where, args)
		}
		return
	default:
		t.Errorf("%s: program %q is not in the image", where, program)
		return
	}
	if err := c.ParseFlags(args); err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	if rest := c.Flags().Args(); len(rest) > 0 {
		t.Errorf("%s: unexpected arguments %v after the flags", where, rest)
	}
	if err := cli.Required(c, required...); err != nil {
		t.Errorf("%s: %v", where, err)
	}
}

// checkCommand refuses a bad flag.
func TestCheckCommand(t *testing.T) {
	for _, args := range [][]string{{"--nats=x", "--worker=1"}, {"--nats=x", "--threads=many"}} {
		if launch.WorkCommand("worker").ParseFlags(args) == nil {
			t.Errorf("%v parses", args)
		}
	}
}

func TestPods(t *testing.T) {
	pods := 0
	for _, d := range manifests(t) {
		if d.template() == nil {
			continue
		}
		pods++
		t.Run(d.name(), func(t *testing.T) {
			spec := d.template().in("spec")
			checkPod(t, spec)
			for _, c := range spec.list("containers") {
				checkContainer(t, c)
				if c.text("image") != ownImage {
					continue
				}
				var job []string
				if command := c.texts("command"); len(command) != 1 {
					t.Errorf("unexpected command %v", command)
				} else {
					if command[0] == "/bin/coordinator" {
						job = []string{"model", "dataset", "out"}
					}
					checkCommand(t, c.text("name"), command[0], c.texts("args"), job...)
				}
				checkConnection(t, spec, c)
			}
		})
	}
	if pods != 5 { // NATS, workers twice and coordinator twice
		t.Errorf("%d pod templates, expected 5", pods)
	}
}

// checkPod checks the requirements of the restricted pod security profile for a pod.
func checkPod(t *testing.T, spec node) {
	t.Helper()
	readme := read(t, "README.md")
	if spec.at("securityContext", "runAsNonRoot") != true || spec.at("securityContext", "runAsUser") != 65532 ||
		spec.text("securityContext", "seccompProfile", "type") != "RuntimeDefault" {
		t.Errorf("security context of the pod: %v", spec.in("securityContext"))
	}
	if spec.at("automountServiceAccountToken") != false {
		t.Error("the pod gets a token for the cluster's API")
	}
	if seconds, _ := spec.at("terminationGracePeriodSeconds").(int); seconds < 30 {
		t.Errorf("grace period of %d seconds, expected at least 30", seconds)
	}
	for _, v := range spec.list("volumes") {
		secret := v.text("secret", "secretName")
		if secret != "" && (!strings.Contains(readme, "secret generic "+secret+" ") || v.at("secret", "defaultMode") != 0o440) {
			t.Errorf("secret %s: README.md does not say how to create it, or its mode is not 0440", secret)
		}
		if secret == "" && v.in("configMap") == nil && v.in("persistentVolumeClaim") == nil && v.in("emptyDir") == nil {
			t.Errorf("volume of an unexpected type: %v", v)
		}
	}
	for _, key := range []string{"hostNetwork", "hostPID", "hostIPC", "initContainers"} {
		if spec.at(key) != nil {
			t.Errorf("the pod must not set %s", key)
		}
	}
}

// checkConnection checks that a client uses TLS, authenticates with a mounted file, and
// has health probes.
func checkConnection(t *testing.T, spec, c node) {
	t.Helper()
	args := c.texts("args")
	mounts := map[string]string{} // folder to volume
	for _, m := range c.list("volumeMounts") {
		mounts[m.text("mountPath")] = m.text("name")
	}
	for _, flag := range []string{"--nkey=", "--tlsca="} {
		at := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, flag) })
		if at < 0 {
			t.Errorf("the flag %s is missing", flag)
			continue
		}
		volume := mounts[filepath.Dir(strings.TrimPrefix(args[at], flag))]
		found := slices.ContainsFunc(spec.list("volumes"), func(v node) bool {
			return v.text("name") == volume && v.text("secret", "secretName") == "nats-"+c.text("name")
		})
		if !found {
			t.Errorf("%s is not mounted from the role's secret", args[at])
		}
	}
	if !slices.Contains(args, "--nats=tls://nats:4222") || !slices.Contains(args, "--metrics=0.0.0.0:9090") {
		t.Errorf("unexpected --nats or --metrics in %v", args)
	}
	if slices.Contains(args, "--replicas=3") != (c.text("name") == "coordinator") {
		t.Errorf("unexpected --replicas in %v", args)
	}
	if ports := c.list("ports"); len(ports) != 1 || ports[0].at("containerPort") != 9090 || ports[0].text("name") != "metrics" {
		t.Errorf("unexpected ports %v", ports)
	}
	for probe, path := range map[string]string{"readinessProbe": "/readyz", "livenessProbe": "/healthz"} {
		if c.text(probe, "httpGet", "path") != path || c.text(probe, "httpGet", "port") != "metrics" {
			t.Errorf("%s: %v", probe, c.in(probe))
		}
	}
}

func checkContainer(t *testing.T, c node) {
	t.Helper()
	s := c.in("securityContext")
	if s.at("allowPrivilegeEscalation") != false || s.at("readOnlyRootFilesystem") != true ||
		!slices.Equal(s.texts("capabilities", "drop"), []string{"ALL"}) || s.at("capabilities", "add") != nil {
		t.Errorf("security context of %s: %v", c.text("name"), s)
	}
	if image := c.text("image"); image != ownImage && image != natsImage {
		t.Errorf("unexpected image %q", image)
	}
	limit, request := mebibytes(t, c.text("resources", "limits", "memory")), mebibytes(t, c.text("resources", "requests", "memory"))
	if request < 0.88*limit || request > 0.92*limit {
		t.Errorf("requests.memory, which becomes GOMEMLIMIT, is %.0f MiB and the limit %.0f MiB: expected 90%% of the limit", request, limit)
	}
	from := map[string]string{}
	for _, e := range c.list("env") {
		from[e.text("name")] = e.text("valueFrom", "resourceFieldRef", "resource")
	}
	if from["GOMEMLIMIT"] != "requests.memory" || from["GOMAXPROCS"] != "limits.cpu" {
		t.Errorf("unexpected environment %v", from)
	}
}

func mebibytes(t *testing.T, text string) float64 {
	t.Helper()
	number := strings.TrimRight(text, "MGi")
	v, err := strconv.ParseFloat(number, 64)
	switch unit := text[len(number):]; {
	case err == nil && unit == "Gi":
		return 1024 * v
	case err == nil && unit == "Mi":
		return v
	}
	t.Errorf("invalid memory size %q", text)
	return 0
}

// TestJobs checks that the manifests treat each exit code as the program means it.
func TestJobs(t *testing.T) {
	jobs := 0
	for _, d := range manifests(t) {
		spec := d.in("spec")
		switch d.text("kind") {
		case "CronJob":
			spec = d.in("spec", "jobTemplate", "spec")
		case "Job":
		default:
			continue
		}
		jobs++
		container := spec.list("template", "spec", "containers")[0].text("name")
		want := map[string]string{strconv.Itoa(cli.ExitUsage): "FailJob", strconv.Itoa(cli.ExitBadInput): "FailJob"}
		if container == "coordinator" {
			want[strconv.Itoa(cli.ExitFenced)], want[strconv.Itoa(cli.ExitUnconverged)] = "FailJob", "FailJob"
		} else {
			want[strconv.Itoa(cli.ExitDrained)] = "Ignore"
			if spec.at("completions") != nil {
				t.Errorf("%s: a Job of workers must not set completions", d.name())
			}
		}
		got, evicted := map[string]string{}, ""
		for _, rule := range spec.list("podFailurePolicy", "rules") {
			if codes := rule.in("onExitCodes"); codes != nil {
				if codes.text("containerName") != container || codes.text("operator") != "In" {
					t.Errorf("%s: unexpected rule %v", d.name(), rule)
				}
				for _, code := range codes.texts("values") {
					got[code] = rule.text("action")
				}
			}
			if conditions := rule.list("onPodConditions"); len(conditions) == 1 && conditions[0].text("type") == "DisruptionTarget" && conditions[0].text("status") == "True" {
				evicted = rule.text("action")
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) || evicted != "Ignore" {
			t.Errorf("%s: exit codes %v, expected %v; evicted: %q", d.name(), got, want, evicted)
		}
		// Kubernetes refuses a pod failure policy with any other restart policy.
		if policy := spec.text("template", "spec", "restartPolicy"); policy != "Never" {
			t.Errorf("%s: restartPolicy %q, expected Never", d.name(), policy)
		}
		if spec.text("podReplacementPolicy") != "Failed" {
			t.Errorf("%s: two pods may run at once", d.name())
		}
	}
	if jobs != 3 {
		t.Errorf("%d jobs, expected 3", jobs)
	}
}

// TestReferences checks that everything to which a document refers exists.
func TestReferences(t *testing.T) {
	all := manifests(t)
	labelled := map[string]bool{} // names of all pods
	for _, d := range all {
		if template := d.template(); template != nil {
			label := template.text("metadata", "labels", "app.kubernetes.io/name")
			labelled[label] = true
			if selector := d.text("spec", "selector", "matchLabels", "app.kubernetes.io/name"); selector != "" && selector != label {
				t.Errorf("%s selects %q, but its pods are labelled %q", d.name(), selector, label)
			}
		}
	}
	const label = "app.kubernetes.io/name"
	for _, d := range all {
		if d.text("metadata", "namespace") != "" {
			t.Errorf("%s must not set a namespace", d.name())
		}
		switch d.text("kind") {
		case "Service":
			if name := d.text("spec", "selector", label); !labelled[name] {
				t.Errorf("%s: no pods are labelled %q", d.name(), name)
			}
		case "NetworkPolicy":
			text, err := yaml.Marshal(map[string]any(d.node))
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`(?m)^ *- (\w+)$`).FindAllStringSubmatch(string(text), -1) {
				if m[1] != "Ingress" && m[1] != "Egress" && !labelled[m[1]] {
					t.Errorf("%s: no pods are labelled %q", d.name(), m[1])
				}
			}
		case "Kustomization":
			checkKustomization(t, &d)
		}
	}
}

func checkKustomization(t *testing.T, d *document) {
	t.Helper()
	folder := filepath.Dir(d.file)
	files := d.texts("resources")
	for _, g := range d.list("configMapGenerator") {
		files = append(files, g.texts("files")...)
	}
	for _, name := range files {
		if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
			t.Errorf("%s: %v", d.file, err)
		}
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".go" && !e.IsDir() && e.Name() != "kustomization.yaml" && !slices.Contains(files, e.Name()) {
			t.Errorf("%s does not use %s", d.file, e.Name())
		}
	}
	for _, image := range d.list("images") {
		if got := image.text("name") + ":" + image.text("newTag"); got != ownImage {
			t.Errorf("%s: image %s, expected the one that the manifests use", d.file, got)
		}
	}
}
