package lan

import "testing"

// fakeHosts returns hosts without namespaces: nodes, six clients and the console.
func fakeHosts(nodes int) *Hosts { return &Hosts{nodes: nodes, all: make([]*host, nodes+7)} }

// A partition of a minority separates one node from the others, never the console, and its
// sides do not overlap.
func TestSplitMinority(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		h := fakeHosts(nodes)
		alone, clients, free := map[Set]bool{}, 0, 0
		for pick := range uint32(1000) {
			s := h.SplitMinority(pick)
			if len(s) != 2 || s[0]&s[1] != 0 || (s[0]|s[1])&^h.everyone() != 0 {
				t.Fatalf("%b", s)
			}
			if one, rest := s[0]&h.cluster(), s[1]&h.cluster(); one.Size() != 1 || one|rest != h.cluster() {
				t.Fatalf("%b", s)
			} else {
				alone[one] = true
			}
			clients += (s[0] | s[1]).Size() - nodes
			free += (h.everyone() &^ (s[0] | s[1])).Size()
		}
		if len(alone) != nodes || clients < 2500 || free < 2500 {
			t.Errorf("%d nodes: %d were alone; %d clients were on a side and %d on none", nodes, len(alone), clients, free)
		}
	}
}

func TestSplitMajority(t *testing.T) {
	if s := fakeHosts(3).SplitMajority(); len(s) != 3 || s[0] != 1 || s[1] != 2 || s[2] != 4 {
		t.Errorf("%b", s)
	}
	if s := fakeHosts(1).SplitMajority(); len(s) != 2 || s[0] != 1 || s[1] != 0b1111110 {
		t.Errorf("%b", s)
	}
}

// Packets are lost between a node and other nodes, or one client, in either direction.
func TestOneWay(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		h := fakeHosts(nodes)
		from, to, among := 0, 0, 0
		for pick := range uint32(1000) {
			d := h.OneWay(pick)
			switch {
			case d.Back || d.From&d.To != 0 || d.From == 0 || d.To == 0 || (d.From|d.To)&^h.everyone() != 0:
				t.Fatalf("%+v", d)
			case (d.From|d.To)&^h.cluster() == 0:
				among++
				if d.From|d.To != h.cluster() {
					t.Fatalf("%+v", d)
				}
			case d.From&h.cluster() != 0:
				from++
			default:
				to++
			}
		}
		if from < 200 || to < 200 || (among > 0) != (nodes == 3) {
			t.Errorf("%d nodes: %d to clients, %d from clients, %d among nodes", nodes, from, to, among)
		}
	}
}
