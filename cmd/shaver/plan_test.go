package main

import (
	"strings"
	"testing"

	"shaver/internal/jobs/forecast"
)

// The table says that the machine was busy only if it was.
func TestPlanOnBusyMachine(t *testing.T) {
	for share, want := range map[float64]string{1: "", .5: "the threads ran in 50% of this time, so a job takes up to 2.0 times as long while they run"} {
		var text strings.Builder
		forecastTable(&text, &forecast.Forecast{Measured: forecast.Sample{Seconds: 5, Share: share}})
		if busy := strings.Contains(text.String(), "other programs"); busy != (want != "") || !strings.Contains(text.String(), want) {
			t.Errorf("share %v:\n%s", share, text.String())
		}
	}
}
