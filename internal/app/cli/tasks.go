package cli

import (
	"shaver/internal/base/fault"
	"shaver/internal/click/model"
)

// TaskHelp is the help of --task.
const TaskHelp = "`labels` of the dataset and their weights, such as click=1,buy=.5; the output of --model has the same name, or is OUTPUT in click:OUTPUT=1 (default the first label, and --model-output)"

// Tasks returns the tasks of --task. output is that of --model-output.
func Tasks(list []string, output string) ([]model.Task, error) {
	if len(list) > 0 && output != "" {
		return nil, fault.Usagef("--task and --model-output exclude each other: write the output after the label, as in --task %s:%s", list[0], output)
	}
	tasks, err := model.ParseTasks(list)
	if err != nil {
		return nil, fault.Usagef("--task %w", err)
	}
	return tasks, nil
}
