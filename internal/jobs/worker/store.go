package worker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/click/modelfile"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/shard"
)

// Store is a folder that is a dataset or contains datasets, and may contain models. It is on a volume that the
// coordinator has too. Tasks name both by digest, never by path. Nothing outside
// the folder is read, even through symbolic links. A Store is safe for concurrent use.
type Store struct {
	root *os.Root

	mu       sync.Mutex
	datasets map[string]*dataset.Dataset // folders and windows, by digest
}

// storeKind is the prefix of a store's path.
const storeKind = "dir:"

// OpenStore returns the store that text names, as dir:PATH. The caller must close it.
func OpenStore(text string) (*Store, error) {
	path, ok := strings.CutPrefix(text, storeKind)
	if !ok || path == "" {
		return nil, fault.Usagef("store %q: expected %sPATH", text, storeKind)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fault.Inputf("store %s: %w", text, err)
	}
	return &Store{root: root, datasets: map[string]*dataset.Dataset{}}, nil
}

// Close closes the folder.
func (s *Store) Close() { _ = s.root.Close() }

// Dataset returns the dataset with the given digest. days has the digests of its days if it
// is a window, the oldest first; otherwise it is nil.
func (s *Store) Dataset(digest string, days []string) (*dataset.Dataset, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.datasets[digest]; d != nil {
		return d, nil
	}
	if len(days) == 0 {
		return s.folder(digest)
	}
	folders := make([]*dataset.Dataset, len(days))
	for i, day := range days {
		var err error
		if folders[i], err = s.folder(day); err != nil {
			return nil, err
		}
	}
	d, err := dataset.Join(folders)
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", s.root.Name(), err)
	}
	if d.Digest() != digest {
		return nil, fault.Inputf("store %s: the %d days of the job are not the dataset %s", s.root.Name(), len(days), digest)
	}
	s.datasets[digest] = d
	return d, nil
}

// folder returns the dataset of a single folder. The caller must hold s.mu.
func (s *Store) folder(digest string) (*dataset.Dataset, error) {
	if d := s.datasets[digest]; d != nil {
		return d, nil
	}
	entries, err := fs.ReadDir(s.root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", s.root.Name(), err)
	}
	folders := []string{"."}
	for _, e := range entries {
		folders = append(folders, e.Name())
	}
	var broken error // errors of datasets that cannot be read
	for _, folder := range folders {
		if _, err := s.root.Stat(folder + "/" + dataset.ManifestName); err != nil {
			continue
		}
		d, err := dataset.OpenIn(s.root, folder)
		if err != nil {
			broken = errors.Join(broken, err)
			continue
		}
		if d.Digest() == digest {
			s.datasets[digest] = d
			return d, nil
		}
	}
	if broken != nil {
		return nil, fmt.Errorf("store %s: no dataset %s among those that can be read: %w", s.root.Name(), digest, broken)
	}
	return nil, fmt.Errorf("store %s: no dataset %s in it or in its folders", s.root.Name(), digest)
}

// model returns the content of the blob of a model if a file in the store's folder, or in a folder directly in
// it, has it, and nil otherwise. It counts steps as it reads. A nil Store has no models.
func (s *Store) model(blob job.Blob, steps *atomic.Int64) []byte {
	if s == nil || blob.Bytes > maxModelBytes {
		return nil
	}
	for _, pattern := range []string{"*" + modelfile.Extension, "*/*" + modelfile.Extension} {
		paths, _ := fs.Glob(s.root.FS(), pattern) // the pattern is well formed
		for _, path := range paths {
			info, err := s.root.Stat(path)
			if err != nil || !info.Mode().IsRegular() || info.Size() != blob.Bytes {
				continue
			}
			if data := s.read(path, info.Size(), steps); data != nil && isContent(blob, data) {
				return data
			}
		}
	}
	return nil
}

// isContent reports whether data is the content of a blob.
func isContent(blob job.Blob, data []byte) bool {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]) == blob.SHA256
}

// read returns the content of a file of the given size, or nil if it cannot be read.
func (s *Store) read(path string, size int64, steps *atomic.Int64) []byte {
	f, err := s.root.Open(path)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	data := make([]byte, size)
	for at := 0; at < len(data); {
		n, err := io.ReadFull(f, data[at:min(at+1<<20, len(data))])
		if err != nil {
			return nil
		}
		at += n
		steps.Add(1)
	}
	return data
}

// forget makes the next call of Dataset search for the dataset of a job again.
func (s *Store) forget(spec *job.Spec) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.datasets, spec.Dataset)
	for _, day := range spec.Days {
		delete(s.datasets, day)
	}
}

// rows reads the rows of a task and checks their digest, or the blocks that have them. It counts steps as it reads. A
// nil Store returns an error.
func (s *Store) rows(ctx context.Context, t *job.Task, a *model.Architecture, steps *atomic.Int64) (*model.Rows, error) {
	if s == nil {
		return nil, errors.New("this worker has no store")
	}
	d, err := s.Dataset(t.Spec.Dataset, t.Spec.Days)
	if err == nil && t.Spec.Tasks != nil {
		d, err = d.ForTasks(t.Spec.Tasks)
	}
	if err == nil {
		d, err = d.ForKnown(a) // the coordinator has compared their vocabularies
	}
	if err != nil {
		return nil, err
	}
	total := int64(0)
	for _, split := range t.Spec.Splits {
		total += d.Rows(split)
	}
	scan := d.ScanFrom
	if t.Place.Blocks != "" {
		scan, err = d.ScanBlocks, sameBlocks(d, t.Place.Blocks)
	}
	source := func(ctx context.Context, each func(*model.Rows) error) error {
		return scan(ctx, t.Spec.Splits, t.Place.Seen, 1<<14, func(rows *model.Rows) error {
			steps.Add(1)
			return each(rows)
		})
	}
	var rows *model.Rows
	if err == nil {
		rows, err = shard.Collect(ctx, source, shard.SampleOf(&t.Spec, total), t.Place, t.Rows)
	}
	if err != nil {
		s.forget(&t.Spec)
		return nil, fmt.Errorf("store %s: dataset %s from row %d: %w", s.root.Name(), t.Spec.Dataset, t.Place.Seen, err)
	}
	return rows, nil
}

// sameBlocks returns an error unless the lists of blocks of d have the digest want.
func sameBlocks(d *dataset.Dataset, want string) error {
	got, err := d.Blocks()
	switch {
	case err != nil:
		return err
	case got == "":
		return fmt.Errorf("%s is missing, but the coordinator's copy has it", dataset.BlocksName)
	case got != want:
		return fmt.Errorf("%s differs from that of the coordinator's copy", dataset.BlocksName)
	}
	return nil
}
