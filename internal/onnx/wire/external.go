package wire

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"shaver/internal/base/fault"
)

// setting is an entry that describes where the elements of a tensor are.
type setting struct{ key, value string }

// outsideEntry reads an entry and appends it to list.
func (p *parser) outsideEntry(v field, list *[]setting) error {
	if err := p.meter.take(192); err != nil {
		return err
	}
	var s setting
	err := p.message(v, func(number protowire.Number, v field) error {
		switch number {
		case 1:
			return p.name(v, &s.key)
		case 2:
			return p.name(v, &s.value)
		}
		return nil
	})
	*list = append(*list, s)
	return err
}

// outside says where the elements of a tensor are in another file.
type outside struct {
	location string
	settings []setting
	entries  []field // the fields of the tensor that say so
}

// external sets the position of t's elements in another file. The file must be in the
// folder of the model or below it, even after symbolic links are followed.
func (p *parser) external(t *Tensor, settings []setting) error {
	location, offset, length := "", int64(0), int64(-1)
	for _, s := range settings {
		number := &offset
		switch s.key {
		case "location":
			location = s.value
			continue
		case "offset":
		case "length":
			number = &length
		default: // a checksum, for example
			continue
		}
		n, err := strconv.ParseInt(s.value, 10, 64)
		if err != nil || n < 0 {
			return fault.Inputf("the %s of its elements in %s is %s, expected a number of bytes", s.key, Quote(location), Quote(s.value))
		}
		*number = n
	}
	if !localName(location) {
		return fault.Inputf("its elements are in the file %s, expected a file in the folder of the model", Quote(location))
	}
	if p.root == nil {
		return fault.Inputf("its elements are in the file %s, expected a model that is one file", Quote(location))
	}
	o, err := p.openOutside(location)
	if err != nil {
		return err
	}
	if length < 0 { // all bytes that t needs
		length = int64(t.Type.width())
		for _, size := range t.Dims {
			if size > 0 && length > o.info.Size()/int64(size) {
				return fault.Inputf("it has the shape %v, but the file %s has %d bytes", t.Dims, Quote(location), o.info.Size())
			}
			length *= int64(size)
		}
	}
	if offset > o.info.Size() || length > o.info.Size()-offset {
		return fault.Inputf("it has %d bytes at offset %d of the file %s, which has %d bytes: the file is cut short, or belongs to another model",
			length, offset, Quote(location), o.info.Size())
	}
	t.form, t.source, t.at, t.size, t.file = fixed, o.f, offset, length, filepath.Join(filepath.Dir(p.file), location)
	t.outside.location, t.outside.settings = location, settings
	p.tensors = append(p.tensors, t)
	return nil
}

// localName reports whether name is a relative path that stays in its folder, on every
// system.
func localName(name string) bool {
	if strings.ContainsAny(name, "\\:\x00") || path.IsAbs(name) || !filepath.IsLocal(name) {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return false
		}
	}
	return true
}

// openOutside opens a file with external data, once.
func (p *parser) openOutside(location string) (outsideFile, error) {
	if o, ok := p.outside[location]; ok {
		return o, nil
	}
	if len(p.outside) == maxOutside {
		return outsideFile{}, fault.Inputf("the tensors are in more than %d files: save them in one file", maxOutside)
	}
	info, err := p.root.Stat(location)
	if err == nil && !info.Mode().IsRegular() { // opening a pipe would wait for a writer
		return outsideFile{}, fault.Inputf("its elements are in %s, which is not a regular file", Quote(location))
	}
	var f *os.File
	if err == nil {
		f, err = p.root.Open(location)
	}
	if err != nil {
		var reason *fs.PathError
		if errors.As(err, &reason) {
			err = reason.Err // without the name of a system call
		}
		return outsideFile{}, fault.Inputf("its elements are in the file %s, expected a file in the folder of the model: %w", Quote(location), err)
	}
	if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() {
		err = fault.Inputf("its elements are in %s, which is not a regular file", Quote(location))
	}
	if err != nil {
		f.Close()
		return outsideFile{}, err
	}
	o := outsideFile{f, info}
	for _, other := range p.outside { // by another name
		if os.SameFile(other.info, info) {
			f.Close()
			o = other
			break
		}
	}
	p.outside[location] = o
	return o, nil
}
