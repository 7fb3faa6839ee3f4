package bus

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"shaver/internal/job"
)

// Cleanup deletes everything of the job: tasks, results, quarantines, blobs,
// keys, and the model if no other job has it. Claim.End comes before.
//
// Workers may still be computing for it. They look whether the job has its
// specification after they have stored a result, and take that back if not; so
// everything is deleted once more after the specification. The record of who
// leads the job goes last: by it a cleanup that did not finish is found.
func (b *Bus) Cleanup(ctx context.Context, jobID string) error {
	if err := checkJob(jobID); err != nil {
		return err
	}
	what := "clean up job " + jobID
	if err := b.clear(ctx, what, jobID); err != nil {
		return err
	}
	spec, err := b.key(ctx, what, jobPrefix+jobID+".spec")
	if err != nil {
		return err
	}
	if err := b.purge(ctx, what, jobStream, jobPrefix+jobID+".spec"); err != nil {
		return err
	}
	if err := b.clear(ctx, what, jobID); err != nil {
		return err
	}
	var submitted job.Submission
	if spec != nil && json.Unmarshal(spec.Data, &submitted) == nil {
		if err := b.dropModel(ctx, what, submitted.Spec.Model); err != nil {
			return err
		}
	}
	for _, key := range []string{".progress", ".cancel", ".checkpoint"} {
		if err := b.purge(ctx, what, jobStream, jobPrefix+jobID+key); err != nil {
			return err
		}
	}
	return nil
}

// Settle returns when no cleanup of the job is going on: it waits for one that
// makes headway, and finishes one that was cut off.
func (b *Bus) Settle(ctx context.Context, jobID string) error {
	for begun := time.Now(); ; {
		lead, _, err := b.lead(ctx, jobID)
		if err != nil || lead == nil || !lead.Ending {
			return err
		}
		if time.Since(begun) > settling {
			break
		}
		select {
		case <-time.After(settling / 20):
		case <-ctx.Done():
			return ended(ctx, "clean up job "+jobID, nil)
		}
	}
	if _, err := b.Claim(ctx, jobID); err != nil {
		return err
	}
	return b.Cleanup(ctx, jobID)
}

// Leave deletes what a coordinator that was fenced may have stored of the job, and
// of its model, after another one ended it. A job that goes on keeps everything: it
// is cleaned up at its end.
func (b *Bus) Leave(ctx context.Context, jobID, model string) error {
	what := "leave job " + jobID
	if err := b.Settle(ctx, jobID); err != nil {
		return err
	}
	jobs, _, err := b.living(ctx, what)
	if err != nil || jobs[jobID] {
		return err
	}
	if err := b.clear(ctx, what, jobID); err != nil {
		return err
	}
	return errors.Join(b.dropModel(ctx, what, model), b.purge(ctx, what, jobStream, jobPrefix+jobID+".progress"))
}

// settling is how long another's cleanup is waited for.
const settling = 4 * time.Second

// clear deletes the job's messages and blobs.
func (b *Bus) clear(ctx context.Context, what, jobID string) error {
	for _, of := range []struct{ stream, prefix string }{
		{tasksStream, taskPrefix + "*."}, {resultsStream, resultPrefix}, {quarantineStream, quarantinePrefix},
	} {
		if err := b.purgeAll(ctx, what, of.stream, of.prefix+jobID+".*"); err != nil {
			return err
		}
	}
	names, err := b.blobs(ctx, what)
	if err != nil {
		return err
	}
	for _, name := range names {
		if ownerOf(name) == jobID && !strings.HasPrefix(name, "model/") {
			if err := b.delete(ctx, name); err != nil {
				return err
			}
		}
	}
	return b.purgeAll(ctx, what, blobStream, chunkPrefix+jobID+".*") // of those who died before they named them
}

// purgeAll deletes what is stored under filter, by exact subject.
func (b *Bus) purgeAll(ctx context.Context, what, stream, filter string) error {
	held, err := b.subjects(ctx, what, stream, filter)
	if err != nil {
		return err
	}
	for _, on := range slices.Sorted(maps.Keys(held)) {
		if err := b.purge(ctx, what, stream, on); err != nil {
			return err
		}
	}
	return nil
}

// dropModel deletes a model that no stored job has, and what is left of
// interrupted uploads of it.
func (b *Bus) dropModel(ctx context.Context, what, digest string) error {
	_, models, err := b.living(ctx, what)
	name := ModelName(digest)
	if err != nil || models[digest] || !isName(name) {
		return err
	}
	if err := b.delete(ctx, name); err != nil {
		return err
	}
	return b.purgeAll(ctx, what, blobStream, chunkPrefix+ownerOf(name)+".*")
}

