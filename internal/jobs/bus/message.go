package bus

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/jobs/job"
)

// Subjects are prefix + job + "." + shard. A task's subject has the name of a queue and a
// dot before the job, so that a worker asks only for tasks that it can compute.
const (
	taskPrefix       = "shaver.task."
	resultPrefix     = "shaver.result."
	quarantinePrefix = "shaver.quarantine."
)

// maxText bounds the free text in a message, in bytes.
const maxText = 4096

func subject(prefix, jobID string, shard int) string {
	return prefix + jobID + "." + strconv.Itoa(shard)
}

// parseSubject is the inverse of subject. It accepts no other spelling.
func parseSubject(prefix, s string) (jobID string, shard int, ok bool) {
	rest, ok := strings.CutPrefix(s, prefix)
	if !ok {
		return "", 0, false
	}
	jobID, digits, ok := strings.Cut(rest, ".")
	if !ok || !isJob(jobID) {
		return "", 0, false
	}
	shard, err := strconv.Atoi(digits)
	return jobID, shard, err == nil && isShard(shard) && strconv.Itoa(shard) == digits
}

// QueueName names the queue of the tasks for workers with the kernel and the protocol. It is
// a token of the tasks' subjects, and the end of the consumer's name. Builds of protocol 0
// call the queue of a kernel by the kernel's name alone.
func QueueName(kernel string, protocol int) string {
	if protocol == 0 {
		return kernel
	}
	return fmt.Sprintf("%s-p%d", kernel, protocol)
}

// parseQueue is the inverse of QueueName.
func parseQueue(queue string) (kernel string, protocol int) {
	if at := strings.LastIndex(queue, "-p"); at >= 0 {
		if protocol, err := strconv.Atoi(queue[at+2:]); err == nil && QueueName(queue[:at], protocol) == queue {
			return queue[:at], protocol
		}
	}
	return queue, 0
}

// ownQueue returns the name of the queue for workers of this build.
func ownQueue(kernel string) string { return QueueName(kernel, job.Protocol) }

// tasksOf returns the prefix of the subjects of the kernel's tasks.
func tasksOf(kernel string) string { return taskPrefix + ownQueue(kernel) + "." }

func taskSubject(kernel, jobID string, shard int) string {
	return subject(tasksOf(kernel), jobID, shard)
}

// parseTask is the inverse of taskSubject, for tasks of all protocols.
func parseTask(s string) (queue, jobID string, shard int, ok bool) {
	rest, ok := strings.CutPrefix(s, taskPrefix)
	queue, rest, found := strings.Cut(rest, ".")
	if !ok || !found || !isKernel(queue) {
		return "", "", 0, false
	}
	jobID, shard, ok = parseSubject("", rest)
	return queue, jobID, shard, ok
}

// isKernel reports whether name is valid as the kernel part of a subject.
func isKernel(name string) bool {
	return name != "" && len(name) <= 64 && strings.Trim(name, "0123456789abcdefghijklmnopqrstuvwxyz-") == ""
}

func isHex(s string, digits int) bool {
	return len(s) == digits && strings.Trim(s, "0123456789abcdef") == ""
}

func isJob(id string) bool { return isHex(id, 20) }

// IsJobPrefix reports whether s is the id of a job or the beginning of one.
func IsJobPrefix(s string) bool { return len(s) > 0 && len(s) <= 20 && isHex(s, len(s)) }

func isShard(shard int) bool { return shard >= 0 && shard <= math.MaxInt32 }

// CheckJob returns an error if id is not a job's. A wildcard, for example, must not get
// into a subject.
func CheckJob(id string) error {
	if !isJob(id) {
		return fault.Inputf("job id %q: expected 20 hexadecimal digits", id)
	}
	return nil
}

// The names of blobs. Each blob is written once.

// ModelName names a model's file by the SHA-256 of its bytes.
func ModelName(sha256 string) string { return "model/" + sha256 }

