package filelock

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(path); !errors.Is(err, ErrLocked) {
		t.Fatalf("a second Lock: %v", err)
	}
	unlock()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("unlock did not remove the file: %v", err)
	}
	if unlock, err = Lock(path); err != nil {
		t.Fatal(err)
	}
	unlock()
	if _, err := Lock(filepath.Join(path, "nowhere", "lock")); err == nil || errors.Is(err, ErrLocked) {
		t.Errorf("in a missing folder: %v", err)
	}
}

// Two goroutines never hold the lock at once, even though each holder removes the file.
func TestLockOfMany(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var holders, turns atomic.Int32
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for turns.Load() < 200 {
				unlock, err := Lock(path)
				if errors.Is(err, ErrLocked) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if holders.Add(1) != 1 {
					t.Error("two goroutines hold the lock")
				}
				turns.Add(1)
				holders.Add(-1)
				unlock()
			}
		})
	}
	all.Wait()
}
