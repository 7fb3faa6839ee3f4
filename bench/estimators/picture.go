//go:build unix

package main

import (
	"math"
	"strings"

	"shaver/internal/base/chart"
)

// draw draws the error in ranks and the error in values over time, for each result.
func draw(results []*result, file string) error {
	f := &chart.Figure{Columns: 3, Width: 260, Height: 200}
	for _, figure := range []struct {
		name string
		of   func(*point) float64
	}{{"1 - Spearman", func(p *point) float64 { return 1 - p.spearman }}, {"relative RMS error", func(p *point) float64 { return p.rms }}} {
		for _, r := range results {
			axis := chart.Axis{Label: "core-seconds per thousand rows", Scale: math.Log10, Ticks: chart.Log(chart.Short), Room: [2]float64{6, 6}}
			c := &chart.Chart{Title: r.name, About: figure.name + " against core-seconds: " + r.name, X: axis, Y: axis}
			c.Y.Label = figure.name
			for k, points := range r.points {
				s := &chart.Series{Style: k}
				for _, q := range points {
					s.X, s.Y = append(s.X, q.cpu/float64(r.rows)*1000), append(s.Y, figure.of(&q))
				}
				c.Marks = append(c.Marks, s)
				if len(f.Charts) == 0 {
					f.Keys = append(f.Keys, chart.Key{Label: strings.ReplaceAll(r.curves[k].name, "multilinear, ", "multilinear "), Of: s})
				}
			}
			f.Charts = append(f.Charts, c)
		}
	}
	return f.Write(file)
}