// BaselineName names a job's baseline.
func BaselineName(jobID string) string { return "baseline/" + jobID }

// PreviousBaselineName names the baseline of the previous model in a paired job.
func PreviousBaselineName(jobID string) string { return BaselineName(jobID) + "/previous" }

// CheckpointName names a checkpoint that the coordinator of the given epoch wrote.
func CheckpointName(jobID string, epoch, number int64) string {
	return fmt.Sprintf("checkpoint/%s/%d/%d", jobID, epoch, number)
}

// ShardName names a job's shard.
func ShardName(jobID string, shard int) string { return fmt.Sprintf("shard/%s/%d", jobID, shard) }

// MaskName names the mask of a round of a path.
func MaskName(jobID string, round int) string { return fmt.Sprintf("mask/%s/%d", jobID, round) }

// PartialName names the partial of one attempt at a task. See Delivery.Attempt.
func PartialName(jobID string, shard int, attempt string) string {
	return fmt.Sprintf("partial/%s/%d/%s", jobID, shard, attempt)
}

// RangeName names the blob of a range of a partial or a checkpoint. Range 0 of a partial has
// the name of the partial.
func RangeName(name string, i int) string {
	if i == 0 && strings.HasPrefix(name, "partial/") {
		return name
	}
	return fmt.Sprintf("%s/%d", name, i)
}

// ownerDigits is the length of the owner in the subjects of a blob's chunks: a whole job
// id, or the first digits of a model's digest.
const ownerDigits = 20

// ownerOf returns the owner of a blob, which is the job's id or the first digits of the
// model's digest.
func ownerOf(name string) string {
	_, rest, _ := strings.Cut(name, "/")
	return rest[:min(ownerDigits, len(rest))]
}

// isName reports whether one of the functions above can return this name.
func isName(name string) bool {
	kind, rest, _ := strings.Cut(name, "/")
	switch kind {
	case "model":
		return isHex(rest, 64)
	case "baseline":
		return isJob(strings.TrimSuffix(rest, "/previous"))
	}
	jobID, rest, _ := strings.Cut(rest, "/")
	switch kind {
	case "shard", "mask":
		_, _, ok := parseSubject("", jobID+"."+rest)
		return ok
	case "partial":
		digits, attempt, _ := strings.Cut(rest, "/")
		attempt, i, ranged := strings.Cut(attempt, "/")
		_, _, ok := parseSubject("", jobID+"."+digits)
		return ok && isAttempt(attempt) && (!ranged || isNumber(i) && i != "0")
	case "checkpoint":
		epoch, number, _ := strings.Cut(rest, "/")
		number, i, ranged := strings.Cut(number, "/")
		return isJob(jobID) && isNumber(epoch) && isNumber(number) && (!ranged || isNumber(i))
	}
	return false
}

func isNumber(s string) bool {
	n, err := strconv.ParseInt(s, 10, 64)
	return err == nil && n >= 0 && strconv.FormatInt(n, 10) == s
}

