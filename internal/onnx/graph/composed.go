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
	x, y := c.tensor(0), out[0]
	c.lines(c.int("axis", -1), func(start, size, step int) {
		most, sum := math.Inf(-1), 0.0
		for i := range size {
			most = max(most, x.float(start+i*step))
		}
		for i := range size {
			sum += math.Exp(x.float(start+i*step) - most)
		}
		for i := range size {
			at := start + i*step
			if d := x.float(at) - most; log {
				y.setFloat(at, d-math.Log(sum))
			} else {
				y.setFloat(at, math.Exp(d)/sum)
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
		x := c.tensor(0)
		mean, variance := 0.0, 0.0
		for i := range size {
			mean += x.float(start + i)
		}
		mean /= float64(size)
		for i := range size {
			variance += (x.float(start+i) - mean) * (x.float(start+i) - mean)
		}
		scale := 1 / math.Sqrt(variance/float64(size)+epsilon)
		n := 0
		each(shape[a:], func(at []int) {
			v := (x.float(start+n) - mean) * scale * c.tensor(1).float(at[0])
			if c.has(2) {
				v += c.tensor(2).float(at[1])
			}
			out[0].setFloat(start+n, v)
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
	scale, shift, mean, variance := c.tensor(1), c.tensor(2), c.tensor(3), c.tensor(4)
	for i := range out[0].Floats {
		k := i / inner % channels
		out[0].setFloat(i, (c.tensor(0).float(i)-mean.float(k))/math.Sqrt(variance.float(k)+epsilon)*scale.float(k)+shift.float(k))
	}
	return nil
}
