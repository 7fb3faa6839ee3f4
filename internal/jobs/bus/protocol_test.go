package bus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"shaver/internal/jobs/bus/embedded"
	"shaver/internal/jobs/job"
)

// as returns a message of this build as a build with the given protocol would write it.
// Builds of protocol 0 write no number.
func as(t *testing.T, protocol int, body []byte, err error) []byte {
	t.Helper()
	must(t, err)
	own := fmt.Appendf(nil, `{"protocol":%d,`, job.Protocol)
	if !bytes.HasPrefix(body, own) {
		t.Fatalf("the message %s does not begin with %s, by which other builds know it", body, own)
	}
	head := "{"
	if protocol > 0 {
		head = fmt.Sprintf(`{"protocol":%d,"new":[1],`, protocol)
	}
	return append([]byte(head), body[len(own):]...)
}

func (b *Bus) raw(t *testing.T, on string, body []byte) {
	t.Helper()
	_, err := b.js.Publish(t.Context(), on, body)
	must(t, err)
}

// foreignProtocols are those of builds before and after this one.
var foreignProtocols = []int{0, job.Protocol + 1, job.Protocol + 40}

// A result or a quarantine of another protocol is reported as such and names its partial.
// Once it is deleted, another one can be stored. Garbage is malformed and not foreign.
func TestForeignMessages(t *testing.T) {
	b := newBus(t, testQueue)
	for shard, protocol := range foreignProtocols {
		task := newTask(1, shard)
		result := newResult(task, "a")
		body, err := encodeResult(result)
		b.raw(t, subject(resultPrefix, task.Job, shard), as(t, protocol, body, err))
		e := events(t, b, task.Job, 1)[0]
		if f := e.Foreign; f == nil || e.Err != nil || e.Result != nil || e.Shard != shard || f.Aside || f.Partial != result.Partial.Name || !strings.Contains(f.Why, fmt.Sprintf("protocol %d, and this build has %d", protocol, job.Protocol)) {
			t.Errorf("result of protocol %d: %+v %+v", protocol, e, e.Foreign)
		}
		must(t, b.DeleteResult(t.Context(), task.Job, shard))
		if won, err := b.PublishResult(t.Context(), newResult(task, "b")); !won || err != nil {
			t.Errorf("a result in its place: %v, %v", won, err)
		}
		must(t, b.DeleteResult(t.Context(), task.Job, shard))

		body, err = encodeQuarantine(job.Quarantine{Job: task.Job, Shard: shard, Reason: "a reason", Input: true, Worker: "w"})
		b.raw(t, subject(quarantinePrefix, task.Job, shard), as(t, protocol, body, err))
		if e := events(t, b, task.Job, 1)[0]; e.Foreign == nil || !e.Foreign.Aside || e.Quarantine != nil || e.Shard != shard {
			t.Errorf("quarantine of protocol %d: %+v", protocol, e)
		}
		if all, err := b.Quarantined(t.Context(), task.Job); err != nil || len(all) != 1 || all[0].Reason != fmt.Sprintf("a reason (protocol %d)", protocol) {
			t.Errorf("the list has %+v, %v", all, err)
		}
		must(t, b.DeleteQuarantine(t.Context(), task.Job, shard))
	}
	id := newTask(1, 0).Job
	for _, garbage := range []string{"", "{", "[]", "7", `{"protocol":3}`, `{"protocol":-1,"job":"x"}`, `{"protocol":"2","job":"x"}`} {
		b.raw(t, subject(resultPrefix, id, 0), []byte(garbage))
		if e := events(t, b, id, 1)[0]; e.Err == nil || e.Foreign != nil {
			t.Errorf("result %q: %+v", garbage, e)
		}
		must(t, b.DeleteResult(t.Context(), id, 0))
	}
	// The partial of another shard must not be deleted.
	body, err := encodeResult(newResult(newTask(1, 5), "a"))
	b.raw(t, subject(resultPrefix, id, 4), as(t, job.Protocol+1, body, err))
	if e := events(t, b, id, 1)[0]; e.Foreign == nil || e.Foreign.Partial != "" {
		t.Errorf("a result with the partial of another shard: %+v %+v", e, e.Foreign)
	}
}

// A malformed task, or one of another protocol, is set aside as lost, so that the
// coordinator publishes it again. It is not blamed on the input.
func TestForeignTasks(t *testing.T) {
	b := newBus(t, testQueue)
	good, err := encodeTask(newTask(1, 0))
	must(t, err)
	bodies := [][]byte{nil, []byte("{"), []byte(`{"protocol":9}`), good[:len(good)-1]}
	for _, protocol := range foreignProtocols {
		bodies = append(bodies, as(t, protocol, good, nil))
	}
	for shard, body := range bodies {
		b.raw(t, taskSubject(testKernel, newTask(1, 0).Job, shard), body)
	}
	last := newTask(1, len(bodies))
	publish(t, b, last)
	if d := next(t, b); d.Task.Shard != last.Shard {
		t.Errorf("shard %d was delivered", d.Task.Shard)
	}
	for _, e := range events(t, b, last.Job, len(bodies)) {
		if q := e.Quarantine; q == nil || !q.Lost || q.Input {
			t.Errorf("shard %d: %+v", e.Shard, q)
		}
	}
}