func isAttempt(s string) bool {
	return s != "" && len(s) <= 64 &&
		strings.Trim(s, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

func checkBlob(b job.Blob, ofName bool, want string) error {
	switch {
	case !ofName:
		return fmt.Errorf("blob named %q, expected %s", b.Name, want)
	case b.Bytes < 0:
		return fmt.Errorf("blob %s: negative size %d", b.Name, b.Bytes)
	case !isHex(b.SHA256, 64):
		return fmt.Errorf("blob %s: invalid SHA-256 %q", b.Name, b.SHA256)
	}
	return nil
}

func checkIdentity(jobID string, shard int) error {
	if !isJob(jobID) {
		return fmt.Errorf("invalid job id %q", jobID)
	}
	if !isShard(shard) {
		return fmt.Errorf("invalid shard number %d", shard)
	}
	return nil
}

func checkText(name, text string) error {
	if len(text) > maxText {
		return fmt.Errorf("%s: %d bytes, expected at most %d", name, len(text), maxText)
	}
	return nil
}

func checkTask(t *job.Task) error {
	if t.Protocol != job.Protocol {
		return fmt.Errorf("protocol %d, expected %d", t.Protocol, job.Protocol)
	}
	if t.Spec.Version != job.SpecVersion {
		return fmt.Errorf("specification version %d, expected %d", t.Spec.Version, job.SpecVersion)
	}
	if revision := t.Spec.Traits().Revision; t.Spec.Revision != revision {
		return fmt.Errorf("revision %d of the estimator, expected %d", t.Spec.Revision, revision)
	}
	if t.Rows < 1 {
		return fmt.Errorf("%d rows, expected at least 1", t.Rows)
	}
	if t.Ranges < 0 || t.Ranges > job.MaxRanges {
		return fmt.Errorf("%d ranges, expected 0 to %d", t.Ranges, job.MaxRanges)
	}
	if err := t.Spec.Loss.Check(); err != nil {
		return err
	}
	if !isKernel(t.Spec.Kernel) {
		return fmt.Errorf("invalid kernel name %q", t.Spec.Kernel)
	}
	if id := t.Spec.ID(); id != t.Job {
		return fmt.Errorf("the specification belongs to job %s, but the task belongs to job %q", id, t.Job)
	}
	return cmp.Or(
		checkIdentity(t.Job, t.Shard),
		checkVerify(t),
		checkRows(t),
		checkBlob(t.Model, t.Model.Name == ModelName(t.Spec.Model), ModelName(t.Spec.Model)),
		checkBlob(t.Baseline, t.Baseline.Name == BaselineName(t.Job), BaselineName(t.Job)),
		checkPrevious(t),
		checkPath(t))
}

// checkPath checks what a task of a path has, and that no other task has it.
func checkPath(t *job.Task) error {
	if ranks := t.Spec.Traits().Ranks; ranks != (t.Path != nil) {
		return fmt.Errorf("the task has a round of a path: %t, expected %t", t.Path != nil, ranks)
	}
	if t.Path == nil {
		return nil
	}
	if c := t.Path.Calibration; !(c.Scale > 0 && c.Scale <= math.MaxFloat64 && math.Abs(c.Offset) <= math.MaxFloat64) {
		return fmt.Errorf("calibration %+v, expected finite numbers and a scale above 0", c)
	}
	mask, prefix := t.Path.Masks, "mask/"+t.Job+"/"
	return checkBlob(mask, isName(mask.Name) && strings.HasPrefix(mask.Name, prefix), prefix+"...")
}

// checkPrevious checks that a task of a paired job names the previous model and its
// baseline, and that no other task does.
func checkPrevious(t *job.Task) error {
	m, b := t.PreviousModel, t.PreviousBaseline
	if t.Spec.Previous == nil {
		if m != (job.Blob{}) || b != (job.Blob{}) {
			return errors.New("the task names a previous model, but its job is not paired")
		}
		return nil
	}
	return cmp.Or(
		checkBlob(m, m.Name == ModelName(t.Spec.Previous.Model), ModelName(t.Spec.Previous.Model)),
		checkBlob(b, b.Name == PreviousBaselineName(t.Job) && b.SHA256 == t.Spec.Previous.Baseline, PreviousBaselineName(t.Job)))
}

// checkVerify checks what says which workers a task is for.
func checkVerify(t *job.Task) error {
	names := t.Wrong
	if v := t.Verify; v != nil {
		if !isShard(v.Shard) || v.Shard >= t.Shard || len(v.Workers) == 0 {
			return fmt.Errorf("the task computes shard %d of %d workers again, expected a shard below %d and at least one worker", v.Shard, len(v.Workers), t.Shard)
		}
		names = slices.Concat(names, v.Workers)
	}
	for _, worker := range names {
		if err := checkText("worker", worker); err != nil {
			return err
		}
	}
	return nil
}

// checkRows checks that a task refers to its rows in exactly one of the two ways.
func checkRows(t *job.Task) error {
	p, shard := &t.Place, t.Shard
	if t.Verify != nil {
		shard = t.Verify.Shard
	}
	switch {
	case *p == job.Place{}:
		return checkBlob(t.Data, t.Data.Name == ShardName(t.Job, shard), ShardName(t.Job, shard))
	case t.Data != job.Blob{}:
		return errors.New("the task has both a shard and a place to read it from")
	case p.SHA256 != "" && p.Blocks != "":
		return errors.New("the place has both the digest of the rows and that of the blocks")
	case p.Kept < 0 || p.Seen < p.Kept || !isHex(cmp.Or(p.Blocks, p.SHA256), 64) || p.Portions < 0 || p.Portions > 64 || p.Portion < 0 || p.Portion >= max(1, p.Portions) ||
		p.Parts < 0 || p.Parts > t.Spec.Parts || p.Part < 0 || p.Part >= max(1, p.Parts) || p.Take < min(1, p.Parts) || p.Take > p.Parts:
		return fmt.Errorf("invalid place %+v", *p)
	}
	return nil
}

func checkResult(r *job.Result) error {
	if r.Protocol != job.Protocol {
		return fmt.Errorf("protocol %d, expected %d", r.Protocol, job.Protocol)
	}
	if r.Rows < 1 {
		return fmt.Errorf("%d rows, expected at least 1", r.Rows)
	}
	if !(r.Seconds >= 0) || !(r.CPU >= 0) {
		return fmt.Errorf("%v seconds, %v core-seconds: expected no negative numbers", r.Seconds, r.CPU)
	}
	if len(r.Shards) == 1 || len(r.Shards) > job.MostCombined {
		return fmt.Errorf("a partial of %d shards, expected none or 2 to %d", len(r.Shards), job.MostCombined)
	}
	covered := r.Covers()
	for i, shard := range covered {
		if !isShard(shard) || i > 0 && shard <= covered[i-1] {
			return fmt.Errorf("shards %v, expected shard numbers that ascend", covered)
		}
	}
	if !slices.Contains(covered, r.Shard) {
		return fmt.Errorf("shard %d is not one of the shards %v of its partial", r.Shard, covered)
	}
	if len(r.Digests) != len(covered) {
		return fmt.Errorf("%d digests of the %d shards of a partial", len(r.Digests), len(covered))
	}
	if r.Mask != "" && !isHex(r.Mask, 64) {
		return fmt.Errorf("invalid SHA-256 %q of a mask", r.Mask)
	}
	if len(r.More) >= job.MaxRanges {
		return fmt.Errorf("a partial of %d ranges, expected at most %d", 1+len(r.More), job.MaxRanges)
	}
	for i, blob := range r.More {
		if err := checkBlob(blob, blob.Name == RangeName(r.Partial.Name, i+1), RangeName(r.Partial.Name, i+1)); err != nil {
			return err
		}
	}
	if r.Partial == (job.Blob{}) { // of a task with Verify
		if len(covered) > 1 || len(r.More) > 0 {
			return errors.New("several shards or ranges without a partial")
		}
		return cmp.Or(checkIdentity(r.Job, r.Shard), checkText("kernel", r.Kernel), checkText("worker", r.Worker))
	}
	prefix := PartialName(r.Job, covered[0], "")
	return cmp.Or(checkIdentity(r.Job, r.Shard), checkText("kernel", r.Kernel), checkText("worker", r.Worker),
		checkBlob(r.Partial, isName(r.Partial.Name) && strings.HasPrefix(r.Partial.Name, prefix) && strings.Count(r.Partial.Name, "/") == 3, prefix+"..."))
}

func checkQuarantine(q *job.Quarantine) error {
	if q.Protocol != job.Protocol {
		return fmt.Errorf("protocol %d, expected %d", q.Protocol, job.Protocol)
	}
	return cmp.Or(checkIdentity(q.Job, q.Shard), checkText("reason", q.Reason), checkText("worker", q.Worker))
}

// tidy turns free text into one line of valid UTF-8 of at most maxText bytes. Invalid
// UTF-8 would be changed by JSON and fail the check of encode.
func tidy(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "")
	}
	return text
}

