// Package deploy_test checks the deployment files against the programs. It checks that
// flags exist, that all images are the same build, and that the restricted profile admits
// the pods.
package deploy_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
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

	"shaver/internal/app/cli"
	"shaver/internal/app/score"
	"shaver/internal/app/work"
)

// The only images that may be used.
var ownImage = "shaver:" + cli.Release()

const (
	natsImage = "nats:2.15.2"
	// A shell, tar and sleep, for kubectl cp.
	toolImage = "busybox:1.37.0"
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

// manifests returns every document of every rendered file.
func manifests(t *testing.T) []document {
	t.Helper()
	var all []document
	for _, file := range slices.Sorted(maps.Keys(rendered)) {
		all = append(all, documents(t, file, read(t, file))...)
	}
	if len(all) < 10 {
		t.Fatalf("%d documents", len(all))
	}
	return all
}

// documents returns the documents of a text. Two equal keys in a mapping are an error.
func documents(t *testing.T, file, text string) (all []document) {
	t.Helper()
	decoder := yaml.NewDecoder(strings.NewReader(text))
	for {
		var n map[string]any
		if err := decoder.Decode(&n); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if n != nil { // not only comments
			all = append(all, document{file, n})
		}
	}
}

func (d *document) name() string {
	return d.file + ": " + d.text("kind") + " " + d.text("metadata", "name") + d.text("metadata", "generateName")
}

// template returns the pod template of a workload, or nil for any other document.
func (d *document) template() node {
	switch d.text("kind") {
	case "CronJob":
		return d.in("spec", "jobTemplate", "spec", "template")
	case "Pod":
		return d.node
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
		c, required = work.Command("worker"), append(required, "nats")
	case "/bin/coordinator":
		c, required = score.CoordinatorCommand(), append(required, "nats")
		if args[0] == "merge" {
			c, args, _ = c.Find(args)
			required = []string{"nats"}
		}
	case "/bin/shaver":
		// With a bad value, the program ends once it has parsed its flags.
		bad, unknown := "--output=none", "-o none: the formats are table and json"
		if slices.Contains(args, "serve") {
			bad, unknown = "--every=1ms", "--every 1ms"
		}
		shaver := exec.CommandContext(t.Context(), "go", append([]string{"run", "shaver/cmd/shaver"}, append(args, bad)...)...)
		if out, err := shaver.CombinedOutput(); err == nil || !strings.Contains(string(out), unknown) {
			t.Errorf("%s: %v prints %s, expected an error about %s only", where, shaver.Args, out, bad)
		}
		if args[0] != "nightly" && !slices.ContainsFunc(args, func(arg string) bool { return arg == "--nats" || strings.HasPrefix(arg, "--nats=") }) {
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
		if work.Command("worker").ParseFlags(args) == nil {
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
				if c.text("image") != toolImage {
					checkLimits(t, c)
				}
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
				checkProbes(t, c)
			}
		})
	}
	if pods != 11 { // NATS and workers twice, score twice, loader, nightly twice, mergers, serve
		t.Errorf("%d pod templates, expected 11", pods)
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
	// Only "shaver job serve" talks to the API server.
	if spec.at("automountServiceAccountToken") != (spec.list("containers")[0].text("name") == "serve") {
		t.Error("the pod gets a token for the cluster's API, or serve gets none")
	}
	if seconds, _ := spec.at("terminationGracePeriodSeconds").(int); seconds < 30 && spec.at("activeDeadlineSeconds") == nil {
		t.Errorf("grace period of %d seconds, expected at least 30", seconds)
	}
	for _, v := range spec.list("volumes") {
		if size := v.text("emptyDir", "sizeLimit"); v.in("emptyDir") != nil && size == "" {
			t.Errorf("volume %s may fill the node's disk", v.text("name"))
		}
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

// checkConnection checks that a client uses TLS and authenticates with a mounted file. The
// configuration of a night says this for shaver nightly.
func checkConnection(t *testing.T, spec, c node) {
	t.Helper()
	args, program := c.texts("args"), c.text("name")
	role := program
	if program == "serve" {
		role = "monitor"
	}
	if program == "merger" {
		role = "coordinator"
	}
	if program == "nightly" {
		role = "coordinator"
		args = nil
		for _, d := range manifests(t) {
			if d.text("kind") != "ConfigMap" || d.text("metadata", "name") != program {
				continue
			}
			var config struct {
				Score   map[string]any
				Metrics struct{ Address string }
			}
			if err := yaml.Unmarshal([]byte(d.text("data", "nightly.yaml")), &config); err != nil {
				t.Fatal(err)
			}
			args = []string{"--metrics=" + config.Metrics.Address}
			for key, value := range config.Score {
				args = append(args, fmt.Sprintf("--%s=%v", key, value))
			}
		}
	}
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
			return v.text("name") == volume && v.text("secret", "secretName") == "nats-"+role
		})
		if !found {
			t.Errorf("%s is not mounted from the role's secret", args[at])
		}
	}
	if !slices.Contains(args, "--nats=tls://nats:4222") || !slices.Contains(args, "--metrics=0.0.0.0:9090") {
		t.Errorf("unexpected --nats or --metrics in %v", args)
	}
	if slices.Contains(args, "--replicas=3") != (role == "coordinator" && program != "merger") {
		t.Errorf("unexpected --replicas in %v", args)
	}
}

