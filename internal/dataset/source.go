package dataset

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"shaver/internal/fault"
)

// maxLine bounds a line of input, with its end, in bytes.
const maxLine = 1 << 20

// source reads the lines of one input file, plain, gzip or zstd (told by its
// first bytes), and takes its digest.
type source struct {
	path  string
	size  int64
	raw   rawFile
	plain func() // frees the decompressor
	lines *bufio.Reader
	line  int // number of the line that next returned last, from 1
}

// rawFile counts, digests and remembers the failure of what is read from file.
type rawFile struct {
	file    *os.File
	digest  hash.Hash
	read    int64
	failure error
}

func (r *rawFile) Read(p []byte) (int, error) {
	n, err := r.file.Read(p)
	r.digest.Write(p[:n])
	r.read += int64(n)
	if err != nil && err != io.EOF {
		r.failure = err
	}
	return n, err
}

// sourceSize returns the size of the input file, which must be an ordinary one:
// it may be read twice.
func sourceSize(path string) (int64, error) {
	info, err := os.Stat(path)
	switch {
	case os.IsNotExist(err):
		return 0, fault.Inputf("%s: no such file", path)
	case err != nil:
		return 0, err
	case !info.Mode().IsRegular():
		return 0, fault.Inputf("%s is not an ordinary file", path)
	}
	return info.Size(), nil
}

func openSource(path string) (*source, error) {
	size, err := sourceSize(path)
	if err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	s := &source{path: path, size: size, raw: rawFile{file: file, digest: sha256.New()}, plain: func() {}}
	if err := s.decompress(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *source) decompress() error {
	raw := bufio.NewReaderSize(&s.raw, 1<<16)
	head, err := raw.Peek(4)
	if err != nil && err != io.EOF {
		return s.failed(err)
	}
	var content io.Reader = raw
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		content, err = gzip.NewReader(raw)
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		var decoder *zstd.Decoder
		// 128 MiB is the largest window that the zstd command uses unasked.
		decoder, err = zstd.NewReader(raw, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(128<<20))
		if err == nil {
			s.plain = decoder.Close
			content = decoder
		}
	default:
		err = nil
	}
	if err != nil {
		return s.failed(err)
	}
	s.lines = bufio.NewReaderSize(content, maxLine)
	return nil
}

// failed says where reading failed, and whose fault it is.
func (s *source) failed(err error) error {
	if s.raw.failure != nil {
		return fmt.Errorf("%s: %w", s.path, s.raw.failure)
	}
	return fault.Inputf("%s:%d: the compressed data are broken: %w", s.path, s.line+1, err)
}

// next returns the next line without its end ("\n", "\r\n", or that of the
// file), valid until the next call; long says that it exceeds maxLine, and then
// the line is not to be used. It returns io.EOF at the end.
func (s *source) next() (line []byte, long bool, err error) {
	line, err = s.lines.ReadSlice('\n')
	for err == bufio.ErrBufferFull {
		long = true
		_, err = s.lines.ReadSlice('\n')
	}
	switch {
	case err == nil && !long:
		line = line[:len(line)-1]
	case err == io.EOF && (len(line) > 0 || long):
	case err == io.EOF:
		return nil, false, io.EOF
	case err != nil:
		return nil, false, s.failed(err)
	}
	line = bytes.TrimSuffix(line, []byte("\r"))
	if s.line == 0 {
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	s.line++
	return line, long, nil
}

// errorf returns bad input at a line of the file.
func (s *source) errorf(line int, format string, args ...any) error {
	return fault.Inputf("%s:%d: %w", s.path, line, fmt.Errorf(format, args...))
}

func (s *source) tooLong() error {
	return s.errorf(s.line, "the line is longer than %d bytes", maxLine)
}

// describe returns the file's base name and digest, once next returned io.EOF.
func (s *source) describe() (File, error) {
	if _, err := io.Copy(io.Discard, &s.raw); err != nil {
		return File{}, fmt.Errorf("%s: %w", s.path, err)
	}
	return File{filepath.Base(s.path), hex.EncodeToString(s.raw.digest.Sum(nil)), s.raw.read}, nil
}

func (s *source) close() {
	s.plain()
	s.raw.file.Close()
}
