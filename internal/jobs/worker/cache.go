package worker

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"shaver/internal/base/atomicfile"
	"shaver/internal/base/files"
	"shaver/internal/jobs/job"
)

// Cache keeps models in a folder under their digests. A worker that starts again, and
// other workers on the same machine, then need not fetch them. A nil Cache keeps
// nothing. An error of the cache is logged and otherwise ignored.
type Cache struct {
	Dir   string
	Bytes int64 // limit on all models; the least recently used are deleted
	Log   *zap.Logger
}

const (
	// modelSuffix ends the name of a cached model.
	modelSuffix = ".model"
	// staleAfter is the age from which a half-written file belongs to a process that
	// ended.
	staleAfter = time.Hour
)

func (c *Cache) path(blob job.Blob) string { return filepath.Join(c.Dir, blob.SHA256+modelSuffix) }

// get returns the blob's bytes, or nil if they are not in the cache. It checks their
// digest.
func (c *Cache) get(blob job.Blob) []byte {
	if c == nil {
		return nil
	}
	path := c.path(blob)
	info, err := os.Stat(path)
	if err != nil || info.Size() != blob.Bytes {
		return nil
	}
	data, err := files.Small(path, blob.Bytes>>20+1, "a model")
	if err != nil {
		c.Log.Warn("model cache", zap.Error(err))
		return nil
	}
	if !isContent(blob, data) {
		c.Log.Warn("model cache: deleting a damaged file", zap.String("file", path))
		_ = os.Remove(path)
		return nil
	}
	now := time.Now()
	_ = os.Chtimes(path, now, now) // marks the model as used
	return data
}

// put adds the blob, whose bytes are data, and makes room for it.
func (c *Cache) put(blob job.Blob, data []byte) {
	if c == nil || blob.Bytes > c.Bytes {
		return
	}
	if err := c.store(blob, data); err != nil {
		c.Log.Warn("model cache", zap.Error(err))
	}
}

func (c *Cache) store(blob job.Blob, data []byte) error {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return err
	}
	if err := c.evict(c.Bytes - blob.Bytes); err != nil {
		return err
	}
	return atomicfile.Write(c.path(blob), func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// evict deletes the least recently used models until the others take at most the given
// number of bytes.
func (c *Cache) evict(most int64) error {
	entries, err := os.ReadDir(c.Dir)
	if err != nil {
		return err
	}
	var models []os.FileInfo
	total := int64(0)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue // another worker deleted it
		}
		switch name := e.Name(); {
		case strings.HasSuffix(name, modelSuffix):
			models = append(models, info)
			total += info.Size()
		case strings.Contains(name, modelSuffix+".") && time.Since(info.ModTime()) > staleAfter:
			_ = os.Remove(filepath.Join(c.Dir, name))
		}
	}
	slices.SortFunc(models, func(a, b os.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, info := range models {
		if total <= most {
			break
		}
		if err := os.Remove(filepath.Join(c.Dir, info.Name())); err != nil && !os.IsNotExist(err) {
			return err
		}
		total -= info.Size()
	}
	return nil
}
