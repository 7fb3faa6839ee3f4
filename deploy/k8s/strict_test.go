package deploy_test

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The types below hold the fields of the Kubernetes API that we use. k8s.io/api is larger
// than this whole project, so the fields are repeated here. A field that is misspelt or
// has the wrong type is an error. Before you add a field, look it up in the API
// reference.
type (
	labels map[string]string

	metadata struct {
		Name         string
		GenerateName string `yaml:"generateName"`
		Labels       labels
		Annotations  labels
	}
	selector struct {
		MatchLabels      labels `yaml:"matchLabels"`
		MatchExpressions []struct {
			Key      string
			Operator string
			Values   []string
		} `yaml:"matchExpressions"`
	}
	keyRef struct {
		Name string
		Key  string
	}
	envVar struct {
		Name      string
		Value     string
		ValueFrom struct {
			FieldRef struct {
				FieldPath string `yaml:"fieldPath"`
			} `yaml:"fieldRef"`
			ResourceFieldRef struct{ Resource string } `yaml:"resourceFieldRef"`
			SecretKeyRef     keyRef                    `yaml:"secretKeyRef"`
		} `yaml:"valueFrom"`
	}
	probe struct {
		HTTPGet          struct{ Path, Port string } `yaml:"httpGet"`
		PeriodSeconds    int                         `yaml:"periodSeconds"`
		TimeoutSeconds   int                         `yaml:"timeoutSeconds"`
		FailureThreshold int                         `yaml:"failureThreshold"`
	}
	amounts struct {
		CPU, Memory, Storage string
		EphemeralStorage     string `yaml:"ephemeral-storage"`
	}
	container struct {
		Name, Image     string
		ImagePullPolicy string `yaml:"imagePullPolicy"`
		Command, Args   []string
		Ports           []struct {
			Name          string
			ContainerPort int `yaml:"containerPort"`
		}
		Env       []envVar
		Resources struct{ Limits, Requests amounts }
		Lifecycle struct {
			PreStop struct{ Exec struct{ Command []string } } `yaml:"preStop"`
		}
		StartupProbe    *probe `yaml:"startupProbe"`
		ReadinessProbe  *probe `yaml:"readinessProbe"`
		LivenessProbe   *probe `yaml:"livenessProbe"`
		SecurityContext struct {
			AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
			ReadOnlyRootFilesystem   *bool `yaml:"readOnlyRootFilesystem"`
			Capabilities             struct{ Drop []string }
		} `yaml:"securityContext"`
		VolumeMounts []struct {
			Name      string
			MountPath string `yaml:"mountPath"`
			ReadOnly  bool   `yaml:"readOnly"`
		} `yaml:"volumeMounts"`
	}
	volume struct {
		Name      string
		ConfigMap struct{ Name string } `yaml:"configMap"`
		EmptyDir  *struct {
			SizeLimit string `yaml:"sizeLimit"`
		} `yaml:"emptyDir"`
		PersistentVolumeClaim struct {
			ClaimName string `yaml:"claimName"`
		} `yaml:"persistentVolumeClaim"`
		Secret struct {
			SecretName  string `yaml:"secretName"`
			DefaultMode int    `yaml:"defaultMode"`
		}
	}
	podSecurity struct {
		RunAsNonRoot        *bool                 `yaml:"runAsNonRoot"`
		RunAsUser           int                   `yaml:"runAsUser"`
		RunAsGroup          int                   `yaml:"runAsGroup"`
		FSGroup             int                   `yaml:"fsGroup"`
		FSGroupChangePolicy string                `yaml:"fsGroupChangePolicy"`
		SeccompProfile      struct{ Type string } `yaml:"seccompProfile"`
	}
	podSpec struct {
		RestartPolicy                 string      `yaml:"restartPolicy"`
		ActiveDeadlineSeconds         *int        `yaml:"activeDeadlineSeconds"`
		ServiceAccountName            string      `yaml:"serviceAccountName"`
		AutomountServiceAccountToken  *bool       `yaml:"automountServiceAccountToken"`
		EnableServiceLinks            *bool       `yaml:"enableServiceLinks"`
		TerminationGracePeriodSeconds int         `yaml:"terminationGracePeriodSeconds"`
		SecurityContext               podSecurity `yaml:"securityContext"`
		TopologySpreadConstraints     []struct {
			MaxSkew           int      `yaml:"maxSkew"`
			TopologyKey       string   `yaml:"topologyKey"`
			WhenUnsatisfiable string   `yaml:"whenUnsatisfiable"`
			LabelSelector     selector `yaml:"labelSelector"`
		} `yaml:"topologySpreadConstraints"`
		Containers []container
		Volumes    []volume
	}
	template struct {
		Metadata metadata
		Spec     podSpec
	}
	claimSpec struct {
		AccessModes []string                   `yaml:"accessModes"`
		Resources   struct{ Requests amounts } `yaml:"resources"`
	}
	jobSpec struct {
		Completions             *int
		Parallelism             *int
		Suspend                 *bool
		BackoffLimit            *int   `yaml:"backoffLimit"`
		ActiveDeadlineSeconds   *int   `yaml:"activeDeadlineSeconds"`
		TTLSecondsAfterFinished *int   `yaml:"ttlSecondsAfterFinished"`
		PodReplacementPolicy    string `yaml:"podReplacementPolicy"`
		PodFailurePolicy        struct {
			Rules []struct {
				Action      string
				OnExitCodes struct {
					ContainerName string `yaml:"containerName"`
					Operator      string
					Values        []int
				} `yaml:"onExitCodes"`
				OnPodConditions []struct{ Type, Status string } `yaml:"onPodConditions"`
			}
		} `yaml:"podFailurePolicy"`
		Template template
	}
	peers struct {
		From, To []struct {
			PodSelector       *selector `yaml:"podSelector"`
			NamespaceSelector *selector `yaml:"namespaceSelector"`
		}
		Ports []struct {
			Protocol string
			Port     int
		}
	}
)