// checkProbes checks that a pod is ready soon after its program is, and that a slow start does not
// end it.
func checkProbes(t *testing.T, c node) {
	t.Helper()
	if ports := c.list("ports"); len(ports) != 1 || ports[0].at("containerPort") != 9090 || ports[0].text("name") != "metrics" {
		t.Errorf("unexpected ports %v", ports)
	}
	for probe, path := range map[string]string{"startupProbe": "/healthz", "readinessProbe": "/readyz", "livenessProbe": "/healthz"} {
		if c.text(probe, "httpGet", "path") != path || c.text(probe, "httpGet", "port") != "metrics" {
			t.Errorf("%s: %v", probe, c.in(probe))
		}
	}
	period, _ := c.at("readinessProbe", "periodSeconds").(int)
	start, _ := c.at("startupProbe", "periodSeconds").(int)
	failures, _ := c.at("startupProbe", "failureThreshold").(int)
	if period < 1 || period > 5 || start*failures < 300 {
		t.Errorf("ready after up to %d s, and a start may take %d s", period, start*failures)
	}
}

func checkContainer(t *testing.T, c node) {
	t.Helper()
	s := c.in("securityContext")
	if s.at("allowPrivilegeEscalation") != false || s.at("readOnlyRootFilesystem") != true ||
		!slices.Equal(s.texts("capabilities", "drop"), []string{"ALL"}) || s.at("capabilities", "add") != nil {
		t.Errorf("security context of %s: %v", c.text("name"), s)
	}
	if image := c.text("image"); image != ownImage && image != natsImage && image != toolImage {
		t.Errorf("unexpected image %q", image)
	}
}

