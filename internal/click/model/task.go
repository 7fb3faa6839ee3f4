package model

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Task is a label of a dataset, and the output of a model that predicts it.
type Task struct {
	Label  string `json:"label"`
	Output string `json:"output"`
	Weight int64  `json:"weight"` // how often a row of the task counts, relative to those of other tasks, at least 1
}

// mostTasks is the largest number of tasks of a model. Sweeps have a slice for each.
const mostTasks = 16

// ParseTasks returns the tasks that people write as LABEL:OUTPUT=WEIGHT. Without them, the output has the name of the
// label, and the weight is 1. A weight has at most three decimals. The weights of the result have no common divisor.
func ParseTasks(list []string) (tasks []Task, err error) {
	const most, thousandths = 1000, 1000
	divisor := int64(0)
	if len(list) > mostTasks {
		return nil, fmt.Errorf("%d labels, expected at most %d", len(list), mostTasks)
	}
	for _, text := range list {
		name, weight := text, 1.0
		if at := strings.LastIndexByte(text, '='); at >= 0 {
			if weight, err = strconv.ParseFloat(text[at+1:], 64); err != nil {
				weight = 0
			}
			name = text[:at]
		}
		label, output, found := strings.Cut(name, ":")
		if !found {
			output = label
		}
		count := math.Round(weight * thousandths)
		switch {
		case label == "" || output == "":
			return nil, fmt.Errorf("%q: expected LABEL=WEIGHT or LABEL:OUTPUT=WEIGHT", text)
		case !(weight > 0 && weight <= most) || math.Abs(weight*thousandths-count) > 1e-6:
			return nil, fmt.Errorf("%q: expected a weight above 0, at most %d, with at most three decimals", text, most)
		case slices.ContainsFunc(tasks, func(t Task) bool { return t.Label == label }):
			return nil, fmt.Errorf("%q: the label %s has a weight already", text, label)
		}
		tasks = append(tasks, Task{label, output, int64(count)})
		for a := int64(count); a > 0; {
			divisor, a = a, divisor%a
		}
	}
	for i := range tasks {
		tasks[i].Weight /= divisor
	}
	return tasks, nil
}

// Outputs returns the outputs of tasks, as a user names several outputs of a model.
func Outputs(tasks []Task) string {
	var names []string
	for _, t := range tasks {
		names = append(names, t.Output)
	}
	return strings.Join(names, ",")
}

// TasksText returns tasks as ParseTasks reads them, or "none".
func TasksText(tasks []Task) string {
	var list []string
	for _, t := range tasks {
		name := t.Label
		if t.Output != t.Label {
			name += ":" + t.Output
		}
		list = append(list, fmt.Sprintf("%s=%d", name, t.Weight))
	}
	if list == nil {
		return "none"
	}
	return strings.Join(list, ",")
}
