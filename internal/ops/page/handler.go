package page

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"shaver/internal/base/style"
	"shaver/internal/jobs/bus"
)

var (
	//go:embed page.css
	pageStyle string
	//go:embed page.js
	script string

	styles = style.CSS + pageStyle
	// policy lets a page load and run nothing but what is in it, and connect only to its server.
	policy = fmt.Sprintf("default-src 'none'; style-src '%s'; script-src '%s'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'", digest(styles), digest(script))
)

// reportPolicy is for the pages of nights, which are files of another program. They run no script.
const reportPolicy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox"

// digest returns the digest of an element's text for a content security policy.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

const (
	// every is the time between two snapshots. A coordinator writes its progress as often.
	every        = 2 * time.Second
	refreshEvery = 5                // seconds after which a page without a script loads again
	readWithin   = 10 * time.Second // for a snapshot
	writeWithin  = 5 * time.Second  // a viewer that does not take an event in this time is dropped
	aliveEvery   = 20 * time.Second // an event without content, so that viewers that are gone are noticed
	mostViewers  = 64
	mostReport   = 64 << 20 // bytes of a night's page
)

// Handler answers the requests for pages. Only while somebody looks it takes a snapshot every two
// seconds, once for all viewers.
type Handler struct {
	source Source
	every  time.Duration // between two snapshots
	write  time.Duration // a viewer that does not take an event in this time is dropped
	mux    *http.ServeMux
	open   func(name string) (io.ReadCloser, error) // opens a file in the folder of the nights; nil = none
	files  chan struct{}                            // has room for the reports that are sent

	taking chan struct{} // has room for who takes a snapshot

	mu       sync.Mutex
	last     *Snapshot
	taken    time.Time
	rendered map[string]*rendered // of last, by job
	viewers  map[*viewer]bool
	looking  bool
	over     chan struct{} // closed by Close
}

// viewer is somebody who looks at a page.
type viewer struct {
	job  string
	next chan *rendered // has room for one
}

// NewHandler returns a handler for the snapshots of source. open opens a file in a folder of the nights
// of shaver nightly, and returns an error that is fs.ErrNotExist if there is no such file; nil means that
// there is no such folder.
func NewHandler(source Source, open func(name string) (io.ReadCloser, error)) *Handler {
	h := &Handler{source: source, every: every, write: writeWithin, open: open, mux: http.NewServeMux(), taking: make(chan struct{}, 1), files: make(chan struct{}, 2), viewers: map[*viewer]bool{}, over: make(chan struct{})}
	h.mux.HandleFunc("GET /{$}", h.page)
	h.mux.HandleFunc("GET /job/{job}", h.page)
	h.mux.HandleFunc("GET /events", h.events)
	h.mux.HandleFunc("GET /job/{job}/events", h.events)
	if open != nil {
		h.mux.HandleFunc("GET /history.html", func(w http.ResponseWriter, r *http.Request) { h.file(w, r, "history.html") })
		h.mux.HandleFunc("GET /nights/{night}/report.html", h.report)
	}
	return h
}

// ServeHTTP answers a request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	if !guarded(r) {
		http.Error(w, "expected an address or localhost in the URL", http.StatusMisdirectedRequest)
		return
	}
	h.mux.ServeHTTP(w, r)
}

// jobOf returns the job of a request. ok is false after it answered that there is no such job.
func jobOf(w http.ResponseWriter, r *http.Request) (id string, ok bool) {
	id = r.PathValue("job")
	if id != "" && bus.CheckJob(id) != nil {
		http.Error(w, "no such job: expected an id of 20 hexadecimal digits", http.StatusNotFound)
		return "", false
	}
	return id, true
}

// page answers with a whole page.
func (h *Handler) page(w http.ResponseWriter, r *http.Request) {
	id, ok := jobOf(w, r)
	if !ok {
		return
	}
	if err := h.refresh(r.Context()); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	p, err := h.render(id)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if p == nil {
		http.Error(w, "no such job: it was never submitted, or it has ended", http.StatusNotFound)
		return
	}
	events, home := "events", ""
	if id != "" {
		events, home = id+"/events", "../"
	}
	body, err := shell(p, events, home)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(body) // fails if the reader is gone
}

// refresh takes a snapshot, unless the last one is new enough.
func (h *Handler) refresh(ctx context.Context) error {
	select {
	case h.taking <- struct{}{}:
		defer func() { <-h.taking }()
	case <-ctx.Done():
		return ctx.Err()
	}
	h.mu.Lock()
	fresh := h.last != nil && time.Since(h.taken) < h.every
	h.mu.Unlock()
	if fresh {
		return nil
	}
	return h.take(ctx)
}

// take takes a snapshot. The caller has taken h.taking.
func (h *Handler) take(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	s, err := h.source.Read(ctx)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last, h.taken, h.rendered = s, time.Now(), map[string]*rendered{}
	return nil
}

// render returns the page of a job, which is rendered once for each snapshot, or nil if there is no such
// job.
func (h *Handler) render(id string) (*rendered, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.rendered[id]; p != nil {
		return p, nil
	}
	p, err := render(h.last, id)
	if p != nil && err == nil {
		h.rendered[id] = p
	}
	return p, err
}

