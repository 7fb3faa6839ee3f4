package deploy_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"shaver/internal/base/long"
)

const root = "../.." // the root of the repository

// compose holds the parts of a compose file that we use. A key that is not here is
// misspelt or has to be added.
type compose struct {
	Name     string
	Confined yaml.Node `yaml:"x-confined"` // checked in the services into which it is merged
	NATS     yaml.Node `yaml:"x-nats"`
	Services map[string]struct {
		Image       string
		Build       string
		Entrypoint  []string
		Command     []string
		WorkingDir  string `yaml:"working_dir"`
		Environment map[string]string
		EnvFile     []string `yaml:"env_file"`
		Configs     []mounted
		Secrets     []mounted
		Volumes     []string
		Ports       []string
		Networks    map[string]struct{ Aliases []string }
		DependsOn   depends `yaml:"depends_on"`
		Healthcheck struct {
			Test        []string
			Interval    string
			Timeout     string
			StartPeriod string `yaml:"start_period"`
		}
		Profiles    []string
		Restart     string
		StopGrace   string   `yaml:"stop_grace_period"`
		ReadOnly    bool     `yaml:"read_only"`
		CapDrop     []string `yaml:"cap_drop"`
		SecurityOpt []string `yaml:"security_opt"`
		CPUs        string   `yaml:"cpus"`
		MemLimit    string   `yaml:"mem_limit"`
		Deploy      struct{ Replicas string }
	}
	Volumes map[string]struct{}
	Configs map[string]struct{ File string } // a file, because Compose cannot write content into a container with a read-only root
	Secrets map[string]struct{ File string }
}

// depends are the names of the services on which a service depends, given as a list or with the
// condition of each.
type depends map[string]string

func (d *depends) UnmarshalYAML(n *yaml.Node) error {
	*d = depends{}
	if n.Kind == yaml.SequenceNode {
		var names []string
		err := n.Decode(&names)
		for _, name := range names {
			(*d)[name] = "service_started"
		}
		return err
	}
	var long map[string]struct{ Condition string }
	err := n.Decode(&long)
	for name, c := range long {
		(*d)[name] = c.Condition
	}
	return err
}

// mounted is a config or secret of a service, given by its name or as a mapping.
type mounted struct{ Source, Target string }

func (m *mounted) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		m.Source, m.Target = n.Value, "/run/secrets/"+n.Value
		return nil
	}
	var long struct{ Source, Target string }
	err := n.Decode(&long)
	*m = mounted(long)
	return err
}

func TestCompose(t *testing.T) {
	long.Test(t)
	text := read(t, filepath.Join(root, "docker-compose.yml"))
	var c compose
	strict := yaml.NewDecoder(strings.NewReader(text))
	strict.KnownFields(true)
	if err := strict.Decode(&c); err != nil {
		t.Fatal(err)
	}
	aliases := map[string]bool{}
	for name, s := range c.Services {
		want, isNATS := ownImage, strings.HasPrefix(name, "nats-")
		if isNATS {
			want = natsImage + "-alpine"
			if test := strings.Join(s.Healthcheck.Test, " "); !strings.HasPrefix(test, "CMD wget ") || !strings.Contains(test, " http://127.0.0.1:8222/healthz") || s.Healthcheck.Interval == "" {
				t.Errorf("service %s: unexpected health check %+v", name, s.Healthcheck)
			}
			if s.Environment["NATS_NAME"] != name || !slices.Contains(s.Volumes, name+":/data") {
				t.Errorf("service %s: unexpected name %q or volumes %v", name, s.Environment["NATS_NAME"], s.Volumes)
			}
		}
		if s.Image != want {
			t.Errorf("service %s: unexpected image %q", name, s.Image)
		}
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("service %s: port %s is not bound to 127.0.0.1", name, port)
			}
		}
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("service %s is not confined", name)
		}
		for other, condition := range s.DependsOn {
			if o, ok := c.Services[other]; !ok || condition == "service_healthy" && o.Healthcheck.Test == nil {
				t.Errorf("service %s depends on the service %s, which is unknown or without a health check", name, other)
			}
		}
		inside := map[string]bool{} // paths of the mounted files
		for _, m := range s.Configs {
			inside[m.Target] = c.Configs[m.Source].File != ""
		}
		for _, m := range s.Secrets {
			inside[m.Target] = c.Secrets[m.Source].File != ""
		}
		for _, n := range s.Networks {
			for _, alias := range n.Aliases {
				aliases[alias] = true
			}
		}
		if isNATS {
			for _, file := range regexp.MustCompile(`/etc/nats/tls/[\w.]+`).FindAllString(read(t, natsFolder+"/cluster.conf")+read(t, natsFolder+"/server.conf"), -1) {
				if !inside[file] {
					t.Errorf("service %s: %s is not mounted", name, file)
				}
			}
			continue
		}
		args := slices.DeleteFunc(slices.Concat(s.Entrypoint[1:], s.Command), func(arg string) bool { return arg == "--help" })
		for _, arg := range args {
			if i := strings.Index(arg, "/run/"); i >= 0 && !inside[arg[i:]] {
				t.Errorf("service %s: %s is not mounted", name, arg[i:])
			}
		}
		checkCommand(t, "service "+name, s.Entrypoint[0], args)
	}
	for _, name := range append(routes(t), "nats") {
		if !aliases[name] {
			t.Errorf("no server has the name %s", name)
		}
	}
	if content := read(t, filepath.Join(root, c.Configs["health"].File)); !strings.Contains(content, "\ninclude ./cluster.conf\nhttp: \"127.0.0.1:8222\"") {
		t.Errorf("unexpected configuration of the servers: %q", content)
	}
	for _, f := range c.Configs {
		if _, err := os.Stat(filepath.Join(root, f.File)); err != nil {
			t.Error(err)
		}
	}
	made := read(t, keysFolder+"/main.go")
	for name, f := range c.Secrets {
		if file := filepath.Base(f.File); !strings.Contains(made, file) && !strings.Contains(made, `"`+strings.TrimSuffix(file, ".nk")+`"`) {
			t.Errorf("secret %s: no program creates %s", name, f.File)
		}
	}
	// The example in the comment at the top of the file.
	example := regexp.MustCompile(`run --rm --user \S+ coordinator \\\n# +(--.*)\n`).FindStringSubmatch(strings.ReplaceAll(text, `"$(id -u):$(id -g)"`, "me"))
	if example == nil {
		t.Fatal("the file has no example of how to run a job")
	}
	checkCommand(t, "example", "/bin/coordinator", append(strings.Fields(example[1]), "--nats=x"), "model", "dataset", "out")
}

