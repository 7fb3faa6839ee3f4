// Package picture draws the curves of a sweep and the other pictures of a report.
package picture

import (
	"hash/crc32"
	"math"
	"slices"

	"shaver/internal/base/chart"
)

const (
	high = 283 // px of a chart
	low  = 227 // px of a chart next to a table
	line = 15  // px of a line of fields
)

// methods have the inks of their positions. The empty one is that of the unpruned model.
var methods = []string{"path", "magnitude", "frequency", "shapley", "shapley-rms", "shapley-abs", "random", "", "taylor-rms"}

// Styles returns the styles of series, given the names of their methods. A method has the same ink in all pictures,
// and no two series have the same style.
func Styles(names []string) (all []int) {
	for _, name := range names {
		style := slices.Index(methods, name)
		if style < 0 {
			style = int(crc32.ChecksumIEEE([]byte(name)) % uint32(len(methods)))
		}
		for slices.Contains(all, style) {
			style += len(methods)
		}
		all = append(all, style)
	}
	return all
}

// sparsityAxis is an axis of sparsity, from 0 to at least most.
func sparsityAxis(most float64) chart.Axis {
	at := []float64{0, .5, .8, .9, .95, .99, .999}
	for i, t := range at {
		if t >= most {
			at = at[:i+1]
			break
		}
	}
	return chart.Axis{Label: "sparsity: portion of the entries dropped", Scale: position, Ends: []float64{0, at[len(at)-1]}, Ticks: chart.Values(at...), Room: [2]float64{0, 4}}
}

// position returns the x of a sparsity: the negative logarithm of the portion that is
// kept. A linear axis would show too much of low sparsities, where little happens.
func position(sparsity float64) float64 { return -math.Log10(max(1-sparsity, 1e-4)) }

// room keeps marks off the ends of an axis.
var room = [2]float64{8, 8}

// drawing is a mark of one picture.
type drawing func(*chart.Canvas)

func (d drawing) Draw(c *chart.Canvas) { d(c) }
