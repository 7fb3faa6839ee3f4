package atomicfile

import (
	"os"
	"sync"
	"time"
)

// Temporary is a file or folder that is deleted unless it is renamed to its final name.
type Temporary struct {
	path   string
	unlock func() // ends the lock that keeps other processes from removing it; nil = none
}

// temporaries holds the paths of all temporaries of this process.
var temporaries = struct {
	sync.Mutex
	paths map[string]*Temporary
}{paths: map[string]*Temporary{}}

// Track makes RemoveTemporaries delete the file or folder at path.
func Track(path string) *Temporary {
	temporaries.Lock()
	defer temporaries.Unlock()
	return track(path)
}

// track is Track while temporaries is locked.
func track(path string) *Temporary {
	t := &Temporary{path: path}
	temporaries.paths[path] = t
	return t
}

// forget ends the temporary while temporaries is locked.
func (t *Temporary) forget() {
	delete(temporaries.paths, t.path)
	if t.unlock != nil {
		t.unlock()
		t.unlock = nil
	}
}

// Rename gives the temporary its final name. It is then no longer a temporary.
func (t *Temporary) Rename(to string) error {
	temporaries.Lock()
	defer temporaries.Unlock()
	if err := os.Rename(t.path, to); err != nil {
		return err
	}
	t.forget()
	return nil
}

// Keep makes the file or folder permanent under its present name.
func (t *Temporary) Keep() {
	temporaries.Lock()
	defer temporaries.Unlock()
	t.forget()
}

// Remove deletes the temporary with everything in it, unless it was renamed or
// kept.
func (t *Temporary) Remove() error {
	temporaries.Lock()
	defer temporaries.Unlock()
	if temporaries.paths[t.path] != t {
		return nil
	}
	defer t.forget()
	return os.RemoveAll(t.path)
}

// RemoveTemporaries deletes all temporaries of this process, which must end right
// afterwards. From then on Track, Rename, Keep and Remove block, so no file appears at its final
// name.
func RemoveTemporaries() {
	temporaries.Lock()
	for path, t := range temporaries.paths {
		// Another goroutine may still create files in the folder.
		for try := 0; try < 10 && os.RemoveAll(path) != nil; try++ {
			time.Sleep(10 * time.Millisecond)
		}
		if t.unlock != nil {
			t.unlock()
		}
	}
}
