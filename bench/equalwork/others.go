//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"shaver/internal/value/estimator"
)

// others are the points of the other packages, and the versions of these.
type others struct {
	versions map[string]string
	points   []point
}

// tensor is a tensor of game.bin, which has them one after another as little-endian float32.
type tensor struct {
	Name  string `json:"name"`
	Shape []int  `json:"shape"`
	data  []float32
}

// about is game.json.
type about struct {
	Kind    string   `json:"kind"`
	Fields  int      `json:"fields"`
	Players int      `json:"players"`
	Budgets []int    `json:"budgets"`
	Seeds   int      `json:"seeds"`
	Mean    bool     `json:"mean"`
	Tensors []tensor `json:"tensors"`
}

// runOthers lets the other packages play a game, unless the folder has their outcome.
func runOthers(ctx context.Context, g *game, t *truth, folder string, o *options) (others, error) {
	var all others
	outcome := filepath.Join(folder, "others.json")
	if _, err := os.Stat(outcome); err != nil {
		c := exec.CommandContext(ctx, o.python, o.script, folder)
		// Settings for an old OpenBLAS slow down the one of a current numpy.
		c.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "OPENBLAS_") })
		c.Stdout, c.Stderr = os.Stderr, os.Stderr
		if err := c.Run(); err != nil {
			return all, fmt.Errorf("run the other packages: %w", err)
		}
	}
	data, err := os.ReadFile(outcome)
	if err != nil {
		return all, err
	}
	var said struct {
		Versions map[string]string `json:"versions"`
		Points   []struct {
			point
			Budget int `json:"budget"`
		} `json:"points"`
	}
	if err := json.Unmarshal(data, &said); err != nil {
		return all, fmt.Errorf("%s: %w", outcome, err)
	}
	file, err := os.Open(filepath.Join(folder, "values.bin"))
	if err != nil {
		return all, err
	}
	defer file.Close()
	in := bufio.NewReader(file)
	all.versions = said.Versions
	for _, s := range said.Points {
		found, err := readValues(in, len(t.Values), g.seeds, g.players)
		if err != nil {
			return all, err
		}
		p := s.point
		p.Effort = fmt.Sprintf("budget %d", s.Budget)
		p.judge(found, t.Values)
		all.points = append(all.points, p)
	}
	return all, nil
}

func readValues(in io.Reader, rows, seeds, players int) (values, error) {
	all := make(values, rows)
	for r := range all {
		for range seeds {
			v := make([]float64, players)
			if err := binary.Read(in, binary.LittleEndian, v); err != nil {
				return nil, err
			}
			all[r] = append(all[r], v)
		}
	}
	return all, nil
}

// export writes game.json and game.bin.
func export(ctx context.Context, g *game, folder string) error {
	m, w, n := g.game.Model, &g.game.Model.Weights, g.rows.Len()
	a := about{Kind: string(m.Kind), Fields: m.Fields(), Players: g.players, Budgets: g.budgets, Seeds: g.seeds, Mean: g.mean}
	add := func(name string, data []float32, shape ...int) {
		a.Tensors = append(a.Tensors, tensor{name, shape, data})
	}
	on := make([]float32, n*m.Players())
	m.Embed(on, g.rows.Features)
	add("on", on, n, m.Players())
	add("off", m.Book(g.game.Baseline).Spread(nil, nil), m.Players())
	// The terms outside the network. Entries are never without them.
	firstOn := make([]float32, n*m.Fields())
	if w.FirstOrder != nil {
		for i, f := range g.rows.Features {
			firstOn[i] = w.FirstOrder[f]
		}
	}
	firstOff := slices.Clone(firstOn)
	if g.game.Fields != nil {
		for r := range n {
			copy(firstOff[r*m.Fields():], g.game.Fields.Absent.Constants)
		}
	}
	add("first_on", firstOn, n, m.Fields())
	add("first_off", firstOff, n, m.Fields())
	add("labels", g.rows.Label, n)
	add("logits", ends(g), 2, n)
	if g.game.Fields == nil {
		base, err := multilinearBase(ctx, g)
		if err != nil {
			return err
		}
		add("base", base, g.seeds, n, g.players)
	}
	add("bias", []float32{w.Bias}, 1)
	for l, h := range append(slices.Clone(w.Hidden), w.Output) {
		name := fmt.Sprintf("hidden.%d", l)
		if l == len(w.Hidden) {
			name = "output"
		}
		add(name+".weight", h.Weight, h.Out, h.In)
		add(name+".bias", h.Bias, h.Out)
	}
	if w.Gates != nil {
		add("gates", w.Gates, m.Experts, m.Players())
	}
	for l, x := range w.Mix {
		name := fmt.Sprintf("mix.%d.", l)
		add(name+"u", x.U, m.Experts, m.Rank, m.Players())
		add(name+"c", x.C, m.Experts, m.Rank, m.Rank)
		add(name+"v", x.V, m.Experts, m.Players(), m.Rank)
		add(name+"bias", x.Bias, m.Players())
	}
	var data []byte
	for _, t := range a.Tensors {
		data, _ = binary.Append(data, binary.LittleEndian, t.data)
	}
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "game.bin"), data, 0o666); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "game.json"), text, 0o666)
}

// multilinearBase returns the values of multilinear with two draws, [seeds, rows, players].
func multilinearBase(ctx context.Context, g *game) ([]float32, error) {
	var base []float32
	for seed := range g.seeds {
		found, err := play(ctx, g, estimator.Options{Estimator: estimator.Multilinear, Passes: 1, Draws: 2, Endpoints: estimator.Plain}, uint64(seed+1), g.rows, 1)
		if err != nil {
			return nil, err
		}
		for _, v := range found {
			for _, phi := range v {
				base = append(base, float32(phi))
			}
		}
	}
	return base, nil
}

// ends returns the logits of all rows with all players, and then with none of them.
func ends(g *game) []float32 {
	m, rows := g.game.Model, *g.rows
	all := make([]float64, 2*rows.Len())
	m.NewScorer().Logits(all[:rows.Len()], &rows)
	if g.game.Fields != nil {
		rows.Features = slices.Clone(rows.Features)
		for i, f := range rows.Features {
			rows.Features[i] = ^f
		}
		m.WithAbsent(g.game.Fields.Absent).NewScorer().Logits(all[rows.Len():], &rows)
	} else {
		m.NewProbe(m.Book(g.game.Baseline)).Empties(all[rows.Len():], &rows)
	}
	logits := make([]float32, len(all))
	for i, f := range all {
		logits[i] = float32(f)
	}
	return logits
}
