package nightly

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/base/files"
)

// CurrentVersion is the form of Current.
const CurrentVersion = "shaver.current/1"

// Current is the file current.json: which night is published.
type Current struct {
	Version string `json:"version"`
	Night   string `json:"night"`
	Folder  string `json:"folder"` // of the night, relative to that of the file, with slashes
	Model   string `json:"model"`  // digest of the model that was pruned
	Scores  string `json:"scores"` // SHA-256 of scores.arrow
	Pruned  string `json:"pruned"` // SHA-256 of pruned.safetensors
	// ONNX and ONNXData are the SHA-256 of pruned.onnx and of its external data; "" = there is
	// no such file.
	ONNX     string `json:"onnx,omitempty"`
	ONNXData string `json:"onnx_data,omitempty"`
}

// The names in the folder for the results.
const (
	nightsFolder = "nights"
	currentLink  = "current"
	currentFile  = "current.json"
	historyFile  = "history.jsonl"
	historyPage  = "history.html"
	lockFile     = ".nightly.lock"
	newPrefix    = ".new-"  // a night's folder that is not complete yet
	gonePrefix   = ".gone-" // a night's folder that is being deleted
	modelFolder  = "model"
)

// ReadCurrent returns which night is published in a folder of results. It returns nil if
// none is.
func ReadCurrent(out string) (*Current, error) {
	path := filepath.Join(out, currentFile)
	text, err := files.Small(path, mostJSON, written)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseCurrent(path, text)
}

// parseCurrent returns the content of current.json. path is the name of the file in errors.
func parseCurrent(path string, text []byte) (*Current, error) {
	c := &Current{}
	err := parseJSON(path, text, c)
	if err == nil && (c.Version != CurrentVersion || !isName(c.Night) || c.Folder != nightsFolder+"/"+c.Night) {
		err = fault.Inputf("%s: version %q, night %q, folder %q: expected version %q", path, c.Version, c.Night, c.Folder, CurrentVersion)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// publish makes a night the published one. First the file changes, and then the link. Each
// changes at once, and both name a whole night at every moment. If the process ends between
// the two, relink follows up.
func (r *runner) publish(n *Record) error {
	c := Current{
		Version: CurrentVersion, Night: n.Night, Folder: nightsFolder + "/" + n.Night,
		Model: n.Model, Scores: n.scores(), Pruned: n.digest(PrunedFile),
		ONNX: n.digest(ONNXFile), ONNXData: n.digest(ONNXDataFile),
	}
	if err := writeJSON(r.path(currentFile), c); err != nil {
		return err
	}
	return r.relink()
}

// relink makes the link lead to the night that current.json names. It does nothing on a
// system without symbolic links.
func (r *runner) relink() error {
	c, err := ReadCurrent(r.config.Out)
	if c == nil || err != nil {
		return err
	}
	link, target := r.path(currentLink), filepath.FromSlash(c.Folder)
	if found, err := os.Readlink(link); err == nil && found == target {
		return nil
	}
	temporary := r.path("." + currentLink + ".tmp")
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(target, temporary); err != nil {
		if !r.linkless {
			r.say("no symbolic link %s, because the system does not allow it: %s names the night", currentLink, currentFile)
		}
		r.linkless = true
		return nil
	}
	if err := os.Rename(temporary, link); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return atomicfile.SyncFolder(r.config.Out)
}

// checkLink returns an error if something that is not a link has the link's name.
func (r *runner) checkLink() error {
	path := r.path(currentLink)
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink == 0 {
		return fault.Usagef("%s is not a symbolic link: expected a folder for results without it", path)
	}
	return nil
}

// sweepUp deletes what a process that was killed left behind.
func (r *runner) sweepUp() error {
	for _, folder := range []string{r.config.Out, r.path(nightsFolder)} {
		entries, err := os.ReadDir(folder)
		if err != nil {
			return err
		}
		for _, e := range entries {
			name := e.Name()
			left := isTemporary(name, currentLink, currentFile, historyFile, historyPage)
			if folder != r.config.Out {
				left = strings.HasPrefix(name, newPrefix) || strings.HasPrefix(name, gonePrefix)
			}
			if left {
				if err := os.RemoveAll(filepath.Join(folder, name)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// isTemporary reports whether name is that of a temporary file in which this package or
// atomicfile writes one of the given files. The folder may have files of other programs.
func isTemporary(name string, files ...string) bool {
	return strings.HasSuffix(name, ".tmp") && slices.ContainsFunc(files, func(file string) bool { return strings.HasPrefix(name, "."+file+".") })
}

// retain deletes the folders of all nights except the last ones and the published one.
// Nights that were abandoned are deleted when a later night has ended. Only the newest night and the published
// one keep their copies of the checkpoint.
func (r *runner) retain() error {
	current, err := ReadCurrent(r.config.Out)
	if err != nil {
		return err
	}
	records, err := readRecords(r.path(nightsFolder))
	if err != nil {
		return err
	}
	kept := 0
	for i := len(records) - 1; i >= 0; i-- {
		n := records[i]
		switch {
		case current != nil && n.Night == current.Night:
			kept++
		case !n.finished():
		case n.Outcome == Abandoned && kept > 0, kept >= r.config.Keep:
			if err := r.delete(n.Night); err != nil {
				return fmt.Errorf("deleting the night %s: %w", n.Night, err)
			}
		default:
			kept++
		}
		if i < len(records)-1 && n.finished() && (current == nil || n.Night != current.Night) {
			if err := os.RemoveAll(filepath.Join(r.folder(n.Night), modelFolder)); err != nil {
				return err
			}
		}
	}
	return nil
}

// delete deletes a night's folder. First it renames the folder, so that no half of a night
// is found.
func (r *runner) delete(night string) error {
	gone := filepath.Join(r.path(nightsFolder), gonePrefix+night)
	if err := os.Rename(r.folder(night), gone); err != nil {
		return err
	}
	return os.RemoveAll(gone)
}
