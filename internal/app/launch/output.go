package launch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"shaver/internal/app/cli"
	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/scores"
)

// CheckOut returns an error unless the job may write its scores and its report, and without
// NATS keep its progress next to them. If these are of the same job, a job with AnyKernel gets
// their kernel. Run calls it first. A caller with several jobs calls
// it for all of them before it runs the first.
func (j *Job) CheckOut() error {
	spec := j.spec()
	if err := j.keepKernel(spec); err != nil {
		return err
	}
	var failed error
	other := func(path string) string {
		found, err := scores.ReadHead(path)
		if err != nil {
			return "is not a scores file that this program reads"
		}
		own, err := spec()
		if err != nil {
			failed = err
			return ""
		}
		return otherJob("scores", "finished", &found.Spec, own, path)
	}
	err := j.Outputs.Check("--out", j.Out, other, ".arrow")
	if err == nil {
		err = j.Outputs.Check("--out", ReportPath(j.Out), cli.Unless(isReport, "the report of a job"))
	}
	if err == nil {
		err = failed
	}
	if _, stat := os.Lstat(j.folder()); err != nil || j.NATS != "" || errors.Is(stat, fs.ErrNotExist) {
		return err
	}
	own, err := spec()
	if err != nil {
		return err
	}
	return j.checkFolder(own)
}

// otherJob returns an obstacle unless the two jobs are the same. what belongs to the job
// found, and event is what happened to it when the file at path was last changed.
func otherJob(what, event string, found, own *job.Spec, path string) string {
	if found.ID() == own.ID() {
		return ""
	}
	var differ []string
	for _, d := range job.Differences(found, own) {
		differ = append(differ, fmt.Sprintf("%s %s, not %s", d.Name, d.A, d.B))
	}
	text := fmt.Sprintf("has the %s of another job, %s", what, found.ID())
	if len(differ) > 0 {
		text += " (" + strings.Join(differ, "; ") + ")"
	}
	if info, err := os.Stat(path); err == nil {
		text += ", " + event + " " + info.ModTime().Format(time.DateTime)
	}
	return text
}

// The sizes of the largest report, and of the largest specification of a job, in MiB.
const (
	mostReport = 64
	mostSpec   = 1
)

// isReport reports whether the file at path is a JobReport.
func isReport(path string) bool {
	text, err := files.Small(path, mostReport, "the report of a job")
	var r JobReport
	return err == nil && json.Unmarshal(text, &r) == nil && r.Job != "" && r.Digests != (Digests{})
}

// folder returns the path of the hidden folder .NAME.job next to the scores, which holds
// the progress of the job if it has no NATS.
func (j *Job) folder() string {
	return filepath.Join(filepath.Dir(j.Out), "."+strings.TrimSuffix(filepath.Base(ReportPath(j.Out)), ".json"))
}

// The files in a job's folder, besides those of the server. The first contains the job's
// id, and the second its specification.
const (
	ownerFile = "job"
	specFile  = "spec.json"
)

// checkFolder returns an error if the job's folder has the progress of another job, or
// files that are not shaver's.
func (j *Job) checkFolder(own *job.Spec) error {
	dir := j.folder()
	owner, err := files.Small(filepath.Join(dir, ownerFile), mostSpec, "the id of a job")
	if j.Outputs.Force || err == nil && string(owner) == own.ID() {
		return nil
	}
	if err == nil {
		text := fmt.Sprintf("has the progress of another job, %s", owner)
		var found job.Spec
		path := filepath.Join(dir, specFile)
		if data, err := files.Small(path, mostSpec, "the specification of a job"); err == nil && json.Unmarshal(data, &found) == nil && found.ID() == string(owner) {
			text = otherJob("progress", "begun", &found, own, path)
		}
		return fault.Usagef("cannot write %s: %s %s; run that job again, name another file, or give --force to discard its progress", j.Out, dir, text)
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot write %s: %w", j.Out, err)
	}
	for _, e := range entries { // without an owner, as after an interrupted discard
		name := e.Name()
		if name != "jetstream" && name != specFile && !atomicfile.Leftover(name, ownerFile) && !atomicfile.Leftover(name, specFile) {
			return fault.Usagef("cannot write %s: the folder %s for the job's progress has other files, such as %s; name another file, or give --force to delete the folder", j.Out, dir, name)
		}
	}
	return nil
}
