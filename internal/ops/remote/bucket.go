package remote

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"

	"shaver/internal/base/fault"
)

// object describes an object.
type object struct {
	key     string
	size    int64
	version string // changes with the content
	// sha256 and write are what this program stored with the object; "" = nothing. write is
	// different for each write.
	sha256, write string
}

// condition says which writes may replace an object.
type condition struct {
	// version must be that of the object; "" = any, even none.
	version string
	// absent says that there must be no object.
	absent bool
}

// bucket is a store as one of the providers has it. Errors are of type *statusError, or come
// from the network, the local disk or the context. Its functions do not retry. They may be used by
// several goroutines.
type bucket interface {
	// head describes an object.
	head(ctx context.Context, key string) (object, error)
	// get reads an object from an offset on. The object must have the version, if that is not "".
	get(ctx context.Context, key, version string, offset int64) (io.ReadCloser, object, error)
	// put writes an object of the given size. At no time is a part of it visible.
	put(ctx context.Context, key string, data io.ReaderAt, size int64, about object, c condition) (version string, err error)
	// list calls visit with all objects whose keys begin with prefix, in any order. If
	// shallow is set, it calls visit for what follows prefix up to the next slash instead,
	// once for each such folder, with a key that ends in a slash.
	list(ctx context.Context, prefix string, shallow bool, visit func(object) error) error
	// remove deletes an object, which need not exist.
	remove(ctx context.Context, key string) error
}

// statusError is an answer of a store, other than success.
type statusError struct {
	status int    // as in HTTP
	text   string // what the store said; it has no secret
}

func (e *statusError) Error() string { return fmt.Sprintf("status %d: %s", e.status, e.text) }

// outcome is what an error means for the caller.
type outcome int

const (
	temporary outcome = iota // it may go away
	missing                  // there is no such object or bucket
	changed                  // the object does not have the version that was asked for
	denied
	permanent
)

// judge says what an error of a bucket means.
func judge(err error) outcome {
	var status *statusError
	switch {
	case errors.As(err, &status):
		switch {
		case status.status == 404:
			return missing
		case status.status == 412 || status.status == 409 || status.status == 304 || status.status == 416:
			return changed
		case status.status == 401 || status.status == 403:
			return denied
		case status.status == 408 || status.status == 429 || status.status >= 500 && status.status != 501:
			return temporary
		}
		return permanent
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, errLocal):
		return permanent
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return permanent
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return permanent
	}
	return temporary
}

// errLocal marks errors of this machine's disk, which no other try removes.
var errLocal = errors.New("")

// local returns an error of this machine's disk.
func local(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w%w", errLocal, err)
}

// plain returns err without the URL of the request, which may contain a signature.
func plain(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// describe returns the error that a command ends with.
func describe(l Location, doing string, err error) error {
	if err == nil || fault.IsInput(err) || fault.IsUsage(err) {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, errLocal) {
		return fmt.Errorf("%s %s: %w", doing, l, err)
	}
	switch judge(err) {
	case missing:
		return fault.Inputf("%w", &missingError{l.String() + " does not exist"})
	case permanent:
		if _, ok := errors.AsType[*statusError](err); ok {
			return fault.Inputf("%s %s: %w", doing, l, err)
		}
	case denied:
		return fmt.Errorf("%s %s: access denied: check the credentials and their permissions: %w", doing, l, plain(err))
	}
	return fmt.Errorf("%s %s: %w", doing, l, plain(err))
}

// missingError is an error about something that a store does not have. It is fs.ErrNotExist too.
type missingError struct{ text string }

func (m *missingError) Error() string     { return m.text }
func (m *missingError) Is(err error) bool { return err == fs.ErrNotExist }

// ErrConflict means that somebody else has written an object since this process read it.
var ErrConflict = errors.New("another process has written it since this one began")

// opener opens the bucket of a location.
func opener(ctx context.Context, l Location) (bucket, error) {
	switch l.Scheme {
	case schemeS3:
		return openS3(l, os.Getenv)
	case schemeGCS:
		return openGCS(ctx, l, os.Getenv)
	case schemeAzure:
		return openAzure(l, os.Getenv)
	}
	return openFiles(), nil
}
