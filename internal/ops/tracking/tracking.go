// Package tracking reports runs to servers that a team looks at: to MLflow by its REST
// interface, and to a receiver of OpenLineage events. It sends everything in the call and keeps
// nothing to send again.
package tracking

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"shaver/internal/base/fault"
)

const (
	// timeout bounds a request.
	timeout = 10 * time.Second
	// mostAnswer bounds the bytes of an answer that are read.
	mostAnswer = 1 << 20
	// mostRedirects bounds the redirects of a request.
	mostRedirects = 10
)

// CheckURL returns bad input unless address is that of a server: http or https with a host, and
// without a user, a query or a fragment.
func CheckURL(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fault.Inputf("expected the URL of a server, such as http://localhost:5000, with secrets in the environment")
	}
	return nil
}

// client sends requests to one server.
type client struct {
	server string // URL without a slash at the end
	http   *http.Client
	access func(h http.Header)
}

func newClient(server string, access func(h http.Header)) *client {
	return &client{strings.TrimRight(server, "/"), &http.Client{Timeout: timeout, CheckRedirect: redirect}, access}
}

// redirect follows a redirect without the credentials, unless it leads to the server that redirects. The library
// sends them to other ports of its machine, and to http.
func redirect(r *http.Request, via []*http.Request) error {
	if first := via[0].URL; r.URL.Scheme != first.Scheme || r.URL.Host != first.Host {
		r.Header.Del("Authorization")
	}
	if len(via) == mostRedirects {
		return fmt.Errorf("more than %d redirects", mostRedirects)
	}
	return nil
}

// answered is an error that the server answered.
type answered struct {
	status int
	code   string // MLflow's error_code, or ""
	text   string
}

func (e *answered) Error() string { return e.text }

// send sends a request. If body is a []byte it is sent as it is, and otherwise as JSON. It decodes the
// answer into the value that to points to, unless to is nil.
func (c *client) send(ctx context.Context, method, path string, body, to any) (err error) {
	defer func() {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // u names the URL of the last redirect, with its query
		}
		if err != nil {
			err = fmt.Errorf("%s %s: %w", method, fault.Address(c.server+path), err)
		}
	}()
	content, isFile := body.([]byte)
	if !isFile && body != nil {
		if content, err = json.Marshal(body); err != nil {
			return err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, c.server+path, bytes.NewReader(content))
	if err != nil {
		return err
	}
	if isFile {
		r.Header.Set("Content-Type", "application/octet-stream")
	} else {
		r.Header.Set("Content-Type", "application/json")
	}
	c.access(r.Header)
	answer, err := c.http.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, mostAnswer))
	if err != nil {
		return err
	}
	return parse(answer.StatusCode, answer.Status, text, to)
}

// parse decodes an answer into the value that to points to, unless to is nil. An answer with
// another status than 2xx is an *answered.
func parse(code int, status string, text []byte, to any) error {
	if code/100 != 2 {
		e := &answered{status: code, text: "the server answered " + status}
		var said struct {
			Code    string `json:"error_code"`
			Message string `json:"message"`
		}
		if json.Unmarshal(text, &said) == nil && said.Message != "" {
			e.code = said.Code
			message, _, _ := strings.Cut(said.Message, "\n")
			e.text += fmt.Sprintf(": %.200q", message)
		}
		return e
	}
	if to == nil {
		return nil
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fmt.Errorf("the answer is not the JSON of such a server: %w", err)
	}
	return nil
}

// bearer returns the value of a header with a token of the environment, or "".
func bearer(variable string) string {
	if token := os.Getenv(variable); token != "" {
		return "Bearer " + token
	}
	return ""
}