// events sends what changes on a page until the viewer is gone, is too slow, or the program ends.
func (h *Handler) events(w http.ResponseWriter, r *http.Request) {
	id, ok := jobOf(w, r)
	if !ok {
		return
	}
	v := &viewer{job: id, next: make(chan *rendered, 1)}
	if !h.enter(v) {
		w.Header().Set("Retry-After", "60")
		http.Error(w, fmt.Sprintf("%d viewers already: load the page again instead", mostViewers), http.StatusServiceUnavailable)
		return
	}
	defer h.leave(v)
	to := http.NewResponseController(w)
	_ = to.SetReadDeadline(time.Time{}) // the deadline of the request would end the events
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	send := func(text []byte) bool {
		_ = to.SetWriteDeadline(time.Now().Add(h.write))
		_, err := w.Write(text)
		return err == nil && to.Flush() == nil
	}
	if !send([]byte(": shaver\n\n")) {
		return
	}
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	var shown *rendered
	show := func(p *rendered) bool {
		var text bytes.Buffer
		for i := range p.parts {
			if shown == nil || !bytes.Equal(shown.parts[i], p.parts[i]) {
				writeEvent(&text, p.parts[i])
			}
		}
		shown = p
		return text.Len() == 0 || send(text.Bytes())
	}
	for {
		select {
		case p := <-v.next:
			if !show(p) {
				return
			}
		case <-alive.C:
			if !send([]byte(": alive\n\n")) {
				return
			}
		case <-h.over:
			select {
			case p := <-v.next:
				show(p)
			default:
			}
			send([]byte("event: end\ndata: end\n\n"))
			return
		case <-r.Context().Done():
			return
		}
	}
}

// writeEvent writes text as an event.
func writeEvent(to *bytes.Buffer, text []byte) {
	for line := range bytes.Lines(text) {
		to.WriteString("data: ")
		to.Write(bytes.TrimRight(line, "\r\n"))
		to.WriteByte('\n')
	}
	to.WriteByte('\n')
}

// enter adds a viewer. It returns false if there are too many, or the handler is closed.
func (h *Handler) enter(v *viewer) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.over:
		return false
	default:
	}
	if len(h.viewers) >= mostViewers {
		return false
	}
	h.viewers[v] = true
	if !h.looking {
		h.looking = true
		go h.look()
	}
	return true
}

func (h *Handler) leave(v *viewer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.viewers, v)
}

// look shows snapshots to all viewers while there are any.
func (h *Handler) look() {
	tick := time.NewTicker(h.every)
	defer tick.Stop()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), readWithin)
		err := h.refresh(ctx)
		cancel()
		if err == nil {
			h.show()
		}
		h.mu.Lock()
		if len(h.viewers) == 0 {
			h.looking = false
			h.mu.Unlock()
			return
		}
		h.mu.Unlock()
		select {
		case <-tick.C:
		case <-h.over:
			return
		}
	}
}

// show gives the last snapshot to all viewers. A viewer that has not taken the one before it gets
// only the new one.
func (h *Handler) show() {
	h.mu.Lock()
	viewers := make([]*viewer, 0, len(h.viewers))
	for v := range h.viewers {
		viewers = append(viewers, v)
	}
	h.mu.Unlock()
	for _, v := range viewers {
		p, err := h.render(v.job)
		if p == nil || err != nil {
			continue
		}
		select {
		case <-v.next:
		default:
		}
		select {
		case v.next <- p:
		default:
		}
	}
}

// Close shows the viewers a last snapshot and ends all events.
func (h *Handler) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	select {
	case h.taking <- struct{}{}:
		err := h.take(ctx)
		<-h.taking
		if err == nil {
			h.show()
		}
	case <-ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.over:
	default:
		close(h.over)
	}
}

// report answers with the report of a night that the snapshot has.
func (h *Handler) report(w http.ResponseWriter, r *http.Request) {
	if err := h.refresh(r.Context()); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	night := r.PathValue("night")
	h.mu.Lock()
	known := slices.ContainsFunc(h.last.Nights, func(n Night) bool { return n.Name == night && n.Report })
	h.mu.Unlock()
	if !known || strings.ContainsAny(night, `/\`) || strings.HasPrefix(night, ".") {
		http.Error(w, "no such night", http.StatusNotFound)
		return
	}
	h.file(w, r, "nights/"+night+"/report.html")
}

// file answers with a page in the folder of the nights.
func (h *Handler) file(w http.ResponseWriter, r *http.Request, name string) {
	select {
	case h.files <- struct{}{}:
		defer func() { <-h.files }()
	case <-r.Context().Done():
		return
	}
	f, err := h.open(name)
	if errors.Is(err, fs.ErrNotExist) {
		http.Error(w, "this page is not kept any more", http.StatusNotFound)
		return
	}
	if err != nil {
		http.Error(w, "the page cannot be read", http.StatusBadGateway)
		return
	}
	defer f.Close()
	body, err := io.ReadAll(io.LimitReader(f, mostReport+1))
	if err != nil || len(body) > mostReport {
		http.Error(w, "the page cannot be read", http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Security-Policy", reportPolicy)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(body) // fails if the reader is gone
}

// guarded reports whether a request that comes in on a loopback address has the name localhost or an address. A
// page of another site could otherwise read this one, by a name that it points here.
func guarded(r *http.Request) bool {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return !ok || !at.IP.IsLoopback() || host == "localhost" || net.ParseIP(strings.Trim(host, "[]")) != nil
}
