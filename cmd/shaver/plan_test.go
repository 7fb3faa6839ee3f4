package main

import (
	"strings"
	"testing"

	"shaver/internal/jobs/forecast"
)

// The time of a job that ends within a second is not 0.
func TestPlanOfShortJob(t *testing.T) {
	for seconds, want := range map[float64]string{.2: "about a second", 1.2: "1s", 90: "1m30s"} {
		var text strings.Builder
		forecastTable(&text, &forecast.Forecast{Seconds: seconds, Cores: 2, Workers: 1})
		if want = "time\t" + want + "\ton 2 cores, 1 workers\n"; !strings.Contains(text.String(), want) {
			t.Errorf("%v seconds:\n%s, expected %q", seconds, text.String(), want)
		}
	}
}

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
