package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"shaver/internal/jobs/job"
)

// Cleanup deletes everything that is stored for the job: tasks, results, quarantines,
// blobs, keys, and its models if no other job uses them. The caller calls Claim.End first.
//
// If the job's specification is lost, for example because a file of the only node was
// damaged, its models are unknown. Cleanup then deletes all models that no job uses.
//
// Workers may still be computing for the job. After a worker has stored a result, it
// checks that the job's specification is still stored, and otherwise deletes the result.
// Cleanup therefore deletes everything once more after the specification. The record of
// the job's leader is deleted last, because an unfinished cleanup is found by that
// record.
func (b *Bus) Cleanup(ctx context.Context, jobID string) error {
	if err := CheckJob(jobID); err != nil {
		return err
	}
	what := "clean up job " + jobID
	if err := b.clearJob(ctx, what, jobID); err != nil {
		return err
	}
	spec, err := b.key(ctx, what, jobPrefix+jobID+".spec")
	if err != nil {
		return err
	}
	if err := b.purge(ctx, what, jobStream, jobPrefix+jobID+".spec"); err != nil {
		return err
	}
	if err := b.clearJob(ctx, what, jobID); err != nil {
		return err
	}
	var submitted job.Submission
	if spec != nil && json.Unmarshal(spec.Data, &submitted) == nil {
		for _, model := range modelsOf(&submitted.Spec) {
			if err := b.dropModel(ctx, what, model); err != nil {
				return err
			}
		}
	} else if err := b.dropModels(ctx, what); err != nil {
		return err
	}
	keys := []string{".progress", ".cancel", ".checkpoint"}
	if cancelled, _, err := b.cancellation(ctx, jobID); err != nil {
		return err
	} else if cancelled != nil && cancelled.Run != "" {
		keys = []string{".progress", ".checkpoint"}
	}
	for _, key := range keys {
		if err := b.purge(ctx, what, jobStream, jobPrefix+jobID+key); err != nil {
			return err
		}
	}
	left, err := b.subjects(ctx, what, jobStream, jobPrefix+jobID+".*")
	delete(left, jobPrefix+jobID+".cancel")
	if err == nil && len(left) > 0 {
		_, err = b.fix(ctx, what)
	}
	return err
}

// fix empties the stream of the jobs if the server can read none of its messages. A server
// whose files were damaged may list messages that it can neither read nor delete one by one. If
// other messages are readable, except the records of jobs that have ended, fix deletes nothing and returns the subjects of those that are
// not. Messages that are stored while fix runs stay.
func (b *Bus) fix(ctx context.Context, what string) (unreadable []string, err error) {
	var state jetstream.StreamState
	err = b.call(ctx, what, func(ctx context.Context) error {
		s, err := b.stream(ctx, jobStream)
		if err != nil {
			return err
		}
		info, err := s.Info(ctx, jetstream.WithSubjectFilter(">"))
		if err == nil {
			state = info.State
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for on := range state.Subjects {
		if _, err := b.last(ctx, what, jobStream, on); errors.Is(err, jetstream.ErrMsgNotFound) {
			unreadable = append(unreadable, on)
		} else if err != nil {
			return nil, err
		}
	}
	if len(unreadable) == 0 {
		return nil, nil
	}
	readable := len(unreadable) < len(state.Subjects)
	if _, kept := state.Subjects[endedKey]; kept && !slices.Contains(unreadable, endedKey) { // a record that may go
		readable = len(unreadable) < len(state.Subjects)-1
	}
	held, err := b.subjects(ctx, what, jobStream, ">")
	if err != nil {
		return nil, err
	}
	unreadable = slices.DeleteFunc(unreadable, func(on string) bool { return held[on] == 0 }) // deleted in the meantime
	slices.Sort(unreadable)
	switch {
	case len(unreadable) == 0:
		return nil, nil
	case readable:
		b.log.Warn("a file of the server is damaged: it can neither read nor delete some records, which a coordinator deletes when no other job is stored", zap.Strings("records", unreadable))
		return unreadable, nil
	}
	b.log.Warn("a file of the server is damaged: deleting records that it cannot read", zap.Strings("records", unreadable))
	return nil, b.call(ctx, what, func(ctx context.Context) error {
		s, err := b.stream(ctx, jobStream)
		if err != nil {
			return err
		}
		return s.Purge(ctx, jetstream.WithPurgeSequence(state.LastSeq+1))
	})
}

// missesBeforeFix is how often the server refuses a record because another one is stored, and then cannot
// read the other one, until its files are considered damaged.
const missesBeforeFix = 4

// missed returns the error of a request that the server refused because a record is stored that
// it cannot read. misses is the number of such answers before. The record may have been deleted
// in between, so the request is repeated.
func (b *Bus) missed(ctx context.Context, what, on string, misses *int) error {
	*misses++
	if *misses%missesBeforeFix == 0 {
		unreadable, err := b.fix(ctx, what)
		if err != nil {
			return err
		}
		if slices.Contains(unreadable, on) {
			return fmt.Errorf("the server cannot read its record %s, because a file of its stream %s is damaged, and refuses a new one: wait until no other job is stored, or stop the server, delete the folder of the stream and start the server", on, jobStream)
		}
	}
	return errAgain{jetstream.ErrMsgNotFound}
}

// Settle returns when no cleanup of the job is in progress. It waits a while for another
// program's cleanup to end, and otherwise completes that cleanup itself.
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
			return b.pauser("clean up job "+jobID).ended(ctx, nil)
		}
	}
	if _, err := b.Claim(ctx, jobID); err != nil {
		return err
	}
	return b.Cleanup(ctx, jobID)
}