func encode[T any](check func(*T) error, message T) ([]byte, error) {
	if err := check(&message); err != nil {
		return nil, err
	}
	body, err := json.Marshal(message)
	if err != nil {
		return nil, err
	}
	if _, err := decode(check, body); err != nil { // for example because of text that is not valid UTF-8
		return nil, err
	}
	return body, nil
}

// ErrProtocol means that a message was written by a build with another protocol.
var ErrProtocol = errors.New("written by a build with another protocol")

// checkProtocol returns ErrProtocol if a build with another protocol wrote the message.
func checkProtocol(body []byte) error {
	if p, ok := job.ProtocolOf(body); ok && p != job.Protocol {
		return fmt.Errorf("%w: it has protocol %d, and this build has %d", ErrProtocol, p, job.Protocol)
	}
	return nil
}

// decodeOwn is decode for the messages that state their protocol.
func decodeOwn[T any](check func(*T) error, body []byte) (message T, err error) {
	if err := checkProtocol(body); err != nil {
		return message, err
	}
	return decode(check, body)
}

// decode parses body strictly. It accepts only the exact bytes that encode writes, so it
// notices unknown, missing, duplicate and misspelt fields.
func decode[T any](check func(*T) error, body []byte) (message T, err error) {
	if err := files.Strict(body, &message); err != nil {
		return message, err
	}
	if err := check(&message); err != nil {
		return message, err
	}
	if back, err := json.Marshal(message); err != nil || !bytes.Equal(back, body) {
		return message, errors.New("not exactly as this program writes it")
	}
	return message, nil
}

