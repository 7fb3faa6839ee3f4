package ingest

import (
	"context"
	"io"

	"golang.org/x/sync/errgroup"

	"shaver/internal/fault"
)

// pass reads the files [first, last), in order; row is the position of their
// first row. Workers do the stretches, several at a time; collect gets them in
// order, one at a time. It returns the position after the last row. Of several
// errors, the one that comes first in the input wins.
func (r *rawImport) pass(first, last int, row uint64, work func(worker int, s *stretch) error, collect func(s *stretch) error) (uint64, error) {
	g, ctx := errgroup.WithContext(r.ctx)
	depth := 2*r.workers + 2
	if r.config.Format.tables {
		depth = r.workers + 1 // a stretch is a row group, which may be large
	}
	todo, order, free := make(chan *stretch), make(chan *stretch, depth), make(chan *stretch, depth)
	for range depth {
		free <- &stretch{done: make(chan struct{}, 1)}
	}
	g.Go(func() error {
		defer close(todo)
		defer close(order)
		emit := func(s *stretch) bool { return send(ctx, order, s) && send(ctx, todo, s) }
		for _, path := range r.paths[first:last] {
			if !r.readFile(ctx, path, &row, free, emit) {
				break
			}
		}
		return nil
	})
	for worker := range r.workers {
		g.Go(func() error {
			for s := range todo {
				if s.err == nil && s.end == nil {
					s.err = work(worker, s)
				}
				s.done <- struct{}{}
			}
			return nil
		})
	}
	g.Go(func() error {
		for s := range order {
			select {
			case <-s.done:
			case <-ctx.Done():
				return ctx.Err()
			}
			if err := r.take(s, collect); err != nil {
				r.cancel()
				return err
			}
			s.reset()
			free <- s
		}
		return ctx.Err()
	})
	err := g.Wait()
	return row, err
}

func send(ctx context.Context, to chan<- *stretch, s *stretch) bool {
	select {
	case to <- s:
		return true
	case <-ctx.Done():
		return false
	}
}

// readFile emits a file's stretches, and then one that says how the file ended;
// false if that is the end of all.
func (r *rawImport) readFile(ctx context.Context, path string, row *uint64, free <-chan *stretch, emit func(*stretch) bool) bool {
	begin := *row
	in, err := r.open(path)
	if err == nil {
		defer in.close()
	}
	for {
		var s *stretch
		select {
		case s = <-free:
		case <-ctx.Done():
			return false
		}
		s.path, s.row, s.rows = display(path), *row, 0
		if err == nil {
			err = in.next(s)
		}
		if err == io.EOF && *row == begin {
			err = r.noRows(path)
		}
		if err == io.EOF {
			file, err := in.describe()
			s.end, s.err = &file, err
			return emit(s) && err == nil
		}
		if err != nil {
			s.err = err
			emit(s)
			return false
		}
		*row += uint64(s.rows)
		if !emit(s) {
			return false
		}
	}
}

func (r *rawImport) noRows(path string) error {
	if f := r.config.Format; f.columns == nil || f.headed {
		return fault.Inputf("%s: the file has a header and no rows", display(path))
	}
	return fault.Inputf("%s: the file is empty", display(path))
}

// take collects a stretch.
func (r *rawImport) take(s *stretch, collect func(s *stretch) error) error {
	if s.err != nil {
		return s.err
	}
	if s.end != nil {
		return r.note(s.path, *s.end)
	}
	if err := collect(s); err != nil {
		return err
	}
	r.skipped += s.skipped
	r.bad = append(r.bad, s.bad[:min(len(s.bad), keptMessages-len(r.bad))]...)
	r.rows += int64(s.rows)
	if r.progress != nil {
		r.progress(r.rows, r.done+s.read, r.total)
	}
	return r.ctx.Err()
}
