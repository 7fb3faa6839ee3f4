//go:build linux

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"shaver/deploy/internal/trial"
)

// The node enforces network policies with rules of iptables, which this file makes. It
// knows selectors of pods and namespaces, blocks of addresses, and ports by number and
// name. Traffic of the node itself, for example of probes, is always allowed.

type labelled struct {
	Name, Namespace string
	Labels          map[string]string
}

type pod struct {
	Metadata labelled
	Spec     struct {
		HostNetwork bool
		Containers  []struct {
			Ports []struct {
				Name          string
				ContainerPort int
			}
		}
	}
	Status struct{ PodIP, Phase string }
}

type selector struct {
	MatchLabels      map[string]string
	MatchExpressions []struct {
		Key, Operator string
		Values        []string
	}
}

type peer struct {
	PodSelector, NamespaceSelector *selector
	IPBlock                        *struct {
		CIDR   string
		Except []string
	}
}

type policy struct {
	Metadata labelled
	Spec     struct {
		PodSelector     selector
		PolicyTypes     []string
		Ingress, Egress []struct {
			From, To []peer
			Ports    []struct {
				Protocol string
				Port     any // a number or the name of a port
				EndPort  int
			}
		}
	}
}

func (s *selector) matches(labels map[string]string) bool {
	for k, v := range s.MatchLabels {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	for _, e := range s.MatchExpressions {
		v, ok := labels[e.Key]
		in := ok && slices.Contains(e.Values, v)
		switch e.Operator {
		case "In":
			ok = in
		case "NotIn":
			ok = !in
		case "DoesNotExist":
			ok = !ok
		}
		if !ok {
			return false
		}
	}
	return true
}

// addresses returns what a peer of a policy means, as addresses and blocks.
func (p *peer) addresses(namespace string, pods []pod, spaces map[string]map[string]string) []string {
	if p.IPBlock != nil {
		return []string{p.IPBlock.CIDR} // except is refused by rules
	}
	var list []string
	for _, q := range pods {
		switch {
		case p.NamespaceSelector == nil && q.Metadata.Namespace != namespace,
			p.NamespaceSelector != nil && !p.NamespaceSelector.matches(spaces[q.Metadata.Namespace]),
			p.PodSelector != nil && !p.PodSelector.matches(q.Metadata.Labels):
			continue
		}
		list = append(list, q.Status.PodIP)
	}
	return list
}

// rules returns the input of iptables-restore for the policies.
func rules(pods []pod, policies []policy, spaces map[string]map[string]string) (string, error) {
	head := []string{"*filter", ":NETPOL - [0:0]"}
	body := []string{"-A NETPOL -m conntrack --ctstate ESTABLISHED,RELATED -j RETURN"}
	for _, p := range pods {
		for _, way := range []string{"Ingress", "Egress"} {
			own, other := "-d", "-s"
			if way == "Egress" {
				own, other = other, own
			}
			chain := "NP-" + way[:2] + "-" + p.Status.PodIP
			isolated := false
			for _, q := range policies {
				if q.Metadata.Namespace != p.Metadata.Namespace || !q.Spec.PodSelector.matches(p.Metadata.Labels) || !slices.Contains(q.Spec.PolicyTypes, way) {
					continue
				}
				if !isolated {
					isolated = true
					head = append(head, ":"+chain+" - [0:0]")
					body = append(body, "-A NETPOL "+own+" "+p.Status.PodIP+" -j "+chain)
				}
				list := q.Spec.Ingress
				if way == "Egress" {
					list = q.Spec.Egress
				}
				for _, r := range list {
					from := append(slices.Clone(r.From), r.To...)
					peers := []string{""}
					if len(from) > 0 {
						peers = nil
					}
					for _, f := range from {
						if f.IPBlock != nil && f.IPBlock.Except != nil {
							return "", fmt.Errorf("policy %s: except is not supported", q.Metadata.Name)
						}
						for _, a := range f.addresses(q.Metadata.Namespace, pods, spaces) {
							peers = append(peers, " "+other+" "+a)
						}
					}
					ports := []string{""}
					if len(r.Ports) > 0 {
						ports = nil
					}
					for _, t := range r.Ports {
						to := " -p " + strings.ToLower(t.Protocol)
						switch v := t.Port.(type) {
						case float64:
							to += fmt.Sprintf(" --dport %d", int(v))
						case string:
							to += fmt.Sprintf(" --dport %d", named(v, p))
						}
						if t.EndPort != 0 {
							to += fmt.Sprintf(":%d", t.EndPort)
						}
						ports = append(ports, to)
					}
					for _, a := range peers {
						for _, t := range ports {
							body = append(body, "-A "+chain+a+t+" -j RETURN")
						}
					}
				}
			}
			if isolated {
				body = append(body, "-A "+chain+" -j DROP")
			}
		}
	}
	return strings.Join(append(append(head, body...), "COMMIT", ""), "\n"), nil
}

// named returns the port of this name of a pod, or 0.
func named(name string, p pod) int {
	for _, c := range p.Spec.Containers {
		for _, q := range c.Ports {
			if q.Name == name {
				return q.ContainerPort
			}
		}
	}
	return 0
}

// current returns the rules for the objects that the cluster has now.
func (c *Cluster) current(ctx context.Context) (string, error) {
	var pods struct{ Items []pod }
	var policies struct{ Items []policy }
	var spaces struct{ Items []struct{ Metadata labelled } }
	for path, v := range map[string]any{"/api/v1/pods": &pods, "/api/v1/namespaces": &spaces, "/apis/networking.k8s.io/v1/networkpolicies": &policies} {
		if err := c.Read(ctx, path, v); err != nil {
			return "", err
		}
	}
	labels := map[string]map[string]string{}
	for _, s := range spaces.Items {
		labels[s.Metadata.Name] = s.Metadata.Labels
	}
	list := slices.DeleteFunc(pods.Items, func(p pod) bool {
		return p.Status.PodIP == "" || p.Spec.HostNetwork || p.Status.Phase != "Pending" && p.Status.Phase != "Running"
	})
	slices.SortFunc(list, func(a, b pod) int { return strings.Compare(a.Status.PodIP, b.Status.PodIP) })
	return rules(list, policies.Items, labels)
}

// enforce rewrites the rules whenever they differ, until ctx ends.
func (c *Cluster) enforce(ctx context.Context) {
	log, err := os.Create(filepath.Join(c.Dir, "log", "policies"))
	if err != nil {
		return
	}
	defer log.Close()
	old := ""
	for ctx.Err() == nil {
		text, err := c.current(ctx)
		if err == nil && text != old {
			err = c.install(ctx, text, old == "")
			if err == nil {
				old = text
				fmt.Fprintf(log, "%s %d rules\n%s", time.Now().Format(time.TimeOnly), strings.Count(text, " -j "), text)
			}
		}
		if err != nil {
			fmt.Fprintln(log, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func (c *Cluster) install(ctx context.Context, text string, first bool) error {
	restore := trial.Command{Args: []string{"iptables-restore", "--noflush", "--wait=5"}, Under: c.space.under(), Stdin: text}
	if r := restore.Do(ctx); r.Code != 0 {
		return fmt.Errorf("iptables-restore: %s\n%s", r.Text(), text)
	}
	if first {
		jump := trial.Command{Args: []string{"iptables", "--wait=5", "-I", "FORWARD", "1", "-j", "NETPOL"}, Under: c.space.under()}
		if r := jump.Do(ctx); r.Code != 0 {
			return fmt.Errorf("iptables: %s", r.Text())
		}
	}
	return nil
}
