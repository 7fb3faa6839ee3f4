package cli

import (
	"testing"
	"testing/fstest"
)

// The quota of a container is read from the files of both versions of cgroups.
func TestQuota(t *testing.T) {
	type files map[string]string
	for name, test := range map[string]struct {
		files files
		cores float64 // 0 = no limit
	}{
		"version 2":           {files{"cpu.max": "100000 100000\n"}, 1},
		"version 2, half":     {files{"cpu.max": "50000 100000\n"}, .5},
		"version 2, no limit": {files{"cpu.max": "max 100000\n"}, 0},
		"version 1":           {files{"cpu/cpu.cfs_quota_us": "250000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2.5},
		"version 1, no limit": {files{"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 0},
		"no container":        {files{}, 0},
		"malformed":           {files{"cpu.max": "1\n"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			cgroup := fstest.MapFS{}
			for path, text := range test.files {
				cgroup[path] = &fstest.MapFile{Data: []byte(text)}
			}
			if cores, ok := quota(cgroup); cores != test.cores || ok != (test.cores > 0) {
				t.Errorf("%v cores, %t", cores, ok)
			}
		})
	}
}

// The memory is that of the machine, or the limit of a container.
func TestMemory(t *testing.T) {
	const info = "MemTotal:       1000 kB\nMemFree:  7 kB\nSwapTotal: 24 kB\n"
	for name, test := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"machine":   {map[string]string{"proc/meminfo": info}, 1 << 20},
		"no limit":  {map[string]string{"proc/meminfo": info, "sys/fs/cgroup/memory.max": "max\n"}, 1 << 20},
		"version 2": {map[string]string{"proc/meminfo": info, "sys/fs/cgroup/memory.max": "4096\n"}, 4096},
		"version 1": {map[string]string{"proc/meminfo": info, "sys/fs/cgroup/memory/memory.limit_in_bytes": "8192\n"}, 8192},
		"unknown":   {nil, unknownMemory},
	} {
		root := fstest.MapFS{}
		for path, text := range test.files {
			root[path] = &fstest.MapFile{Data: []byte(text)}
		}
		if found := memory(root); found != test.want {
			t.Errorf("%s: %d bytes, expected %d", name, found, test.want)
		}
	}
}
