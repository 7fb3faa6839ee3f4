package bus

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"

	"shaver/internal/jobs/job"
)

// Mergers answer questions of coordinators. Neither questions nor answers are stored.
const (
	mergePrefix  = "shaver.merge."
	freeMergers  = mergePrefix + "free-p" // answered by one of the mergers of a protocol that have no range
	leftMergers  = mergePrefix + "left"   // received by all mergers with a range
	mergersQueue = "mergers"
)

// ErrUnanswered means that a question was not answered. Nobody may have received it, or the answer
// may be lost.
var ErrUnanswered = errors.New("no answer")

// ErrNobody is an ErrUnanswered for which the server says that nobody received the question.
var ErrNobody = fmt.Errorf("%w, because nobody listens", ErrUnanswered)

// AskFree asks a merger of this protocol that has no range, and returns its answer. It makes one
// attempt.
func (b *Bus) AskFree(ctx context.Context, question []byte) ([]byte, error) {
	return b.ask(ctx, freeMergers+strconv.Itoa(job.Protocol), question)
}

// AskMerger asks the merger that answers under the token. It makes one attempt.
func (b *Bus) AskMerger(ctx context.Context, token string, question []byte) ([]byte, error) {
	return b.ask(ctx, mergePrefix+token, question)
}

// SendToMergers sends a message to all mergers that have a range.
func (b *Bus) SendToMergers(message []byte) error { return b.nc.Publish(leftMergers, message) }

// AnswerFree calls answer with each question of AskFree that this merger gets, one after the
// other, until stop is called. If answer returns nil, no answer is sent.
func (b *Bus) AnswerFree(answer func(question []byte) []byte) (stop func(), err error) {
	return b.answer(freeMergers+strconv.Itoa(job.Protocol), mergersQueue, answer)
}

// AnswerMerger is AnswerFree for the questions of AskMerger with the token.
func (b *Bus) AnswerMerger(token string, answer func(question []byte) []byte) (stop func(), err error) {
	if !isAttempt(token) {
		return nil, fmt.Errorf("invalid token %q", token)
	}
	return b.answer(mergePrefix+token, "", answer)
}

// ReceiveAsMerger calls f with each message of SendToMergers until stop is called.
func (b *Bus) ReceiveAsMerger(f func(message []byte)) (stop func(), err error) {
	return b.answer(leftMergers, "", func(message []byte) []byte { f(message); return nil })
}

func (b *Bus) ask(ctx context.Context, subject string, question []byte) (answer []byte, err error) {
	denied := b.denied.Load()
	short, cancel := context.WithTimeout(ctx, b.patience.call)
	defer cancel()
	err = b.request("ask a merger", func() error {
		m, err := b.nc.RequestWithContext(short, subject, question)
		if err == nil {
			answer = m.Data
		}
		return err
	})
	switch now := b.denied.Load(); {
	case err == nil:
		return answer, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case b.nc.IsClosed():
		return nil, b.closed("ask a merger")
	case now != denied:
		return nil, fmt.Errorf("ask a merger: %w", now.cause)
	case errors.Is(err, nats.ErrNoResponders):
		return nil, ErrNobody
	case transient(err):
		return nil, fmt.Errorf("%w: %w", ErrUnanswered, err)
	}
	return nil, fmt.Errorf("ask a merger: %w", err)
}

// inboxes begins the subjects to which clients have answers sent.
const inboxes = "_INBOX."

// answer calls f with each question on the subject and sends what it returns, unless that is nil. It ignores questions
// whose answer would go to a subject that is not an inbox. Otherwise any client that may ask could write to
// subjects to which only this one has the right, such as the records of jobs.
func (b *Bus) answer(subject, queue string, f func([]byte) []byte) (stop func(), err error) {
	handle := func(m *nats.Msg) {
		if !strings.HasPrefix(m.Reply, inboxes) && m.Reply != "" {
			b.log.Debug("a question is not answered: expected an inbox as the subject of the answer", zap.String("question", m.Subject), zap.String("answer", tidy(m.Reply)))
			return
		}
		if answer := f(m.Data); answer != nil {
			_ = m.Respond(answer) // the question comes again if the answer is lost
		}
	}
	s, err := b.nc.QueueSubscribe(subject, queue, handle) // without a queue, this is Subscribe
	if err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", subject, err)
	}
	_ = b.nc.FlushTimeout(b.patience.call)     // without a connection, the client subscribes when it has one again
	return func() { _ = s.Unsubscribe() }, nil // fails if the connection is closed
}
