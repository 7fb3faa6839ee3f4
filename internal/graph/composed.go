package graph

import (
	"errors"
	"fmt"
	"math"
)

// composed has the operators that could be composed of other operators.
var composed = map[string]operator{
	"Softmax":            {inputs: "f", attributes: "axis:i", infer: inferSoftmax, evaluate: func(c *call, out []*Tensor) error { return evaluateSoftmax(c, out, false) }},
	"LogSoftmax":         {inputs: "f", attributes: "axis:i", infer: inferSoftmax, evaluate: func(c *call, out []*Tensor) error { return evaluateSoftmax(c, out, true) }},
	"LayerNormalization": {inputs: "f f f?", attributes: "axis:i epsilon:f stash_type:i", infer: inferLayerNormalization, evaluate: evaluateLayerNormalization},
	"BatchNormalization": {inputs: "f f f f f", attributes: "epsilon:f momentum:f training_mode:i", infer: inferBatchNormalization, evaluate: evaluateBatchNormalization},
}

func inferSoftmax(c *call) ([]Info, error) {
	if _, err := c.axis(-1, len(c.shape(0))); err != nil {
		return nil, err
	}
	return inferSame(c)
}

func evaluateSoftmax(c *call, out []*Tensor, log bool) error {
	x, y := c.tensor(0).Floats, out[0].Floats
	c.lines(c.int("axis", -1), func(start, size, step int) {
		most, sum := math.Inf(-1), 0.0
		for i := range size {
			most = max(most, float64(x[start+i*step]))
		}
		for i := range size {
			sum += math.Exp(float64(x[start+i*step]) - most)
		}
		for i := range size {
			at := start + i*step
			if d := float64(x[at]) - most; log {
				y[at] = float32(d - math.Log(sum))
			} else {
				y[at] = float32(math.Exp(d) / sum)
			}
		}
	})
	return nil
}

func inferLayerNormalization(c *call) ([]Info, error) {
	shape := c.shape(0)
	a, err := c.axis(-1, len(shape))
	if err != nil {
		return nil, err
	}
	for i := 1; i <= 2; i++ {
		if !c.has(i) {
			continue
		}
		if out, err := broadcast(shape[a:], c.shape(i)); err != nil || len(out) != len(shape)-a || count(out) != count(shape[a:]) {
			return nil, fmt.Errorf("input %d of the shape %v does not broadcast to %v", i+1, c.shape(i), shape[a:])
		}
	}
	return inferSame(c)
}

func evaluateLayerNormalization(c *call, out []*Tensor) error {
	shape := c.shape(0)
	a, _ := c.axis(-1, len(shape))
	epsilon := c.float("epsilon", 1e-5)
	size := count(shape[a:])
	steps := [][]int{broadcastStrides(c.shape(1), shape[a:])}
	if c.has(2) {
		steps = append(steps, broadcastStrides(c.shape(2), shape[a:]))
	}
	for start := 0; start < len(out[0].Floats); start += size {
		x, y := c.tensor(0).Floats[start:start+size], out[0].Floats[start:start+size]
		mean, variance := 0.0, 0.0
		for _, v := range x {
			mean += float64(v)
		}
		mean /= float64(size)
		for _, v := range x {
			variance += (float64(v) - mean) * (float64(v) - mean)
		}
		scale := 1 / math.Sqrt(variance/float64(size)+epsilon)
		n := 0
		each(shape[a:], func(at []int) {
			v := (float64(x[n]) - mean) * scale * float64(c.tensor(1).Floats[at[0]])
			if c.has(2) {
				v += float64(c.tensor(2).Floats[at[1]])
			}
			y[n] = float32(v)
			n++
		}, steps...)
	}
	return nil
}

func inferBatchNormalization(c *call) ([]Info, error) {
	if c.int("training_mode", 0) != 0 {
		return nil, errors.New("training mode is not supported, expected a model for inference")
	}
	channels := 1
	if shape := c.shape(0); len(shape) > 1 {
		channels = shape[1]
	}
	for i := 1; i <= 4; i++ {
		if err := c.checkChannels(i, channels); err != nil {
			return nil, err
		}
	}
	return inferSame(c)
}

func evaluateBatchNormalization(c *call, out []*Tensor) error {
	shape := c.shape(0)
	inner, channels := 1, 1
	if len(shape) > 1 {
		channels, inner = shape[1], count(shape[2:])
	}
	epsilon := c.float("epsilon", 1e-5)
	scale, shift, mean, variance := c.tensor(1).Floats, c.tensor(2).Floats, c.tensor(3).Floats, c.tensor(4).Floats
	for i, x := range c.tensor(0).Floats {
		k := i / inner % channels
		out[0].Floats[i] = float32((float64(x)-float64(mean[k]))/math.Sqrt(float64(variance[k])+epsilon)*float64(scale[k]) + float64(shift[k]))
	}
	return nil
}
