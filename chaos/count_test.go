package main

import (
	"testing"
	"time"
)

func TestWatcherCounts(t *testing.T) {
	now := time.Unix(0, 0)
	w := newWatcher(func() time.Time { return now })
	now = now.Add(time.Hour) // no stall is counted before the job is submitted
	w.begin()
	for _, step := range []struct {
		after time.Duration
		line  string
	}{
		{3 * time.Second, `{"level":"debug","msg":"merged","shard":4}`},
		{time.Second, `{"msg":"task begun","try":1}`},
		{0, `{"msg":"task begun","try":2}`},
		{0, `{"msg":"task begun","try":3}`},
		{7 * time.Second, `{"msg":"merged","shard":5}`},
		{0, `{"msg":"another worker was faster"}`},
		{0, `{"msg":"ignored","why":"result was merged already"}`},
		{0, `{"msg":"result discarded","why":"the shard is in the checkpoint"}`},
		{0, `{"msg":"result discarded","why":"blob is corrupt"}`},
		{0, `{"msg":"lease lost: another worker may compute the task too"}`},
		{0, `{"msg":"resumed"}`},
		{0, `{"msg":"checkpoint"}`},
		{time.Minute, `score: 5 of 9 rows, merged`},
		{0, `{"msg":"merg`},
	} {
		now = now.Add(step.after)
		w.line([]byte(step.line))
	}
	w.fenced()
	want := counts{Merged: 2, Redelivered: 2, Duplicates: 3, Thrown: 1, Leases: 1, Resumed: 1, Checkpoints: 1, Fenced: 1}
	got, stall := w.result()
	if got != want || stall != 8*time.Second {
		t.Errorf("found %+v and a stall of %v, expected %+v and 8s", got, stall, want)
	}
}
