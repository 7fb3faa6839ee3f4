package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"
)

// flipMemory changes a bit in each of a few weights of a model in the memory of a worker, which then computes wrong
// until it ends.
func (r *run) flipMemory(faulting context.Context, s *slot, f fault) (bool, error) {
	table, err := largest(r.fixture.file(model))
	if err != nil {
		return false, err
	}
	for end := time.Now().Add(3 * time.Second); faulting.Err() == nil && time.Now().Before(end); wait(faulting, 20*time.Millisecond) {
		l := s.now.Load()
		if l == nil || !l.alive() {
			return false, nil
		}
		l.faulty.Store(true) // before it can be found out
		n, err := flipWeights(l.cmd.Process.Pid, table, f.Pick)
		if n > 0 {
			r.faulty.Store(true)
			r.diary.note("%s: in %d copies of the model of %s", f.Kind, n, l.name)
			return true, nil
		}
		l.faulty.Store(false)
		if err != nil && !errors.Is(err, os.ErrNotExist) && l.alive() {
			return false, err
		}
	}
	return false, nil
}

// largest returns the bytes of the largest tensor of a safetensors file.
func largest(path string) (table []byte, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	head := 8 + int(binary.LittleEndian.Uint64(data))
	var tensors map[string]json.RawMessage
	if err := json.Unmarshal(data[8:head], &tensors); err != nil {
		return nil, err
	}
	for _, text := range tensors {
		var t struct {
			Offsets [2]int `json:"data_offsets"`
		}
		if json.Unmarshal(text, &t) == nil && t.Offsets[1]-t.Offsets[0] > len(table) {
			table = data[head+t.Offsets[0] : head+t.Offsets[1]]
		}
	}
	return table, nil
}

// flipWeights changes the highest bit of the mantissas of a few float32 of a table, wherever the memory of a
// process has its beginning. It returns the number of these places.
func flipWeights(pid int, table []byte, pick uint32) (places int, err error) {
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, err
	}
	defer maps.Close()
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer memory.Close()
	begin := table[:min(len(table), 256)]
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var from, to int64
		var access string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &from, &to, &access); err != nil || !strings.HasPrefix(access, "rw") || to-from > 1<<30 {
			continue
		}
		part := make([]byte, to-from)
		n, _ := memory.ReadAt(part, from) // pages that cannot be read end it
		part = part[:n]
		for at := bytes.Index(part, begin); at >= 0; {
			random := rand.New(rand.NewPCG(uint64(pick), 1))
			for range 16 {
				k := 4 * random.IntN(len(table)/4)
				if _, err := memory.WriteAt([]byte{table[k+2] ^ 0x40}, from+int64(at+k+2)); err != nil {
					return places, err
				}
			}
			places++
			next := bytes.Index(part[at+len(begin):], begin)
			if at += len(begin) + next; next < 0 {
				break
			}
		}
	}
	return places, nil
}