const (
	keysFolder = "../nats/keys"
	natsFolder = "../helm/shaver/files" // configuration of the servers
)

// routes returns the names by which the servers of a cluster reach each other.
func routes(t *testing.T) (names []string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`tls://([\w.-]+):6222`).FindAllStringSubmatch(read(t, natsFolder+"/cluster.conf"), -1) {
		names = append(names, m[1])
	}
	if len(names) != 3 {
		t.Fatalf("routes %v", names)
	}
	made := read(t, keysFolder+"/main.go")
	for _, name := range names {
		if !strings.Contains(made, name) {
			t.Errorf("the certificates do not include the name %s", name)
		}
	}
	return names
}

// TestVersions checks the images against go.mod, which holds the version of Go and the
// version of the server that the tests use.
func TestVersions(t *testing.T) {
	mod, dockerfile := read(t, filepath.Join(root, "go.mod")), read(t, filepath.Join(root, "Dockerfile"))
	language := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(mod)
	server := regexp.MustCompile(`(?m)github.com/nats-io/nats-server/v2 v(\d+\.\d+\.\d+)`).FindStringSubmatch(mod)
	if language == nil || server == nil {
		t.Fatal("go.mod lacks the version of Go or of the server")
	}
	if !regexp.MustCompile(`(?m)^FROM golang:` + regexp.QuoteMeta(language[1]) + `\.\d+-\w+ AS build$`).MatchString(dockerfile) {
		t.Errorf("the Dockerfile does not build with a patch of Go %s", language[1])
	}
	if natsImage != "nats:"+server[1] {
		t.Errorf("the image is %s, but the tests run %s", natsImage, server[1])
	}
	for _, want := range []string{"\nFROM scratch\n", "\nUSER 65532:65532\n", "CGO_ENABLED=0 ", "./cmd/shaver", "./cmd/coordinator", "./cmd/worker", "COPY LICENSE THIRD_PARTY.txt /licenses/"} {
		if !strings.Contains(dockerfile, want) {
			t.Errorf("the Dockerfile has no %q", want)
		}
	}
	images := regexp.MustCompile(`(?m)^FROM (\S+)`).FindAllStringSubmatch(dockerfile, -1)
	for _, image := range images {
		if strings.Contains(image[1], "/") {
			t.Errorf("the image %s names a registry", image[1])
		}
	}
}

// TestBuildContext checks that the Dockerfile copies every folder from which the programs
// import.
func TestBuildContext(t *testing.T) {
	copied := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^COPY (\w+) \./`).FindAllStringSubmatch(read(t, filepath.Join(root, "Dockerfile")), -1) {
		copied[m[1]] = true
	}
	module := strings.Fields(read(t, filepath.Join(root, "go.mod")))[1]
	imports := regexp.MustCompile(`"` + regexp.QuoteMeta(module) + `/(\w+)`)
	for _, folder := range []string{"cmd", "internal"} {
		if !copied[folder] {
			t.Errorf("the Dockerfile does not copy %s", folder)
		}
		err := filepath.WalkDir(filepath.Join(root, folder), func(file string, entry fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
				return err
			}
			for _, m := range imports.FindAllStringSubmatch(read(t, file), -1) {
				if !copied[m[1]] {
					t.Errorf("%s imports from %s, which the Dockerfile does not copy", file, m[1])
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