// Workers get no tasks of another protocol's queue. The coordinator withdraws the tasks of
// its job from the queues of other kernels and protocols, and leaves other jobs alone.
func TestForeignQueues(t *testing.T) {
	b := newBus(t, testQueue)
	task := newTask(1, 0)
	body, err := encodeTask(task)
	must(t, err)
	var foreign []string
	for i, protocol := range foreignProtocols {
		on := subject(taskPrefix+QueueName(testKernel, protocol)+".", task.Job, i)
		b.raw(t, on, as(t, protocol, body, nil))
		foreign = append(foreign, on)
	}
	other := subject(taskPrefix+testKernel+".", newTask(2, 0).Job, 0)
	b.raw(t, other, as(t, 0, body, nil))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if d, err := b.NextTask(ctx, testKernel); err == nil {
		t.Errorf("a worker got %+v", d.Task)
	}
	own := newTask(1, 9)
	publish(t, b, own)
	if n, err := b.WithdrawForeign(t.Context(), task.Job, testKernel); n != len(foreign) || err != nil {
		t.Errorf("withdrew %d tasks, %v; expected %d", n, err, len(foreign))
	}
	held, err := b.subjects(t.Context(), "test", tasksStream, taskPrefix+">")
	if must(t, err); len(held) != 2 || held[other] == 0 || held[taskSubject(testKernel, own.Job, 9)] == 0 {
		t.Errorf("tasks left: %v", held)
	}
	if d := next(t, b); d.Task.Shard != 9 {
		t.Errorf("shard %d was delivered", d.Task.Shard)
	}
	must(t, b.Cleanup(t.Context(), own.Job))
	must(t, b.Cleanup(t.Context(), newTask(2, 0).Job)) // cleans up tasks of any protocol
	if held, err := b.subjects(t.Context(), "test", tasksStream, taskPrefix+">"); err != nil || len(held) > 0 {
		t.Errorf("tasks left after the clean-up: %v, %v", held, err)
	}
}

// The streams and consumers of protocol 0 do not disturb this build's, and setting this
// build up does not disturb workers of protocol 0.
func TestSetupNextToOlder(t *testing.T) {
	b := connect(t, Config{Server: startServer(t, embedded.Config{}), Name: "test"})
	setUp(t, b, testQueue)
	// What Setup of protocol 0 does with the consumer.
	older := QueueName(testKernel, 0)
	consumer, err := b.js.CreateOrUpdateConsumer(t.Context(), tasksStream, consumerConfig(&testQueue, older))
	must(t, err)
	setUp(t, b, testQueue)
	body, err := encodeTask(newTask(2, 3))
	on := subject(taskPrefix+older+".", newTask(2, 3).Job, 3)
	b.raw(t, on, as(t, 0, body, err))
	publish(t, b, newTask(1, 0))
	if d := next(t, b); d.Task.Job != newTask(1, 0).Job {
		t.Errorf("got %+v", d.Task)
	}
	msg, err := consumer.Next()
	must(t, err)
	if msg.Subject() != on {
		t.Errorf("the older worker got %s", msg.Subject())
	}
	must(t, msg.Ack())
}

