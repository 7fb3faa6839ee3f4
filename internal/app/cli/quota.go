package cli

import (
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// followQuota makes a process in a container with at most one core use one thread. Go follows
// the quota of its cgroup, but never uses fewer than two threads, so such a process would be
// throttled half of the time. The variable GOMAXPROCS wins.
func followQuota() {
	if os.Getenv("GOMAXPROCS") != "" || runtime.GOMAXPROCS(0) != 2 {
		return
	}
	if cores, ok := quota(os.DirFS("/sys/fs/cgroup")); ok && cores <= 1 {
		runtime.GOMAXPROCS(1)
	}
}

// quota returns the number of cores that a container may use, from the files of cgroup
// version 2 or 1. ok is false if there is no limit.
func quota(cgroup fs.FS) (cores float64, ok bool) {
	read := func(name string) []string {
		text, err := fs.ReadFile(cgroup, name)
		if err != nil {
			return nil
		}
		return strings.Fields(string(text))
	}
	values := read("cpu.max")
	if values == nil {
		values = append(read("cpu/cpu.cfs_quota_us"), read("cpu/cpu.cfs_period_us")...)
	}
	if len(values) != 2 {
		return 0, false
	}
	limit, err := strconv.ParseFloat(values[0], 64)
	period, err2 := strconv.ParseFloat(values[1], 64)
	if err != nil || err2 != nil || limit <= 0 || period <= 0 { // "max" and -1 mean no limit
		return 0, false
	}
	return limit / period, true
}

// unknownMemory stands for the memory of a machine that does not say how much it has, in bytes.
const unknownMemory = 1 << 40

// Memory returns how many bytes this process may use: those of the machine, with its swap space, or
// fewer if a container has a limit.
func Memory() int64 { return memory(os.DirFS("/")) }

// memory is Memory for the files of a system.
func memory(root fs.FS) int64 {
	most := int64(unknownMemory)
	if text, err := fs.ReadFile(root, "proc/meminfo"); err == nil {
		total := int64(0)
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 1 && (f[0] == "MemTotal:" || f[0] == "SwapTotal:") {
				if kib, err := strconv.ParseInt(f[1], 10, 53); err == nil {
					total += kib << 10
				}
			}
		}
		if total > 0 {
			most = total
		}
	}
	for _, name := range []string{"memory.max", "memory/memory.limit_in_bytes"} {
		if text, err := fs.ReadFile(root, "sys/fs/cgroup/"+name); err == nil {
			if limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && limit > 0 { // "max" means no limit
				most = min(most, limit)
			}
		}
	}
	return most
}
