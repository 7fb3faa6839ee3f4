package worker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"shaver/internal/jobs/bus"
)

// A worker whose partial is not the sum of its rows, or violates the efficiency identity, stores nothing and ends. It
// gives the tasks back, also on their last try.
func TestFaultyPartial(t *testing.T) {
	for name, damage := range map[string]func(g *group){
		"memory": func(g *group) { g.computed.partial.Abs[1] ^= 1 << 40 },
		"identity": func(g *group) {
			g.computed.partial.Sum[1] += 1 << 40
			g.computed.partial.Check = g.computed.partial.Checksum()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrowd(t, 2)
				for i := range c.tasks {
					c.tasks[i].Try = 1 << 20
					c.run(i)
				}
				damage(&c.runner.group)
				err := c.flush(t.Context())
				if !errors.Is(err, errFaulty) || strings.Count(err.Error(), "faulty: replace it") != 1 {
					t.Errorf("error %v", err)
				}
				for shard := 1; shard <= 2; shard++ {
					if c.outcomes[shard] != Abandoned {
						t.Errorf("shard %d: outcome %q", shard, c.outcomes[shard])
					}
				}
				if len(c.partials()) > 0 || len(c.results) > 0 || c.aside != "" || c.ended != "released for 0s" {
					t.Errorf("stored %q, results %v, set aside %q, ended %q", c.partials(), c.results, c.aside, c.ended)
				}
			})
		})
	}
}

// A worker proves at its start and every few minutes that it computes right. If it does not, it gives back what it holds.
func TestProof(t *testing.T) {
	defer func(before func(string) error) { proof = before }(proof)
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 2)
		proofs, wrong := 0, error(nil)
		proof = func(string) error { proofs++; return wrong }
		prove := func() error { return c.runner.prove(t.Context()) }
		for _, wait := range []time.Duration{0, time.Minute, proveEvery} {
			time.Sleep(wait)
			if err := prove(); err != nil {
				t.Fatal(err)
			}
		}
		if proofs != 2 {
			t.Errorf("%d proofs, expected 2", proofs)
		}
		c.run(0)
		wrong = errors.New("a bit")
		if err := prove(); err != nil {
			t.Errorf("too early: %v", err)
		}
		time.Sleep(proveEvery)
		if err := prove(); !errors.Is(err, errFaulty) {
			t.Errorf("error %v", err)
		}
		if shard := c.tasks[0].Task.Shard; c.outcomes[shard] != Abandoned || len(c.partials()) > 0 {
			t.Errorf("outcome %q, stored %q", c.outcomes[shard], c.partials())
		}
	})
	proof = func(string) error { return errors.New("a bit") }
	if err := Run(context.Background(), nil, Config{Bus: new(bus.Bus)}); !errors.Is(err, errFaulty) {
		t.Errorf("at the start: %v", err)
	}
}