// checkLimits checks that the program knows the limits of its container.
func checkLimits(t *testing.T, c node) {
	t.Helper()
	limit, request := mebibytes(t, c.text("resources", "limits", "memory")), mebibytes(t, c.text("resources", "requests", "memory"))
	if request < 0.88*limit || request > 0.92*limit {
		t.Errorf("requests.memory, which becomes GOMEMLIMIT, is %.0f MiB and the limit %.0f MiB: expected 90%% of the limit", request, limit)
	}
	if disk := mebibytes(t, c.text("resources", "requests", "ephemeral-storage")); disk < 100 {
		t.Errorf("the container asks for %.0f MiB of the node's disk, expected room for its log at least", disk)
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
		want := map[string]string{}
		for _, code := range final {
			want[strconv.Itoa(code)] = "FailJob"
		}
		// A pod that is deleted or killed counts, so the limit is high and the deadline counts.
		if limit, _ := spec.at("backoffLimit").(int); limit < 50 || spec.at("activeDeadlineSeconds") == nil || spec.at("ttlSecondsAfterFinished") == nil {
			t.Errorf("%s: backoffLimit %d, activeDeadlineSeconds %v, ttlSecondsAfterFinished %v", d.name(), limit, spec.at("activeDeadlineSeconds"), spec.at("ttlSecondsAfterFinished"))
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
	if jobs != 4 { // score twice, nightly twice
		t.Errorf("%d jobs, expected 4", jobs)
	}
}

// final are the exit codes after which another try would not help.
var final = []int{cli.ExitUsage, cli.ExitUnconverged, cli.ExitIncomplete, cli.ExitFenced, cli.ExitCancelled, cli.ExitGate, cli.ExitBadInput}

// The workflow of Argo retries after the same exit codes as the Jobs, and a program runs in it as
// in a Job.
func TestArgo(t *testing.T) {
	var workflow, cron node
	for _, d := range manifests(t) {
		switch {
		case d.text("kind") == "WorkflowTemplate":
			workflow = d.in("spec")
		case d.text("kind") == "CronJob":
			cron = d.template().in("spec")
		}
	}
	template := workflow.list("templates")[0]
	want := "not in " + strings.Join(strings.Fields(fmt.Sprint(final)), ", ")
	if got := template.text("retryStrategy", "expression"); !strings.HasSuffix(got, want) {
		t.Errorf("expression %q, expected the end %q", got, want)
	}
	container := template.in("container")
	checkContainer(t, container)
	checkLimits(t, container)
	checkProbes(t, container)
	for _, key := range []string{"args", "command", "volumeMounts", "env", "resources", "image"} {
		if got, want := container.at(key), cron.list("containers")[0].at(key); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, expected that of the CronJob, %v", key, got, want)
		}
	}
	if got, want := workflow.at("volumes"), cron.at("volumes"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("volumes %v, expected those of the CronJob, %v", got, want)
	}
	if got, want := workflow.at("securityContext"), cron.at("securityContext"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("security context %v, expected that of the CronJob, %v", got, want)
	}
}

// shaver nightly accepts the configuration in the ConfigMap. It fails only because there are no
// inputs.
func TestNightlyConfig(t *testing.T) {
	for _, d := range manifests(t) {
		text := d.text("data", "nightly.yaml")
		if text == "" {
			continue
		}
		data := filepath.Join(t.TempDir(), "data")
		file := filepath.Join(t.TempDir(), "nightly.yaml")
		text = strings.NewReplacer("/data/", filepath.ToSlash(data)+"/", "0.0.0.0:9090", "127.0.0.1:0", "wait-inputs: 6h", "wait-inputs: 1ms").Replace(text)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		night := exec.CommandContext(t.Context(), "go", "run", "shaver/cmd/shaver", "nightly", "--config", file)
		out, err := night.CombinedOutput()
		if err == nil || !strings.Contains(string(out), data+string(filepath.Separator)) {
			t.Errorf("%s: %v: %s, expected an error about the missing inputs", d.name(), err, out)
		}
	}
}

// Every object and every pod has the standard labels, and those of the values. A value cannot change the
// labels by which Services and policies find pods.
func TestLabels(t *testing.T) {
	all := manifests(t)
	own := []string{"app.kubernetes.io/name", "app.kubernetes.io/part-of", "app.kubernetes.io/instance"}
	want := append(slices.Clone(own), "app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart")
	if helm() != "" {
		all = append(all, documents(t, "with commonLabels", render(t, helmArgs("--set score.enabled=true,nightly.enabled=true,serve.enabled=true,loader.enabled=true,mergers.replicas=1"+
			",monitoring.podMonitor=true,commonLabels.team=ranking,commonLabels.app\\.kubernetes\\.io/name=other,workers.podLabels.team=workers")...))...)
	}
	for _, d := range all {
		common := strings.HasPrefix(d.file, "with ")
		for _, key := range want {
			if d.text("metadata", "labels", key) == "" {
				t.Errorf("%s lacks the label %s", d.name(), key)
			}
		}
		if common && d.text("metadata", "labels", "team") != "ranking" {
			t.Errorf("%s lacks the label of commonLabels", d.name())
		}
		if d.text("metadata", "labels", own[0]) == "other" {
			t.Errorf("%s: commonLabels changes the name", d.name())
		}
		template := d.template()
		if template == nil {
			continue
		}
		for _, key := range own {
			if template.text("metadata", "labels", key) == "" {
				t.Errorf("%s: its pods lack the label %s", d.name(), key)
			}
		}
		team := "ranking"
		if d.text("metadata", "name") == "worker" {
			team = "workers"
		}
		if common && template.text("metadata", "labels", "team") != team {
			t.Errorf("%s: its pods have the team %q, expected %q", d.name(), template.text("metadata", "labels", "team"), team)
		}
	}
}

// The pods of servers, workers and mergers spread over zones and nodes, and a server that ends gives its
// clients and its streams to the others first.
func TestSpread(t *testing.T) {
	spread := map[string]bool{}
	for _, d := range manifests(t) {
		name := d.text("metadata", "name")
		if kind := d.text("kind"); kind != "StatefulSet" && kind != "Deployment" || name == "serve" { // one pod
			continue
		}
		spread[name] = true
		var keys []string
		for _, c := range d.template().list("spec", "topologySpreadConstraints") {
			keys = append(keys, c.text("topologyKey"))
			if c.text("labelSelector", "matchLabels", "app.kubernetes.io/name") != name {
				t.Errorf("%s spreads by other pods: %v", d.name(), c)
			}
		}
		if !slices.Equal(keys, []string{"topology.kubernetes.io/zone", "kubernetes.io/hostname"}) {
			t.Errorf("%s spreads over %v", d.name(), keys)
		}
		if name != "nats" {
			continue
		}
		stop := d.template().list("spec", "containers")[0].texts("lifecycle", "preStop", "exec", "command")
		if strings.Join(stop, " ") != "nats-server --signal ldm=1" {
			t.Errorf("%s: before it stops, %v runs", d.name(), stop)
		}
		seconds, _ := d.template().at("spec", "terminationGracePeriodSeconds").(int)
		limit := regexp.MustCompile(`lame_duck_duration: (\d+)s`).FindStringSubmatch(read(t, natsFolder+"/server.conf"))
		if limit == nil {
			t.Fatal("server.conf has no lame_duck_duration in seconds")
		}
		if duration, _ := strconv.Atoi(limit[1]); duration < 30 || duration > seconds-10 {
			t.Errorf("a server closes its clients for up to %d s, and is killed after %d s", duration, seconds)
		}
	}
	if len(spread) != 3 {
		t.Errorf("%v, expected nats, worker and merger", spread)
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
		}
	}
}

