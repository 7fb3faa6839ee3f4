package remote

import (
	"context"
	"errors"
	"testing"
	"time"
)

// mute is a bucket whose heads are those of a function.
type mute struct {
	bucket
	look func() error
}

func (m mute) head(context.Context, string) (object, error) { return object{}, m.look() }
func (m mute) address() string                              { return "http://127.0.0.1:9" }

// A session says what it waits for, with the address, when a store does not answer or cannot be
// reached, and says nothing about one that answers.
func TestWaiting(t *testing.T) {
	former := silence
	t.Cleanup(func() { silence = former })
	l := place(t, "s3://bucket/key")
	const want = "waiting for an answer of the object store s3://bucket at http://127.0.0.1:9"
	for name, failed := range map[string]bool{"no answer": false, "out of reach": true} {
		silence = time.Millisecond
		said := make(chan string, 2)
		s := &Session{Waiting: func(text string) { said <- text }}
		b := s.hear(mute{look: func() error {
			if failed {
				return errors.New("connection refused")
			}
			if text := <-said; text != want {
				t.Errorf("%s: %q", name, text)
			}
			return nil
		}}, l)
		if _, err := b.head(t.Context(), "key"); (err != nil) != failed {
			t.Fatal(err)
		}
		if failed { // in the pause before the next try
			if text := <-said; text != want {
				t.Errorf("%s: %q", name, text)
			}
		}
		if len(said) > 0 {
			t.Errorf("%s: %q, expected one text", name, <-said)
		}
	}
	silence = time.Hour
	for name, err := range map[string]error{"an object": nil, "no object": &statusError{404, ""}} {
		h := (&Session{Waiting: func(string) {}}).hear(mute{look: func() error { return err }}, l).(*heard)
		if _, found := h.head(t.Context(), "key"); found != err || h.timer != nil {
			t.Errorf("%s: %v, and waiting: %v", name, found, h.timer != nil)
		}
	}
	b := mute{}
	if _, ok := new(Session).hear(b, l).(mute); !ok {
		t.Error("a session without Waiting listens")
	}
}