// Coordinators see which workers are connected, what builds they are of, and whether one
// can compute a job. Workers that cannot answer count if they ask for tasks.
func TestConnected(t *testing.T) {
	s := startServer(t, embedded.Config{Listen: "127.0.0.1:0"})
	b := connect(t, Config{URL: s.URL(), Name: "coordinator"})
	setUp(t, b, testQueue)
	check := func(fit bool, text string) {
		t.Helper()
		c, err := b.ConnectedTo(t.Context(), testKernel)
		if must(t, err); c.Fit(testKernel) != fit || c.String() != text {
			t.Errorf("fit %v, %q; expected %v, %q", c.Fit(testKernel), c.String(), fit, text)
		}
	}
	check(false, "none (builds before protocol 1 do not answer)")
	for i, build := range []job.Build{{Kernel: "k2", Protocol: job.Protocol, Program: "v1"}, {Kernel: testKernel, Protocol: 77, Program: "v9\n\x1b"}, {Kernel: testKernel, Protocol: 77, Program: "v9\n\x1b"}} {
		build.Name = fmt.Sprint("w", i)
		worker := connect(t, Config{URL: s.URL(), Name: build.Name})
		must(t, worker.Announce(build))
		must(t, worker.nc.Flush())
	}
	others := fmt.Sprintf("1 with kernel k2 and protocol %d (v1), 2 with kernel %s and protocol 77 (v9 \x1b)", job.Protocol, testKernel)
	check(false, others)
	own := connect(t, Config{URL: s.URL(), Name: "own"})
	must(t, own.Announce(job.Build{Name: "own", Kernel: testKernel, Protocol: job.Protocol, Program: "v0"}))
	must(t, own.nc.Flush())
	check(true, strings.Replace(others, ", 2", fmt.Sprintf(", 1 with kernel %s and protocol %d (v0), 2", testKernel, job.Protocol), 1))
	leaving := func() (names []string) {
		builds, err := b.Connected(t.Context())
		must(t, err)
		for _, build := range builds {
			if build.Leaving {
				names = append(names, build.Name)
			}
		}
		return names
	}
	if names := leaving(); len(names) > 0 {
		t.Errorf("%v leave before they are asked to", names)
	}
	own.SetLeaving()
	if names := leaving(); !slices.Equal(names, []string{"own"}) {
		t.Errorf("%v leave, expected own", names)
	}
	own.Close()
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan error)
	go func() {
		_, err := connect(t, Config{URL: s.URL(), Name: "mute"}).NextTask(ctx, testKernel)
		asked <- err
	}()
	for deadline := time.Now().Add(15 * time.Second); ; { // until its request has arrived
		if c, err := b.ConnectedTo(t.Context(), testKernel); err == nil && c.Asking == 1 && c.Fit(testKernel) {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("a worker that asks is not seen: %+v, %v", c, err)
		}
	}
	cancel()
	if err := <-asked; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Workers and mergers answer to inboxes only, whatever subject a question names.
func TestAnswersGoToInboxes(t *testing.T) {
	s := startServer(t, embedded.Config{Listen: "127.0.0.1:0"})
	b := connect(t, Config{URL: s.URL()})
	must(t, b.Announce(job.Build{Name: "w"}))
	echo := func(question []byte) []byte { return question }
	token := strings.Repeat("t", 22)
	for _, start := range []func() (func(), error){func() (func(), error) { return b.AnswerFree(echo) }, func() (func(), error) { return b.AnswerMerger(token, echo) }} {
		stop, err := start()
		must(t, err)
		defer stop()
	}
	asker := connect(t, Config{URL: s.URL()}).nc
	answers, err := asker.SubscribeSync(">")
	must(t, err)
	questions := []string{whoSubject, freeMergers + strconv.Itoa(job.Protocol), mergePrefix + token}
	for _, question := range questions {
		for _, reply := range []string{jobPrefix + "j.cancel", "shaver.task.x", "_INBOXES.x", "_INBOX", "_INBOX.x.y"} {
			must(t, asker.PublishRequest(question, reply, []byte("q")))
		}
	}
	for inbox := 0; inbox < len(questions); {
		m, err := answers.NextMsg(10 * time.Second)
		if must(t, err); slices.Contains(questions, m.Subject) {
			continue
		}
		if inbox++; m.Subject != "_INBOX.x.y" {
			t.Errorf("an answer goes to %s", m.Subject)
		}
	}
}

// The properties by which builds of all protocols know each other stay as they are.
func TestForever(t *testing.T) {
	if p, ok := job.ProtocolOf([]byte(`{"protocol":12,"job":"dc909e3c534eaaac9f58","anything":{}}`)); p != 12 || !ok {
		t.Errorf("protocol %d, %v", p, ok)
	}
	build, err := json.Marshal(job.Build{Name: "n", Kernel: "k", Protocol: 1, Program: "p"})
	if must(t, err); string(build) != `{"name":"n","kernel":"k","protocol":1,"program":"p"}` {
		t.Errorf("a worker answers %s", build)
	}
	lead, err := json.Marshal(job.Lead{Job: "j", Epoch: 1, Owner: "o", Number: 2, Checkpoint: &job.Blob{Name: "n", Bytes: 3, SHA256: "s"}})
	if must(t, err); string(lead) != `{"job":"j","epoch":1,"owner":"o","number":2,"checkpoint":{"name":"n","bytes":3,"sha256":"s"},"ending":false}` {
		t.Errorf("the record of the leader is %s", lead)
	}
	for _, queue := range []string{"amx", "amx-p1", "portable-amd64-p12", "portable-p", "portable-pq", "portable-p0", "-p1"} {
		kernel, protocol := parseQueue(queue)
		if numbered := protocol > 0; QueueName(kernel, protocol) != queue || numbered != strings.ContainsAny(queue[len(queue)-1:], "12") {
			t.Errorf("queue %s was read as kernel %s, protocol %d", queue, kernel, protocol)
		}
	}
	if whoSubject != "shaver.who" || QueueName("avx2", 0) != "avx2" || QueueName("avx2", 3) != "avx2-p3" {
		t.Error("the subject or the names of queues changed")
	}
}
