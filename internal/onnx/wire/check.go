package wire

import (
	"maps"
	"slices"

	"shaver/internal/base/fault"
)

// sortedNames returns the keys of m in order, so that errors do not depend on the map.
func sortedNames[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

// checker checks that every name is defined once, before it is read.
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
	for i := range g.Nodes {
		n := &g.Nodes[i]
		for _, name := range n.Inputs {
			if name != "" && !here.has(name) {
				return fault.Inputf("node %s (%s) reads %s, which no node before it computes: the graph has a cycle, its nodes are not sorted, or the value is missing",
					n.Label(), Quote(n.Op), Quote(name))
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
