//go:build unix

package atomicfile

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A new file has the permissions that the umask leaves, and a replaced one keeps its own. While a file is written
// nobody can read it who cannot read the result. A hidden file of another one has the permissions of that one.
func TestPermissions(t *testing.T) {
	for _, test := range []struct{ umask, before, want os.FileMode }{
		{0o022, 0, 0o644}, {0o002, 0, 0o664}, {0o077, 0, 0o600}, {0o027, 0, 0o640},
		{0o022, 0o600, 0o600}, {0o022, 0o640, 0o640}, {0o077, 0o644, 0o644}, {0, 0o400, 0o400},
	} {
		dir := t.TempDir()
		path, folder := filepath.Join(dir, "file.x"), filepath.Join(dir, "folder")
		if test.before != 0 {
			for _, err := range []error{os.WriteFile(path, nil, 0o600), os.Chmod(path, test.before), os.Mkdir(folder, 0o700), os.Chmod(folder, test.before|0o100)} {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		old := syscall.Umask(int(test.umask))
		err := Write(path, func(w io.Writer) error {
			info, err := w.(*os.File).Stat()
			if err == nil && info.Mode().Perm()&0o077&^test.want != 0 {
				t.Errorf("%+v: the file has %o while it is written", test, info.Mode().Perm())
			}
			return err
		})
		if err == nil {
			err = Write(filepath.Join(dir, ".file.x.word"), func(io.Writer) error { return nil })
		}
		made, temporary, failed := Folder(folder)
		syscall.Umask(old)
		if err != nil || failed != nil {
			t.Fatal(err, failed)
		}
		for name, want := range map[string]os.FileMode{path: test.want, filepath.Join(dir, ".file.x.word"): test.want} {
			if info, err := os.Stat(name); err != nil || info.Mode() != want {
				t.Errorf("%+v: %s has %o, %v", test, name, info.Mode(), err)
			}
		}
		want := 0o777 &^ test.umask
		if test.before != 0 {
			want = test.before | 0o100
		}
		if info, err := os.Stat(made); err != nil || info.Mode().Perm() != want {
			t.Errorf("%+v: the folder has %o, expected %o, %v", test, info.Mode().Perm(), want, err)
		}
		if err := temporary.Remove(); err != nil {
			t.Fatal(err)
		}
	}
}
