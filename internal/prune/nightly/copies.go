package nightly

import (
	"path/filepath"
	"slices"
	"strings"
)

// Copies says which files of a folder of results are needed to run the next night, for a
// program that keeps the folder in another place.
type Copies struct {
	needed map[string]bool // nights whose files are all needed
	newest string
}

// Rank returns the order in which files of a folder of results may be written to another place,
// so that a process which dies at any moment leaves a folder from which the next one can
// continue. Files that stay here have a negative rank.
func Rank(name string) int {
	parts := strings.Split(name, "/")
	hidden := slices.ContainsFunc(parts, func(part string) bool { return strings.HasPrefix(part, ".") })
	switch {
	case hidden:
		return -1
	case len(parts) == 3 && parts[0] == nightsFolder && parts[2] == RecordFile:
		return 1
	case len(parts) > 2 && parts[0] == nightsFolder:
		return 0
	case name == currentFile:
		return 2
	case name == historyFile || name == historyPage:
		return 3
	}
	return -1
}

// Pointer reports whether a file of a folder of results says which night is published or
// which have ended.
func Pointer(name string) bool { return name == currentFile || name == historyFile }

// First returns the files that ReadCopies needs, and the files that every night needs. Names
// are relative to the folder and separated by slashes.
func First(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return Rank(name) == 0 && !strings.HasSuffix(name, "/"+ReportFile) || Rank(name) < 0
	})
}

// Leftover returns the files of nights that have no record, because a process died when it
// wrote or deleted them.
func Leftover(names []string) []string {
	whole := map[string]bool{}
	for _, name := range names {
		if Rank(name) == 1 {
			whole[nightOf(name)] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return nightOf(name) == "" || whole[nightOf(name)] })
}

// nightOf returns the name of the night that a file belongs to, or "".
func nightOf(name string) string {
	if parts := strings.Split(name, "/"); len(parts) > 2 && parts[0] == nightsFolder {
		return parts[1]
	}
	return ""
}

// ReadCopies reads the records in a folder of results.
func ReadCopies(out string) (*Copies, error) {
	c := &Copies{needed: map[string]bool{}}
	current, err := ReadCurrent(out)
	if err != nil {
		return nil, err
	}
	if current != nil {
		c.needed[current.Night] = true
	}
	records, err := readRecords(filepath.Join(out, nightsFolder))
	if err != nil {
		return nil, err
	}
	for _, n := range records {
		c.newest = n.Night
		if !n.finished() {
			c.needed[n.Night] = true
			if n.Previous != nil {
				c.needed[n.Previous.Night] = true
			}
		}
	}
	return c, nil
}

// Needs reports whether the next night needs a file.
func (c *Copies) Needs(name string) bool { return c.needed[nightOf(name)] }

// Drops reports whether a file that was not copied is one that retention deletes: the files of
// a night that is gone, and the copies of checkpoints of all nights except the newest and those that are needed.
func (c *Copies) Drops(name string, exists func(night string) bool) bool {
	night := nightOf(name)
	if night == "" {
		return false
	}
	return !exists(night) || night != c.newest && !c.needed[night] && strings.HasPrefix(name, nightsFolder+"/"+night+"/"+modelFolder+"/")
}

// Days returns the names of the days that unfinished nights in a folder of results need.
func Days(out string) ([]string, error) {
	records, err := readRecords(filepath.Join(out, nightsFolder))
	var days []string
	for _, n := range records {
		for _, d := range n.Days {
			if !n.finished() {
				days = append(days, d.Name)
			}
		}
	}
	return days, err
}
