package wire

import (
	"maps"
	"slices"
	"strings"

	"shaver/internal/base/fault"
)

// sortedNames returns the keys of m in order, so that errors do not depend on the map.
func sortedNames[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

// checker sorts the nodes, and checks that every name is defined once and each that is read is defined.
type checker struct{ meter *meter }

// names are the names of the values that a graph and the graphs around it define.
type names struct {
	defined map[string]bool
	outer   *names
}

func (n *names) has(name string) bool {
	for ; n != nil; n = n.outer {
		if n.defined[name] {
			return true
		}
	}
	return false
}

// graph checks g, which may read the names of outer.
func (c *checker) graph(g *Graph, outer *names) error {
	here := &names{map[string]bool{}, outer}
	define := func(name, what string) error {
		if here.defined[name] {
			return fault.Inputf("%s %s: the name is already in use", what, Quote(name))
		}
		if err := c.meter.take(valueCost); err != nil {
			return err
		}
		here.defined[name] = true
		return nil
	}
	for _, v := range g.Inputs {
		if err := define(v.Name, "input"); err != nil {
			return err
		}
	}
	for _, t := range g.Initializers {
		if t.Name == "" {
			return fault.Inputf("an initialiser with the shape %v has no name", t.Dims)
		}
		if err := define(t.Name, "initialiser"); err != nil {
			return err
		}
	}
	if err := sortNodes(g, here.defined); err != nil {
		return err
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		for _, name := range n.Inputs {
			if name != "" && !here.has(name) {
				return fault.Inputf("node %s (%s) reads %s, which is neither an input, an initialiser nor computed by a node", n.Label(), Quote(n.Op), Quote(name))
			}
		}
		for _, name := range sortedNames(n.Attributes) {
			if body := n.Attributes[name].Graph; body != nil {
				if err := c.graph(body, here); err != nil {
					return err
				}
			}
		}
		for _, name := range n.Outputs {
			if name == "" {
				continue
			}
			if err := define(name, "output of node "+n.Label()); err != nil {
				return err
			}
		}
	}
	for _, v := range g.Outputs {
		if !here.has(v.Name) {
			return fault.Inputf("output %s is not computed by the graph", Quote(v.Name))
		}
	}
	return nil
}

// sortNodes puts each node of g, which has defined names, after the nodes whose outputs it reads, if they are not in such an order.
// An error names the nodes of a cycle.
func sortNodes(g *Graph, defined map[string]bool) error {
	producer := map[string]int{}
	for i := range g.Nodes {
		for _, name := range g.Nodes[i].Outputs {
			if _, twice := producer[name]; name != "" && !twice && !defined[name] {
				producer[name] = i
			}
		}
	}
	sorted, waits, readers := true, make([]int, len(g.Nodes)), make([][]int, len(g.Nodes))
	for i := range g.Nodes {
		g.Nodes[i].Reads(func(name string) {
			if k, ok := producer[name]; ok {
				sorted, waits[i], readers[k] = sorted && k < i, waits[i]+1, append(readers[k], i)
			}
		})
	}
	if sorted {
		return nil
	}
	order, nodes := []int{}, []Node{}
	for i, n := range waits {
		if n == 0 {
			order = append(order, i)
		}
	}
	for k := 0; k < len(order); k++ {
		nodes = append(nodes, g.Nodes[order[k]])
		for _, i := range readers[order[k]] {
			if waits[i]--; waits[i] == 0 {
				order = append(order, i)
			}
		}
	}
	if len(nodes) == len(g.Nodes) {
		g.Nodes = nodes
		return nil
	}
	var labels []string
	for i, n := range waits {
		if n > 0 && len(labels) < 8 {
			labels = append(labels, g.Nodes[i].Label())
		}
	}
	return fault.Inputf("the graph has a cycle: each of the nodes %s reads what another one of them computes", strings.Join(labels, ", "))
}