// living returns the jobs that have a specification or a leader, and the digests
// of their models.
func (b *Bus) living(ctx context.Context, what string) (jobs, models map[string]bool, err error) {
	held, err := b.subjects(ctx, what, jobStream, jobPrefix+">")
	if err != nil {
		return nil, nil, err
	}
	jobs, models = map[string]bool{}, map[string]bool{}
	for on := range held {
		id, key, _ := strings.Cut(strings.TrimPrefix(on, jobPrefix), ".")
		if !isJob(id) || key != "spec" && key != "checkpoint" {
			continue
		}
		jobs[id] = true
		if key != "spec" {
			continue
		}
		msg, err := b.key(ctx, what, on)
		if err != nil {
			return nil, nil, err
		}
		var submitted job.Submission
		if msg != nil && json.Unmarshal(msg.Data, &submitted) == nil {
			models[submitted.Spec.Model] = true
		}
	}
	return jobs, models, nil
}

// unfinished is how old a cleanup is that nobody is busy with any more.
const unfinished = time.Minute

// Sweep deletes what is stored of jobs that are over: of cleanups that were cut
// off, and of workers that died at the wrong moment after them. Coordinators do
// it when they begin.
func (b *Bus) Sweep(ctx context.Context) error {
	const what = "sweep"
	// What is found before the jobs are listed is of one of these, or garbage: a
	// job has its specification before anything else.
	owners, models, err := b.owners(ctx)
	if err != nil {
		return err
	}
	jobs, used, err := b.living(ctx, what)
	if err != nil {
		return err
	}
	for id := range jobs {
		lead, msg, err := b.lead(ctx, id)
		if err != nil || lead == nil || !lead.Ending || time.Since(msg.Time) < unfinished {
			continue
		}
		if err := b.Cleanup(ctx, id); err != nil {
			return err
		}
	}
	prefixes := map[string]bool{}
	for digest := range used {
		prefixes[ownerOf(ModelName(digest))] = true
	}
	for digest := range models {
		if !used[digest] {
			if err := b.delete(ctx, ModelName(digest)); err != nil {
				return err
			}
		}
	}
	for id := range owners {
		if jobs[id] || prefixes[id] {
			continue
		}
		if err := errors.Join(b.clear(ctx, what, id), b.purgeAll(ctx, what, jobStream, jobPrefix+id+".*")); err != nil {
			return err
		}
	}
	return nil
}

// owners returns all that own anything on the bus, jobs or prefixes of models,
// and the digests of the stored models.
func (b *Bus) owners(ctx context.Context) (owners, models map[string]bool, err error) {
	const what = "sweep"
	owners, models = map[string]bool{}, map[string]bool{}
	for _, of := range []struct{ stream, prefix, filter string }{
		{tasksStream, taskPrefix, taskPrefix + ">"}, {resultsStream, resultPrefix, resultPrefix + ">"},
		{quarantineStream, quarantinePrefix, quarantinePrefix + ">"}, {blobStream, chunkPrefix, chunkPrefix + ">"},
		{jobStream, jobPrefix, jobPrefix + ">"},
	} {
		held, err := b.subjects(ctx, what, of.stream, of.filter)
		if err != nil {
			return nil, nil, err
		}
		for on := range held {
			rest := strings.TrimPrefix(on, of.prefix)
			if of.stream == tasksStream {
				_, rest, _ = strings.Cut(rest, ".")
			}
			if id, _, _ := strings.Cut(rest, "."); isJob(id) {
				owners[id] = true
			}
		}
	}
	names, err := b.blobs(ctx, what)
	for _, name := range names {
		if digest, ok := strings.CutPrefix(name, "model/"); ok {
			models[digest] = true
		} else {
			owners[ownerOf(name)] = true
		}
	}
	return owners, models, err
}

// Stored returns the subjects that hold messages, of all streams, and how many.
// There is none while no job is stored.
func (b *Bus) Stored(ctx context.Context) (map[string]uint64, error) {
	all := map[string]uint64{}
	for _, stream := range []string{tasksStream, resultsStream, quarantineStream, blobStream, jobStream} {
		held, err := b.subjects(ctx, "list what is stored", stream, ">")
		if err != nil {
			return nil, err
		}
		maps.Copy(all, held)
	}
	return all, nil
}
