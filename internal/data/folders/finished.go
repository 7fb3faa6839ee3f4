package folders

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
)

// The formats of tables whose snapshots can be read.
const (
	Delta   = "delta"
	Iceberg = "iceberg"
)

// Table returns the format of the table whose folder is dir, or "" if it is not the folder of one. find is as in Finished, and nil for a folder
// of this machine.
func Table(dir string, find func(folder, pattern string) []string) string {
	if find == nil {
		find = glob
	}
	for _, sign := range signs {
		if format := readable[sign[1]]; format != "" && len(find(dir, sign[0])) > 0 {
			return format
		}
	}
	return ""
}

// glob returns the entries of a folder of this machine that match a pattern. A folder that cannot be read has none.
func glob(dir, pattern string) []string {
	found, _ := fs.Glob(os.DirFS(dir), pattern)
	return found
}

// readable are the formats by what has their signs.
var readable = map[string]string{delta: Delta, iceberg: Iceberg}

// signs are entries of folders whose files are not all rows of one finished table, as patterns of fs.Glob, and what has
// such entries.
var signs = [][2]string{
	{"_delta_log", delta},
	{".hoodie*", "a Hudi table" + versions},
	{"metadata/*.metadata.json", iceberg},
	{"metadata/version-hint.text", iceberg},
	{"snapshot/LATEST", "a Paimon table" + versions},
	{"_spark_metadata", "a sink of Spark Structured Streaming" + versions},
	{"_temporary", "a job of Spark or Hadoop that has not ended: wait for it, or delete what it wrote and run it again"},
}

const (
	versions = ", whose files are not all current: export its current rows to a folder of Parquet files elsewhere, with a reader of such tables"
	snapshot = ", whose files are not all current: give the folder of the table to shaver dataset import parquet, which reads one snapshot, and choose rows with --where"
	delta    = "a Delta table" + snapshot
	iceberg  = "an Iceberg table" + snapshot
)

// sparkPart matches the name of a file that Spark wrote. The group is the UUID of the job.
var sparkPart = regexp.MustCompile(`^part-\d+-(?:tid-\d+-)?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})`)

// state is what the entries of a folder say about the files in it and in its folders.
type state struct {
	refused error
	ended   bool            // a job of Spark has ended
	live    map[string]bool // names of the files that jobs of Databricks added and did not remove; nil without such jobs
}

// guard has the states of folders by absolute path.
type guard map[string]state

// Finished returns the error of Files for a file or a folder that is not on this machine. find returns the entries of
// a folder that match a pattern of fs.Glob. Finished reports whether a job of Spark has ended in the folder or above it.
func Finished(path string, folder bool, find func(folder, pattern string) []string) (ended bool, err error) {
	if !folder {
		path = filepath.Dir(path)
	}
	return guard{}.above(path, path, find)
}

// check returns bad input if a folder of the files, or one above it, shows that the files are not all rows of one finished
// table. All files are below root; they are all that root has if whole is true. Of the folders above root it looks at two,
// besides those whose names give columns.
func (g guard) check(root string, paths []string, whole bool) error {
	real, err := filepath.EvalSymlinks(root)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	if err == nil {
		_, err = g.above(real, real, nil)
	}
	ended := map[string]bool{} // by folder
	for _, path := range paths {
		dir, name := filepath.Join(real, Relative(root, filepath.Dir(path))), filepath.Base(path)
		if _, known := ended[dir]; !known && err == nil {
			ended[dir], err = g.above(dir, real, nil)
		}
		live := g[dir].live
		if target, bad := filepath.EvalSymlinks(filepath.Join(dir, name)); err == nil && bad == nil && target != filepath.Join(dir, name) {
			err = g.check(filepath.Dir(target), []string{target}, false)
		}
		switch {
		case err != nil:
			return err
		case live != nil && !live[name]:
			return fault.Inputf("%s: no file _committed_N lists it as current, so its job has not ended, or another one replaced it: copy the current rows to another folder, with the program that wrote them", path)
		case whole && strings.HasPrefix(strings.TrimSuffix(name, extension(name)), "tmp."):
			return fault.Inputf("%s is a file of a job that has not ended: wait for it, or delete the file", path)
		case whole && live == nil && !ended[dir] && sparkPart.MatchString(name):
			return fault.Inputf("%s: Spark wrote %s, but there is no _SUCCESS, so its job has not ended: wait for it, or create an empty file _SUCCESS if all files are there", root, Relative(root, path))
		}
	}
	return err
}

// above looks at dir and the folders above it, and reports whether a job of Spark has ended in one of them.
func (g guard) above(dir, root string, find func(folder, pattern string) []string) (ended bool, err error) {
	for left := 2; ; dir = filepath.Dir(dir) {
		if _, known := g[dir]; !known {
			g[dir] = look(dir, find)
		}
		ended = ended || g[dir].ended
		if len(dir) <= len(root) && !strings.Contains(filepath.Base(dir), "=") {
			left--
		}
		if err := g[dir].refused; err != nil || left < 0 || dir == filepath.Dir(dir) {
			return ended, err
		}
	}
}

// look returns the state of a folder. A folder that cannot be read has no entries.
func look(dir string, elsewhere func(folder, pattern string) []string) (s state) {
	find := func(pattern string) []string {
		if elsewhere != nil {
			return elsewhere(dir, pattern)
		}
		return glob(dir, pattern)
	}
	for _, sign := range signs {
		if found := find(sign[0]); len(found) > 0 {
			s.refused = fault.Inputf("%s belongs to %s", filepath.Join(dir, found[0]), sign[1])
		}
	}
	for _, name := range find("_started_*") {
		if list := "_committed_" + strings.TrimPrefix(name, "_started_"); len(find(list)) == 0 {
			s.refused = fault.Inputf("%s belongs to a job that has not ended, because there is no %s: wait for it, or delete what it wrote and run it again", filepath.Join(dir, name), list)
		}
	}
	if s.ended = len(find("_SUCCESS")) > 0; elsewhere != nil {
		return s // the lists are for the files of one folder
	}
	var removed []string
	for _, name := range find("_committed_*") {
		list, err := readList(filepath.Join(dir, name))
		if err != nil {
			s.refused = err
		}
		if s.live == nil {
			s.live = map[string]bool{}
		}
		for _, file := range list.Added {
			s.live[file] = true
		}
		removed = append(removed, list.Removed...)
	}
	for _, file := range removed {
		delete(s.live, file)
	}
	return s
}

// readList reads the list of the files that a job of Databricks added and removed.
func readList(path string) (list struct{ Added, Removed []string }, err error) {
	text, err := files.Small(path, 64, "the list of the files of a job")
	if err == nil && json.Unmarshal(text, &list) != nil {
		err = fault.Inputf("%s: expected a JSON object with the lists added and removed", path)
	}
	return list, err
}

// Runs returns the folders in which Spark wrote the files in several jobs, in the order of the files.
func Runs(paths []string) (several []string) {
	jobs := map[string]string{} // UUID of the first job by folder, and "" after another
	for _, path := range paths {
		dir, m := filepath.Dir(path), sparkPart.FindStringSubmatch(filepath.Base(path))
		if m == nil {
			continue
		}
		if id, there := jobs[dir]; !there {
			jobs[dir] = m[1]
		} else if id != "" && id != m[1] {
			jobs[dir], several = "", append(several, dir)
		}
	}
	return several
}
