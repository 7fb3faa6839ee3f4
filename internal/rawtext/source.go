// Package rawtext reads the text files of rows that people bring: plain, gzip or
// zstd, line by line (Source), or in blocks of whole records that several
// goroutines take apart (Blocks, Records). What the bytes do wrong is bad input
// that names file and line.
package rawtext

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"shaver/internal/fault"
)

// MaxLine bounds a line of input, with its end, in bytes.
const MaxLine = 1 << 20

// Source reads the lines of one input file, plain, gzip or zstd (told by its
// first bytes), and takes its digest. It is for one goroutine.
type Source struct {
	Path  string
	Line  int // number of the line that Next returned last, from 1
	raw   rawFile
	plain func() // frees the decompressor
	lines *bufio.Reader
}

// rawFile counts, digests and remembers the failure of what is read from file.
type rawFile struct {
	file    io.ReadCloser
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

// Size returns the size of an input file, which must be an ordinary one: it may
// be read twice.
func Size(path string) (int64, error) {
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

// Open opens an input file. Close the source.
func Open(path string) (*Source, error) {
	if _, err := Size(path); err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return New(path, file)
}

// New returns a source of what file yields; path is its name in messages. It
// owns file.
func New(path string, file io.ReadCloser) (*Source, error) {
	s := &Source{Path: path, raw: rawFile{file: file, digest: sha256.New()}, plain: func() {}}
	if err := s.decompress(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Source) decompress() error {
	raw := bufio.NewReaderSize(&s.raw, 1<<18)
	head, err := raw.Peek(4)
	if err != nil && err != io.EOF {
		return s.failed(err)
	}
	var content io.Reader = raw
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		content, err = gzip.NewReader(raw)
	case isZstd(head):
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
	s.lines = bufio.NewReaderSize(content, MaxLine)
	return nil
}

// isZstd tells zstd by its first four bytes: those of a frame, or of one that is
// passed over, with which pzstd begins.
func isZstd(head []byte) bool {
	return bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}) || len(head) == 4 && head[0]&0xf0 == 0x50 && bytes.Equal(head[1:], []byte{0x2a, 0x4d, 0x18})
}

// failed says where reading failed, and whose fault it is.
func (s *Source) failed(err error) error {
	if s.raw.failure != nil {
		return fmt.Errorf("%s: %w", s.Path, s.raw.failure)
	}
	return fault.Inputf("%s:%d: the compressed data are broken: %w", s.Path, s.Line+1, err)
}

// Next returns the next line without its end ("\n", "\r\n", or that of the
// file), valid until the next call; long says that it exceeds MaxLine, and then
// the line is not to be used. It returns io.EOF at the end.
func (s *Source) Next() (line []byte, long bool, err error) {
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
	if s.Line == 0 {
		line = bytes.TrimPrefix(line, mark)
	}
	s.Line++
	return line, long, nil
}

// mark is UTF-8's byte order mark.
var mark = []byte("\xef\xbb\xbf")

// Errorf returns bad input at a line of the file.
func (s *Source) Errorf(line int, format string, args ...any) error {
	return fault.Inputf("%s:%d: %w", s.Path, line, fmt.Errorf(format, args...))
}

// TooLong is the error of the line that Next returned last.
func (s *Source) TooLong() error { return s.Errorf(s.Line, "%w", errTooLong) }

var errTooLong = fmt.Errorf("the line is longer than %d bytes", MaxLine)

// Read returns how many bytes of the file, as it lies on disk, were read.
func (s *Source) Read() int64 { return s.raw.read }

// Digest returns the file's SHA-256, as hexadecimal digits, and its size, once
// Next returned io.EOF. Bytes that came since are of no row that was read: then it
// is an error.
func (s *Source) Digest() (digest string, size int64, err error) {
	switch more, err := io.Copy(io.Discard, &s.raw); {
	case err != nil:
		return "", 0, fmt.Errorf("%s: %w", s.Path, err)
	case more > 0:
		return "", 0, fmt.Errorf("%s grew while it was read", s.Path)
	}
	return hex.EncodeToString(s.raw.digest.Sum(nil)), s.raw.read, nil
}

// Close frees the source.
func (s *Source) Close() {
	s.plain()
	s.raw.file.Close()
}

// Content returns the bytes of the file, decompressed and without a byte order
// mark, for those who do not call Next. Its errors are bad input, but the file's
// own.
func (s *Source) Content() io.Reader {
	if head, _ := s.lines.Peek(len(mark)); bytes.Equal(head, mark) {
		_, _ = s.lines.Discard(len(mark)) // they are in the buffer
	}
	return content{s}
}

type content struct{ s *Source }

func (c content) Read(p []byte) (int, error) {
	n, err := c.s.lines.Read(p)
	if err != nil && err != io.EOF && c.s.raw.failure == nil {
		err = fault.Inputf("the compressed data are broken: %w", err)
	}
	return n, err
}