// kinds maps apiVersion and kind of each document that we have to its type.
var kinds = map[string]func() any{
	"v1 Service": of[struct {
		ClusterIP                string `yaml:"clusterIP"`
		PublishNotReadyAddresses bool   `yaml:"publishNotReadyAddresses"`
		Selector                 labels
		Ports                    []struct {
			Name       string
			Port       int
			TargetPort string `yaml:"targetPort"`
		}
	}],
	"v1 PersistentVolumeClaim": of[claimSpec],
	"apps/v1 StatefulSet": of[struct {
		ServiceName          string `yaml:"serviceName"`
		Replicas             int
		PodManagementPolicy  string `yaml:"podManagementPolicy"`
		Selector             selector
		Template             template
		VolumeClaimTemplates []struct {
			Metadata metadata
			Spec     claimSpec
		} `yaml:"volumeClaimTemplates"`
	}],
	"apps/v1 Deployment": of[struct {
		Replicas int
		Strategy struct {
			Type          string
			RollingUpdate struct {
				MaxSurge       int    `yaml:"maxSurge"`
				MaxUnavailable string `yaml:"maxUnavailable"`
			} `yaml:"rollingUpdate"`
		}
		Selector selector
		Template template
	}],
	"batch/v1 Job": of[jobSpec],
	"batch/v1 CronJob": of[struct {
		Schedule                   string
		TimeZone                   string `yaml:"timeZone"`
		ConcurrencyPolicy          string `yaml:"concurrencyPolicy"`
		StartingDeadlineSeconds    int    `yaml:"startingDeadlineSeconds"`
		SuccessfulJobsHistoryLimit int    `yaml:"successfulJobsHistoryLimit"`
		FailedJobsHistoryLimit     int    `yaml:"failedJobsHistoryLimit"`
		Suspend                    bool
		JobTemplate                struct {
			Metadata metadata
			Spec     jobSpec
		} `yaml:"jobTemplate"`
	}],
	"v1 Pod": of[podSpec],
	"v1 ConfigMap": func() any {
		return new(struct {
			APIVersion string `yaml:"apiVersion"`
			Kind       string
			Metadata   metadata
			Data       labels
		})
	},
	"v1 ServiceAccount": func() any {
		return new(struct {
			APIVersion                   string `yaml:"apiVersion"`
			Kind                         string
			Metadata                     metadata
			AutomountServiceAccountToken *bool `yaml:"automountServiceAccountToken"`
		})
	},
	"rbac.authorization.k8s.io/v1 Role": func() any {
		return new(struct {
			APIVersion string `yaml:"apiVersion"`
			Kind       string
			Metadata   metadata
			Rules      []struct {
				APIGroups     []string `yaml:"apiGroups"`
				ResourceNames []string `yaml:"resourceNames"`
				Resources     []string
				Verbs         []string
			}
		})
	},
	"rbac.authorization.k8s.io/v1 RoleBinding": func() any {
		return new(struct {
			APIVersion string `yaml:"apiVersion"`
			Kind       string
			Metadata   metadata
			RoleRef    struct {
				APIGroup   string `yaml:"apiGroup"`
				Kind, Name string
			} `yaml:"roleRef"`
			Subjects []struct{ Kind, Name, Namespace string }
		})
	},
	// The types of other projects are those of their Go modules, in the same way.
	"argoproj.io/v1alpha1 WorkflowTemplate": of[struct {
		Entrypoint string
		Arguments  struct {
			Parameters []struct{ Name, Value string }
		}
		Synchronization struct {
			Mutexes []struct{ Name string }
		}
		ServiceAccountName           string `yaml:"serviceAccountName"`
		AutomountServiceAccountToken *bool  `yaml:"automountServiceAccountToken"`
		Executor                     struct {
			ServiceAccountName string `yaml:"serviceAccountName"`
		}
		ActiveDeadlineSeconds *int `yaml:"activeDeadlineSeconds"`
		TTLStrategy           struct {
			SecondsAfterCompletion *int `yaml:"secondsAfterCompletion"`
		} `yaml:"ttlStrategy"`
		PodMetadata     metadata    `yaml:"podMetadata"`
		SecurityContext podSecurity `yaml:"securityContext"`
		Volumes         []volume
		Templates       []struct {
			Name          string
			Metadata      metadata
			RetryStrategy struct {
				Limit       string
				RetryPolicy string `yaml:"retryPolicy"`
				Backoff     struct{ Duration string }
				Expression  string
			} `yaml:"retryStrategy"`
			Container container
		}
	}],
	"keda.sh/v1alpha1 ScaledObject": of[struct {
		ScaleTargetRef  struct{ Name string } `yaml:"scaleTargetRef"`
		MinReplicaCount int                   `yaml:"minReplicaCount"`
		MaxReplicaCount int                   `yaml:"maxReplicaCount"`
		PollingInterval int                   `yaml:"pollingInterval"`
		CooldownPeriod  int                   `yaml:"cooldownPeriod"`
		Triggers        []struct {
			Type     string
			Metadata struct {
				ServerAddress    string `yaml:"serverAddress"`
				Query, Threshold string
			}
		}
	}],
	"monitoring.coreos.com/v1 PodMonitor": of[struct {
		Selector            selector
		PodMetricsEndpoints []struct{ Port, Interval string } `yaml:"podMetricsEndpoints"`
	}],
	"monitoring.coreos.com/v1 PrometheusRule": of[struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}],
	"policy/v1 PodDisruptionBudget": of[struct {
		MaxUnavailable int `yaml:"maxUnavailable"`
		Selector       selector
	}],
	"networking.k8s.io/v1 NetworkPolicy": of[struct {
		PodSelector     selector `yaml:"podSelector"`
		PolicyTypes     []string `yaml:"policyTypes"`
		Ingress, Egress []peers
	}],
}

