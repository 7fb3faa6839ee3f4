package ingest

import (
	"context"
	"io"

	"golang.org/x/sync/errgroup"

	"shaver/internal/base/fault"
)

// scan reads the files r.paths[first:last] in order. row is the position of their first
// row. Several goroutines call work for different blocks concurrently. collect is called
// for one block at a time, in the order of the input. scan returns the position after the
// last row. If several blocks fail, it returns the error that comes first in the input.
func (r *importer) scan(first, last int, row uint64, work func(worker int, b *block) error, collect func(b *block) error) (uint64, error) {
	g, ctx := errgroup.WithContext(r.ctx)
	depth := 2*r.config.Workers + 2
	if r.config.Format.tables {
		depth = r.config.Workers + 1 // fewer, because a block is a row group, which may be large
	}
	todo, order, free := make(chan *block), make(chan *block, depth), make(chan *block, depth)
	for range depth {
		free <- &block{done: make(chan struct{}, 1), bad: badRows{policy: r.bad.policy}}
	}
	g.Go(func() error {
		defer close(todo)
		defer close(order)
		emit := func(b *block) bool { return send(ctx, order, b) && send(ctx, todo, b) }
		for at := first; at < last; at++ {
			if !r.readFile(ctx, at, &row, free, emit) {
				break
			}
		}
		return nil
	})
	for worker := range r.config.Workers {
		g.Go(func() error {
			for b := range todo {
				if b.err == nil && b.end == nil {
					b.err = work(worker, b)
				}
				b.done <- struct{}{}
			}
			return nil
		})
	}
	g.Go(func() error {
		for b := range order {
			select {
			case <-b.done:
			case <-ctx.Done():
				return ctx.Err()
			}
			if err := r.take(b, collect); err != nil {
				r.cancel()
				return err
			}
			b.reset()
			free <- b
		}
		return ctx.Err()
	})
	err := g.Wait()
	return row, err
}

// send sends b, and returns false if ctx ends first.
func send(ctx context.Context, to chan<- *block, b *block) bool {
	select {
	case to <- b:
		return true
	case <-ctx.Done():
		return false
	}
}

// readFile emits the blocks of the file r.paths[at], followed by a block that holds the description of
// the file or an error. It advances row by the rows of the file. It returns false if the
// scan must stop.
func (r *importer) readFile(ctx context.Context, at int, row *uint64, free <-chan *block, emit func(*block) bool) bool {
	begin, path := *row, r.paths[at]
	in, err := r.open(path)
	if err == nil {
		defer in.close()
	}
	for {
		var b *block
		select {
		case b = <-free:
		case <-ctx.Done():
			return false
		}
		b.path, b.row, b.rows, b.split = display(path), *row, 0, r.given[at]
		if in != nil {
			b.where = in.place()
		}
		if err == nil {
			err = in.next(b)
		}
		if err == io.EOF && *row == begin && r.table(path) == nil { // a table may have empty files
			err = r.noRows(path)
		}
		if err == io.EOF {
			file, err := in.describe()
			b.end, b.err = &file, err
			return emit(b) && err == nil
		}
		if err != nil {
			b.err = err
			emit(b)
			return false
		}
		*row += uint64(b.rows)
		if !emit(b) {
			return false
		}
	}
}

// noRows returns the error for a file without rows.
func (r *importer) noRows(path string) error {
	f := r.config.Format
	switch {
	case f.tables:
		return fault.Inputf("%s: the file has no rows", display(path))
	case f.columns == nil || f.headed:
		return fault.Inputf("%s: the file has a header and no rows", display(path))
	}
	return fault.Inputf("%s: the file is empty", display(path))
}

// take collects a parsed block, and reports the progress.
func (r *importer) take(b *block, collect func(b *block) error) error {
	if r.encoded != nil {
		r.encoded.explain(b)
	}
	if b.err != nil {
		return b.err
	}
	if b.end != nil {
		return r.note(b.path, *b.end)
	}
	if err := collect(b); err != nil {
		return err
	}
	r.bad.add(&b.bad)
	r.rows += int64(b.rows)
	if r.progress != nil {
		r.progress(r.rows, r.done+b.read, r.total)
	}
	return r.ctx.Err()
}
