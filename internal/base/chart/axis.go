package chart

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// Axis describes an axis. It begins and ends with the data, unless it has ends of its own.
type Axis struct {
	Label   string
	Scale   func(float64) float64 // monotonic, such as math.Log10; nil = linear. Values without a finite place are not drawn.
	Ends    []float64             // values that the axis has besides the data
	Fixed   bool                  // the axis has only the range of Ends, and what is beyond it is not drawn
	Room    [2]float64            // empty room before and after the range, in px
	Ticks   Ticks                 // nil = Round
	Upright bool                  // the labels of the ticks of an x axis are upright
	Under   func(float64) string  // second line of the label of a tick of an x axis that is not upright; nil = none
}

// Tick is a labelled value on an axis.
type Tick struct {
	At    float64
	Label string
}

// Ticks returns the ticks from low to high, or from high to low. If it can choose, it returns at most the given number,
// and one more.
type Ticks func(low, high float64, most int) []Tick

// scale is an axis with its place in a picture: the value low is at from, and high is at to.
type scale struct {
	*Axis
	low, high, from, to float64
}

func (a *Axis) place(v float64) float64 {
	if a.Scale != nil {
		v = a.Scale(v)
	}
	return v
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// over returns the axis for some data.
func (a *Axis) over(data [][]float64) scale {
	if a.Fixed {
		data = nil
	}
	s, found := scale{Axis: a, low: 1, high: 1}, false
	for _, list := range append(data, a.Ends) {
		for _, v := range list {
			switch at := a.place(v); {
			case !finite(at):
			case !found:
				s.low, s.high, found = v, v, true
			case at < a.place(s.low):
				s.low = v
			case at > a.place(s.high):
				s.high = v
			}
		}
	}
	return s
}

// at returns the coordinate of a value. A range of one value is in the middle.
func (s *scale) at(v float64) float64 {
	low, high := s.place(s.low), s.place(s.high)
	sign := math.Copysign(1, s.to-s.from)
	from, to := s.from+sign*s.Room[0], s.to-sign*s.Room[1]
	if low == high {
		return (from+to)/2 + (s.place(v)-low)*(to-from)
	}
	return from + (to-from)*((s.place(v)-low)/(high-low))
}

// holds reports whether a coordinate is on the axis.
func (s *scale) holds(at float64) bool {
	return at >= min(s.from, s.to)-.01 && at <= max(s.from, s.to)+.01
}

// ticks returns the ticks with at least gap px for each. size returns the px of a label along the axis. Of labels that would overlap, the
// one of the higher value stays.
func (s *scale) ticks(gap float64, size func(Tick) float64) (all []Tick) {
	ticks := s.Axis.Ticks
	if ticks == nil {
		ticks = Round
	}
	last := math.Inf(1) // begin of the last label, from the high end
	low, high := s.low, s.high
	if s.Scale == nil { // there may be ticks in the room
		unit := (high - low) / max(1, math.Abs(s.to-s.from)-s.Room[0]-s.Room[1])
		low, high = low-s.Room[0]*unit, high+s.Room[1]*unit
	}
	list := ticks(low, high, max(2, int(math.Abs(s.to-s.from)/gap)))
	slices.SortFunc(list, func(a, b Tick) int {
		if s.place(a.At) > s.place(b.At) {
			return -1
		}
		return 1
	})
	for _, t := range list {
		at := s.at(t.At)
		place, half := math.Abs(at-s.from), size(t)/2
		if !s.holds(at) || place+half > last {
			continue
		}
		all, last = append(all, t), place-half
	}
	slices.Reverse(all)
	return all
}

// Round marks multiples of 1, 2 or 5 times a power of ten, with as many decimals as they need.
func Round(low, high float64, most int) []Tick {
	if low > high {
		low, high = high, low
	}
	most = min(most, 8)
	size := math.Pow(10, math.Floor(math.Log10((high-low)/float64(most))))
	if low == high || size == 0 {
		return []Tick{{low, strconv.FormatFloat(low, 'g', 4, 64)}}
	}
	step := 10 * size
	for _, round := range []float64{5, 2, 1} {
		if (high-low)/(round*size) <= float64(most) {
			step = round * size
		}
	}
	decimals := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	var ticks []Tick
	first := math.Ceil(low/step - 1e-9)
	for i := range most + 1 {
		v := (first + float64(i)) * step
		if v > high+1e-9*step {
			break
		}
		label := strconv.FormatFloat(v, 'f', decimals, 64)
		switch {
		case v == 0:
			label = "0"
		case len(label) > 8:
			label = strconv.FormatFloat(v, 'g', 3, 64)
		}
		ticks = append(ticks, Tick{v, strings.Replace(label, "-", "−", 1)})
	}
	return ticks
}

// Signed is Round for differences, with a sign before positive numbers, too.
func Signed(low, high float64, most int) []Tick {
	ticks := Round(low, high, most)
	for i := range ticks {
		if ticks[i].At > 0 {
			ticks[i].Label = "+" + ticks[i].Label
		}
	}
	return ticks
}

// Whole is Round for numbers of things, from 10,000 on in thousands or millions.
func Whole(low, high float64, most int) []Tick {
	ticks := slices.DeleteFunc(Round(low, high, most), func(t Tick) bool { return t.At != math.Trunc(t.At) })
	for i, t := range ticks {
		ticks[i].Label = Count(t.At)
	}
	return ticks
}

// Count writes a number of things.
func Count(n float64) string {
	for _, unit := range []struct {
		least, size float64
		name        string
	}{{1e10, 1e9, "G"}, {1e7, 1e6, "M"}, {1e4, 1e3, "k"}} {
		if n >= unit.least {
			return strconv.FormatFloat(n/unit.size, 'g', 4, 64) + unit.name
		}
	}
	return strconv.FormatFloat(n, 'f', -1, 64)
}

// Short writes a number in as few characters as %g, but with exponents such as e-6.
func Short(v float64) string {
	return strings.NewReplacer("e-0", "e-", "e+0", "e").Replace(strconv.FormatFloat(v, 'g', 6, 64))
}

// Log marks powers of ten on a logarithmic axis, and in a short range also 2 and 5, or 3 times these.
func Log(label func(float64) string) Ticks {
	return func(low, high float64, most int) (ticks []Tick) {
		if high < 5*low {
			return Round(low, high, most)
		}
		first, last := int(math.Floor(math.Log10(low)+1e-9)), int(math.Ceil(math.Log10(high)-1e-9))
		digits := []float64{1}
		switch decades, room := math.Log10(high/low), float64(most+1); {
		case 3*decades < room:
			digits = []float64{1, 2, 5}
		case 2*decades < room:
			digits = []float64{1, 3}
		}
		for power := first; power <= last; power += max(1, (last-first+most-1)/most) {
			for _, digit := range digits {
				if v := digit * math.Pow10(power); v >= low*(1-1e-9) && v <= high*(1+1e-9) {
					ticks = append(ticks, Tick{v, label(v)})
				}
			}
		}
		return ticks
	}
}

// Values marks the given values.
func Values(at ...float64) Ticks {
	return func(float64, float64, int) (ticks []Tick) {
		for _, v := range at {
			ticks = append(ticks, Tick{v, strconv.FormatFloat(v, 'g', 4, 64)})
		}
		return ticks
	}
}

// Names marks 0, 1, 2 and so on with names.
func Names(names []string) Ticks {
	return func(float64, float64, int) (ticks []Tick) {
		for i, name := range names {
			ticks = append(ticks, Tick{float64(i), name})
		}
		return ticks
	}
}