// modelsOf returns the digests of the models that the job's tasks need.
func modelsOf(spec *job.Spec) []string {
	models := []string{spec.Model}
	if spec.Previous != nil && spec.Previous.Model != spec.Model {
		models = append(models, spec.Previous.Model)
	}
	return models
}

// Leave deletes what a fenced coordinator may have stored for the job and its models after
// another coordinator ended the job. If the job is still running, Leave deletes nothing,
// because everything is deleted when the job ends.
func (b *Bus) Leave(ctx context.Context, spec *job.Spec) error {
	jobID := spec.ID()
	what := "leave job " + jobID
	if err := b.Settle(ctx, jobID); err != nil {
		return err
	}
	jobs, _, err := b.liveJobs(ctx, what)
	if err != nil || jobs[jobID] {
		return err
	}
	if err := b.clearJob(ctx, what, jobID); err != nil {
		return err
	}
	err = b.purge(ctx, what, jobStream, jobPrefix+jobID+".progress")
	for _, model := range modelsOf(spec) {
		err = errors.Join(err, b.dropModel(ctx, what, model))
	}
	return err
}

// settling is how long Settle waits for another program's cleanup.
const settling = 4 * time.Second

// clearJob deletes the job's messages and blobs.
func (b *Bus) clearJob(ctx context.Context, what, jobID string) error {
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
	return b.purgeAll(ctx, what, blobStream, chunkPrefix+jobID+".*") // chunks of programs that died before they named them
}

// purgeAll deletes the messages of every subject that matches filter, one subject at a
// time.
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

// dropModel deletes a model that no stored job uses, and the remains of interrupted
// uploads of it.
func (b *Bus) dropModel(ctx context.Context, what, digest string) error {
	_, models, err := b.liveJobs(ctx, what)
	name := ModelName(digest)
	if err != nil || models[digest] || !isName(name) {
		return err
	}
	if err := b.delete(ctx, name); err != nil {
		return err
	}
	return b.purgeAll(ctx, what, blobStream, chunkPrefix+ownerOf(name)+".*")
}

// dropModels deletes all models that no stored job uses.
func (b *Bus) dropModels(ctx context.Context, what string) error {
	// The models are listed before the jobs. A job stores its specification before its
	// model, so a model that no job listed later uses is garbage.
	names, err := b.blobs(ctx, what)
	if err != nil {
		return err
	}
	for _, name := range names {
		if digest, ok := strings.CutPrefix(name, "model/"); ok {
			if err := b.dropModel(ctx, what, digest); err != nil {
				return err
			}
		}
	}
	return nil
}

// liveJobs returns the jobs that have a specification or a leader, and the digests of their
// models.
func (b *Bus) liveJobs(ctx context.Context, what string) (jobs, models map[string]bool, err error) {
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
			for _, model := range modelsOf(&submitted.Spec) {
				models[model] = true
			}
		}
	}
	return jobs, models, nil
}

// unfinished is the age at which a cleanup is considered abandoned.
const unfinished = time.Minute

// Sweep deletes the remains of jobs that are over: those of interrupted cleanups, and
// results that a dying worker stored after the cleanup. Coordinators call it when they
// start.
func (b *Bus) Sweep(ctx context.Context) error {
	const what = "sweep"
	// The owners are listed before the jobs. A job stores its specification before
	// anything else, so an owner that is not among the jobs listed later is garbage.
	owners, models, err := b.owners(ctx)
	if err != nil {
		return err
	}
	jobs, used, err := b.liveJobs(ctx, what)
	if err != nil {
		return err
	}
	for id := range jobs {
		lead, msg, err := b.lead(ctx, id)
		if err == nil && lead == nil {
			if err := b.sweepUnreadable(ctx, what, id); err != nil {
				return err
			}
		}
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
		if err := errors.Join(b.clearJob(ctx, what, id), b.purgeAll(ctx, what, jobStream, jobPrefix+id+".*")); err != nil {
			return err
		}
	}
	return nil
}

// sweepUnreadable fixes the stream of the jobs if the records of a job without a leader cannot be read.
func (b *Bus) sweepUnreadable(ctx context.Context, what, jobID string) error {
	open, err := b.IsOpen(ctx, jobID)
	if err == nil && !open {
		_, err = b.fix(ctx, what)
	}
	return err
}

// owners returns every job id and model prefix that owns anything on the bus, and the
// digests of the stored models.
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
			id, key, _ := strings.Cut(rest, ".")
			if !isJob(id) {
				continue
			}
			if of.stream == jobStream && key == "cancel" {
				if record, age, err := b.cancellation(ctx, id); err != nil {
					return nil, nil, err
				} else if record != nil && record.Run != "" && age < keepCancellation {
					continue
				}
			}
			owners[id] = true
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

// Stored returns the number of messages of each subject, over all streams, without the records of jobs that have
// ended. The map is empty while no job is stored.
func (b *Bus) Stored(ctx context.Context) (map[string]uint64, error) {
	all := map[string]uint64{}
	for _, stream := range []string{tasksStream, resultsStream, quarantineStream, blobStream, jobStream} {
		held, err := b.subjects(ctx, "list what is stored", stream, ">")
		if err != nil {
			return nil, err
		}
		maps.Copy(all, held)
	}
	delete(all, endedKey)
	return all, nil
}
