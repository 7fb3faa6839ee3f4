//go:build !linux

package model_test

import "time"

var began = time.Now()

func cpuTime() time.Duration { return time.Since(began) }
