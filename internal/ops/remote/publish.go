package remote

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"shaver/internal/base/files"
)

// Publish writes a file to an object. The object appears or changes as a whole. If the object
// does not have the version that this session or an earlier one in the same folder has seen, the
// error is ErrConflict, unless the object has the same bytes. An object that no session has
// seen must not exist.
func (s *Session) Publish(ctx context.Context, file string, l Location) error {
	c := condition{absent: true}
	if r := s.record(l); r != nil {
		c = condition{version: r.Version}
	}
	return s.publish(ctx, file, l, c, nil)
}

// Replace writes a file to an object, whatever is there.
func (s *Session) Replace(ctx context.Context, file string, l Location) error {
	return s.publish(ctx, file, l, condition{}, nil)
}

// publish counts the bytes with add, or shows the progress of the object if add is nil.
func (s *Session) publish(ctx context.Context, file string, l Location, c condition, add func(int64)) error {
	b, err := s.open(ctx, l)
	if err != nil {
		return err
	}
	f, err := files.Open(file, "a file to store")
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	about := object{size: info.Size(), write: rand.Text()}
	if about.sha256, err = digestOf(f); err != nil {
		return err
	}
	if add == nil {
		var end func()
		add, end = s.count("store", l, about.size)
		defer end()
	}
	var version string
	err = retry(ctx, func(try int) (_ bool, err error) {
		version, err = b.put(ctx, l.Key, countedReader{f, add}, about.size, about, c)
		if err == nil && version != "" {
			return false, nil
		}
		if err != nil && judge(err) != changed {
			return false, plain(err)
		}
		// Either the answer has no version, or the object has changed. It may have been
		// changed by an earlier try whose answer was lost, or by somebody with the same bytes.
		there, heading := b.head(ctx, l.Key)
		switch {
		case heading != nil && judge(heading) == missing:
			return false, err
		case heading != nil:
			return false, heading
		case there.write == about.write && there.write != "", err == nil:
			version = there.version
			return false, nil
		}
		same, reading := s.sameBytes(ctx, b, there, about)
		if reading != nil {
			return false, reading
		}
		if same {
			version = there.version
			return false, nil
		}
		return false, err
	})
	if err != nil && judge(err) == changed {
		return fmt.Errorf("writing %s: %w", l, ErrConflict)
	}
	if err != nil {
		return describe(l, "writing", err)
	}
	return s.setRecord(l, file, version)
}

// sameBytes reports whether an object has the given size and digest.
func (s *Session) sameBytes(ctx context.Context, b bucket, there, about object) (bool, error) {
	if there.size != about.size {
		return false, nil
	}
	if there.sha256 != "" {
		return there.sha256 == about.sha256, nil
	}
	body, _, err := b.get(ctx, there.key, there.version, 0)
	if err != nil {
		return false, err
	}
	defer body.Close()
	found, err := digestOf(body)
	return found == about.sha256, err
}

// countedReader counts the bytes that are read. Bytes that are sent again count again.
type countedReader struct {
	*os.File
	add func(int64)
}

func (c countedReader) ReadAt(p []byte, offset int64) (int, error) {
	n, err := c.File.ReadAt(p, offset)
	c.add(int64(n))
	return n, err
}

// PublishFolder writes the files of a local folder, and the one named last after all others, so
// that readers who begin with it find all it names. The last file must not have changed since a
// session saw it, as in Publish. Hidden files stay here.
func (s *Session) PublishFolder(ctx context.Context, folder string, l Location, last string) error {
	var names []string
	bytes := int64(0)
	err := s.walk(folder, func(name string, info fs.FileInfo) error {
		if name != last && !hidden(name) {
			names, bytes = append(names, name), bytes+info.Size()
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = s.each(ctx, "store", l, len(names), bytes, func(ctx context.Context, i int, add func(int64)) error {
		return s.publish(ctx, filepath.Join(folder, filepath.FromSlash(names[i])), l.Join(names[i]), condition{}, add)
	})
	if err != nil {
		return err
	}
	return s.Publish(ctx, filepath.Join(folder, filepath.FromSlash(last)), l.Join(last))
}

// Empty returns an error of kind fs.ErrExist if a folder has objects.
func (s *Session) Empty(ctx context.Context, l Location) error {
	names, err := s.List(ctx, l)
	if err == nil && len(names) > 0 {
		err = fmt.Errorf("%s has the object %s: %w", l, names[0], fs.ErrExist)
	}
	return err
}

// Remove deletes an object, which need not exist, and the local copy's record.
func (s *Session) Remove(ctx context.Context, l Location) error {
	b, err := s.open(ctx, l)
	if err != nil {
		return err
	}
	err = retry(ctx, func(int) (bool, error) { return false, b.remove(ctx, l.Key) })
	return errors.Join(describe(l, "deleting", err), s.dropRecord(l))
}

// hidden reports whether a part of the name begins with a dot.
func hidden(name string) bool {
	for i := range len(name) {
		if name[i] == '.' && (i == 0 || name[i-1] == '/') {
			return true
		}
	}
	return false
}
