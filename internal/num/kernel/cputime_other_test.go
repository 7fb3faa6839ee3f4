//go:build !linux

package kernel

import "time"

var began = time.Now()

func cpuTime() time.Duration { return time.Since(began) }
