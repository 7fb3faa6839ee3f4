package model

import (
	"strings"
	"testing"
)

// Weights are whole numbers in the ratio that the user gives. Their order and their names stay.
func TestParseTasks(t *testing.T) {
	for text, want := range map[string]string{
		"click=1,buy=.5":              "click=2,buy=1",
		"click=2,buy":                 "click=2,buy=1",
		"buy=3":                       "buy=1",
		"click:ctr:0=.125,buy:b=1000": "click:ctr:0=1,buy:b=8000",
		"":                            "none",
		"a=0.3,b=0.6,c=0.9":           "a=1,b=2,c=3",
	} {
		var list []string
		if text != "" {
			list = strings.Split(text, ",")
		}
		tasks, err := ParseTasks(list)
		if got := TasksText(tasks); err != nil || got != want {
			t.Errorf("%s: %q, %v, expected %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"=1": "expected LABEL=WEIGHT", "a:=1": "expected LABEL=WEIGHT", "a=0": "expected a weight above 0", "a=NaN": "expected a weight above 0", "a=x": "expected a weight above 0",
		"a=1001": "expected a weight above 0", "a=.0001": "at most three decimals", "a=1,a:b=2": "the label a has a weight already",
	} {
		if _, err := ParseTasks(strings.Split(text, ",")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, expected %q", text, err, want)
		}
	}
}
