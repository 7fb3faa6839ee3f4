package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

// flipFile kills a node, changes a few bytes in one of its files, and starts it again.
func (r *run) flipFile(ctx, faulting context.Context, server int, f fault) (bool, error) {
	if !r.damaged.CompareAndSwap(0, int32(server)+1) {
		server = int(r.damaged.Load()) - 1 // the files of the other nodes stay intact
	}
	s, n := r.servers[server], r.nodes[server]
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.now.Load()
	if faulting.Err() != nil || l == nil || !l.alive() {
		return false, nil
	}
	l.wanted.Store(true)
	l.kill()
	what, err := flip(n.dir, f.Pick, r.plan.Nodes == 1)
	if err != nil {
		return false, err
	}
	if what != "" {
		r.diary.note("%s: %s: %s, back after %v", f.Kind, n.name, what, f.Length)
	}
	wait(faulting, f.Length)
	if err := r.startNode(server); err != nil || r.plan.Nodes == 1 {
		return what != "", err
	}
	return what != "", r.insist(ctx, server)
}

// startBound is how long the start of a node with damaged files may take.
const startBound = 20 * time.Second

// insist kills a node that does not listen in time after its start, because NATS may read
// a damaged file without end, and starts it with an empty folder. The caller holds the
// slot.
func (r *run) insist(ctx context.Context, server int) error {
	n, l := r.nodes[server], r.servers[server].now.Load()
	for end := time.Now().Add(startBound); l.alive() && !r.listening(n.client); wait(ctx, 50*time.Millisecond) {
		if ctx.Err() != nil {
			return nil
		}
		if time.Now().Before(end) {
			continue
		}
		r.diary.note("%s does not start with its files and starts with none", n.name)
		l.wanted.Store(true)
		l.kill()
		return errors.Join(os.RemoveAll(n.dir), r.startNode(server))
	}
	return nil
}

// replace does what an operator does if a node refuses to start because its files are
// damaged. It gives the node an empty folder, so that the node copies the files of the
// others. l is the life of the node that has ended.
func (r *run) replace(i int, l *life) {
	s, n := r.servers[i], r.nodes[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.ending.Load() || l.wanted.Load() {
		return
	}
	r.diary.note("%s refuses its files (%v) and starts with none", n.name, l.cmd.ProcessState)
	if err := errors.Join(os.RemoveAll(n.dir), r.startNode(i)); err != nil {
		r.stop(err)
	}
}

// flip changes a bit in each of a few bytes of a file in dir. It returns a description
// of the damage, "" if dir has no file. If messages is set, it chooses only files with
// messages and their indexes.
func flip(dir string, pick uint32, messages bool) (what string, err error) {
	var files []string
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || messages && filepath.Base(filepath.Dir(path)) != "msgs" {
			return err
		}
		if about, err := entry.Info(); err != nil || about.Size() == 0 {
			return err
		}
		files = append(files, path)
		return nil
	})
	if err != nil || len(files) == 0 {
		return "", err
	}
	r := rand.New(rand.NewPCG(uint64(pick), 0))
	path := files[r.IntN(len(files))]
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	n := 1 + r.IntN(4)
	first := r.IntN(len(data))
	for i := range n {
		data[(first+i*i*i)%len(data)] ^= 1 << r.IntN(8)
	}
	name, err := filepath.Rel(dir, path)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d bits of %s from byte %d of %d", n, name, first, len(data)), os.WriteFile(path, data, 0o600)
}