// README.md says what the installed files ask for.
func TestSums(t *testing.T) {
	type sum struct{ cores, memory, volumes float64 }
	sums := map[string]*sum{"shaver.yaml": {}, "small.yaml": {}}
	for _, d := range manifests(t) {
		s := sums[d.file]
		if s == nil {
			continue
		}
		replicas, _ := d.at("spec", "replicas").(int)
		for _, c := range d.template().list("spec", "containers") {
			cpu := c.text("resources", "requests", "cpu")
			cores, err := strconv.ParseFloat(strings.TrimSuffix(cpu, "m"), 64)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(cpu, "m") {
				cores /= 1000
			}
			s.cores += float64(replicas) * cores
			s.memory += float64(replicas) * mebibytes(t, c.text("resources", "requests", "memory"))
		}
		for _, claim := range d.list("spec", "volumeClaimTemplates") {
			s.volumes += float64(replicas) * mebibytes(t, claim.text("spec", "resources", "requests", "storage")) / 1024
		}
		if d.text("kind") == "PersistentVolumeClaim" {
			s.volumes += mebibytes(t, d.text("spec", "resources", "requests", "storage")) / 1024
		}
	}
	readme := read(t, "README.md")
	for file, s := range sums {
		want := fmt.Sprintf("%.3g cores, %.0f MiB, volumes of %.0f GiB", s.cores, s.memory, s.volumes)
		if line := regexp.MustCompile("(?m)^\\| `" + file + "` .*$").FindString(readme); !strings.Contains(line, want) {
			t.Errorf("README.md says %q, expected %q", line, want)
		}
	}
}