// manifest is a document of one kind.
type manifest[spec any] struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   metadata
	Spec       spec
}

func of[spec any]() any { return new(manifest[spec]) }

func strictly(t *testing.T, d *document) error {
	t.Helper()
	body, err := yaml.Marshal(map[string]any(d.node))
	if err != nil {
		t.Fatal(err)
	}
	form := kinds[d.text("apiVersion")+" "+d.text("kind")]
	if form == nil {
		t.Fatalf("%s has an unknown kind or apiVersion %s", d.name(), d.text("apiVersion"))
	}
	decoder := yaml.NewDecoder(bytes.NewReader(body))
	decoder.KnownFields(true)
	return decoder.Decode(form())
}

// The fields of all documents are spelt correctly, in the right place and of the right
// type.
func TestStrict(t *testing.T) {
	for _, d := range manifests(t) {
		if err := strictly(t, &d); err != nil {
			t.Errorf("%s: %v", d.name(), err)
		}
	}
}

// The check of TestStrict refuses bad documents.
func TestStrictRefuses(t *testing.T) {
	for _, bad := range []string{
		"apiVersion: batch/v1\nkind: Job\nspec: {backofflimit: 3}",
		"apiVersion: batch/v1\nkind: Job\nspec: {template: {spec: {restartPolicy: Never, container: []}}}",
		"apiVersion: batch/v1\nkind: CronJob\nspec: {schedule: x, startingDeadlineSeconds: soon}",
	} {
		var n map[string]any
		if err := yaml.Unmarshal([]byte(bad), &n); err != nil {
			t.Fatal(err)
		}
		if err := strictly(t, &document{"test", n}); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// The manifests use only values that an API server accepts. The types above do not check
// that.
func TestValues(t *testing.T) {
	allowed := map[string][]string{
		"restartPolicy": {"Always", "Never"}, "concurrencyPolicy": {"Forbid"}, "podReplacementPolicy": {"Failed"}, "podManagementPolicy": {"Parallel"},
		"action": {"Ignore", "FailJob"}, "whenUnsatisfiable": {"ScheduleAnyway"}, "fsGroupChangePolicy": {"OnRootMismatch"}, "imagePullPolicy": {"IfNotPresent"}, "type": {"Recreate", "RollingUpdate", "RuntimeDefault", "DisruptionTarget", "prometheus"}, "protocol": {"TCP", "UDP"},
		"operator": {"In"}, "clusterIP": {"None"},
	}
	// The minute, the hour and the rest are numbers or stars.
	cron := regexp.MustCompile(`^([0-5]?\d|\*) ([01]?\d|2[0-3]|\*) \S+ \S+ \S+$`)
	var walk func(where string, v any)
	walk = func(where string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, value := range v {
				if s, ok := value.(string); ok {
					if want, known := allowed[key]; known && !slices.Contains(want, s) {
						t.Errorf("%s: unexpected %s %q", where, key, s)
					}
					if key == "schedule" && !cron.MatchString(s) {
						t.Errorf("%s: invalid schedule %q", where, s)
					}
				}
				walk(where+"."+key, value)
			}
		case []any:
			for _, item := range v {
				walk(where, item)
			}
		}
	}
	for _, d := range manifests(t) {
		walk(d.name(), map[string]any(d.node))
		// A name has at most 63 lower-case letters, digits and dashes.
		if name := d.text("metadata", "name") + strings.TrimSuffix(d.text("metadata", "generateName"), "-"); !regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`).MatchString(name) {
			t.Errorf("%s: invalid name %q", d.file, name)
		}
		for _, c := range d.template().list("spec", "containers") {
			mounted := map[string]bool{}
			for _, v := range d.template().list("spec", "volumes") {
				mounted[v.text("name")] = true
			}
			for _, v := range d.list("spec", "volumeClaimTemplates") {
				mounted[v.text("metadata", "name")] = true
			}
			for _, m := range c.list("volumeMounts") {
				if !mounted[m.text("name")] || !strings.HasPrefix(m.text("mountPath"), "/") {
					t.Errorf("%s: a mount without a volume or absolute path: %v", d.name(), m)
				}
			}
		}
	}
}