func encodeTask(t job.Task) ([]byte, error) {
	t.Protocol = job.Protocol
	return encode(checkTask, t)
}

func encodeResult(r job.Result) ([]byte, error) {
	r.Protocol = job.Protocol
	r.Kernel, r.Worker = tidy(r.Kernel), tidy(r.Worker)
	return encode(checkResult, r)
}

func encodeQuarantine(q job.Quarantine) ([]byte, error) {
	q.Protocol = job.Protocol
	q.Reason, q.Worker = tidy(q.Reason), tidy(q.Worker)
	return encode(checkQuarantine, q)
}

// misplaced returns an error if a body was stored under the wrong subject.
func misplaced(on, want string) error {
	if want != on {
		return fmt.Errorf("the body belongs to %s", want)
	}
	return nil
}

func decodeTask(on string, body []byte) (job.Task, error) {
	t, err := decodeOwn(checkTask, body)
	if err == nil {
		err = misplaced(on, taskSubject(t.Spec.Kernel, t.Job, t.Shard))
	}
	return t, malformed("task", on, err)
}

func decodeResult(on string, body []byte) (job.Result, error) {
	r, err := decodeOwn(checkResult, body)
	if err == nil {
		err = misplaced(on, subject(resultPrefix, r.Job, r.Shard))
	}
	return r, malformed("result", on, err)
}

func decodeQuarantine(on string, body []byte) (job.Quarantine, error) {
	q, err := decodeOwn(checkQuarantine, body)
	if err == nil {
		err = misplaced(on, subject(quarantinePrefix, q.Job, q.Shard))
	}
	return q, malformed("quarantine", on, err)
}

func malformed(kind, on string, err error) error {
	if err == nil {
		return nil
	}
	return fault.Inputf("%s message %s: %w", kind, on, err)
}
