// Package rawtext reads text files of rows, which may be compressed with gzip or zstd.
// Source opens a file, Blocks cuts it into blocks of whole records, and
// Records splits a block into cells, so that several goroutines can parse one file.
// Malformed text is reported as bad input that names the file and the line.
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
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
)

// MaxLine is the largest length of an input line in bytes, including its line end.
const MaxLine = 1 << 20

// Source reads one input file and computes the file's digest. It recognizes
// gzip and zstd by the first bytes of the file. It is not safe for concurrent use.
type Source struct {
	Path  string
	raw   rawFile
	plain func() // frees the decompressor
	lines *bufio.Reader
}

// rawFile reads file, counts and hashes the bytes, and keeps the error of a failed read.
type rawFile struct {
	file    io.ReadCloser
	digest  hash.Hash
	read    int64 // bytes read so far
	failure error // error of file other than io.EOF
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

// missing returns the error for an input file that does not exist.
func missing(path string) error {
	if strings.ContainsAny(path, "*?") {
		return fault.Inputf("%s: no such file: name a folder for all its files, or files separated by commas", path)
	}
	return fault.Inputf("%s: no such file", path)
}

// Size returns the size of an input file in bytes. The file must be a regular one,
// because it may be read twice.
func Size(path string) (int64, error) {
	info, err := os.Stat(path)
	switch {
	case os.IsNotExist(err):
		return 0, missing(path)
	case err != nil:
		return 0, err
	case !info.Mode().IsRegular():
		return 0, fault.Inputf("%s is not a regular file", path)
	}
	return info.Size(), nil
}

// Open opens an input file. The caller must close the source.
func Open(path string) (*Source, error) {
	if _, err := Size(path); err != nil {
		return nil, err
	}
	file, err := files.Open(path, "a file of rows")
	if err != nil {
		return nil, err
	}
	return New(path, file)
}

// New returns a source that reads from file and owns it. In messages, path is the name of
// the file.
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
	head, err := raw.Peek(8)
	if err != nil && err != io.EOF {
		return s.failed(1, err)
	}
	var content io.Reader = raw
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		m := &members{raw: raw}
		if m.Reader, err = gzip.NewReader(raw); err == nil {
			m.Multistream(false)
		}
		content = m
	case isZstd(head):
		var decoder *zstd.Decoder
		// 128 MiB is the largest window that the zstd command uses without special options.
		decoder, err = zstd.NewReader(raw, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(128<<20))
		if err == nil {
			s.plain = decoder.Close
			content = decoder
		}
	case slices.ContainsFunc(tables, func(start string) bool { return bytes.HasPrefix(head, []byte(start)) }):
		return fault.Inputf("%s is a Parquet or Arrow file, expected text, gzip or zstd: shaver dataset import parquet reads it", s.Path)
	default:
		err = nil
		for name, start := range foreign {
			if bytes.HasPrefix(head, []byte(start)) {
				return fault.Inputf("%s: the file is compressed with %s, expected text, gzip or zstd", s.Path, name)
			}
		}
	}
	if err != nil {
		return s.failed(1, err)
	}
	s.lines = bufio.NewReaderSize(content, MaxLine)
	return nil
}

// members reads the members of a gzip file, one after the other. Zeros may follow a member, because some writers fill
// the last block with them.
type members struct {
	*gzip.Reader
	raw *bufio.Reader
}

func (m *members) Read(p []byte) (int, error) {
	for {
		n, err := m.Reader.Read(p)
		if err != io.EOF {
			return n, err
		} else if n > 0 { // the next call gets the end again
			return n, nil
		}
		next, err := m.raw.ReadByte()
		for err == nil && next == 0 {
			next, err = m.raw.ReadByte()
		}
		if err == nil {
			_ = m.raw.UnreadByte() // cannot fail after ReadByte
			err = m.Reset(m.raw)
		}
		if err != nil {
			return 0, err
		}
		m.Multistream(false)
	}
}

// foreign has the first bytes of files that are compressed in a way that Source cannot read.
var foreign = map[string]string{"bzip2": "BZh", "xz": "\xfd7zX", "zip": "PK\x03\x04"}

// tables has the first bytes of Parquet files, Arrow files and Arrow streams. No text has them.
var tables = []string{"PAR1\x15", "ARROW1\x00\x00", "\xff\xff\xff\xff"}

// isZstd reports whether head, the first bytes of a file, begins a zstd frame or a
// skippable frame. Files that pzstd writes begin with a skippable frame.
func isZstd(head []byte) bool {
	return bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}) || len(head) >= 4 && head[0]&0xf0 == 0x50 && bytes.Equal(head[1:4], []byte{0x2a, 0x4d, 0x18})
}

// failed returns err with the file's name. The error is bad input, in the given line, if the
// compressed data are malformed, but not if the file could not be read.
func (s *Source) failed(line int, err error) error {
	if s.raw.failure != nil {
		return fmt.Errorf("%s: %w", s.Path, s.raw.failure)
	}
	return fault.Inputf("%s:%d: the compressed data are broken: %w", s.Path, line, err)
}

// mark is the byte order mark in UTF-8.
var mark = []byte("\xef\xbb\xbf")

// Errorf returns a bad-input error that names the file and the line.
func (s *Source) Errorf(line int, format string, args ...any) error {
	return fault.Inputf("%s:%d: %w", s.Path, line, fmt.Errorf(format, args...))
}

var errTooLong = fmt.Errorf("the line is longer than %d bytes", MaxLine)

// Read returns the number of bytes read so far from the file on disk, compressed or not.
func (s *Source) Read() int64 { return s.raw.read }

// Digest returns the SHA-256 of the file, as hexadecimal digits, and its size in bytes. It
// must be called after the last byte was read. If the file has grown since then, Digest
// returns an error, because the new bytes belong to no row that was read.
func (s *Source) Digest() (digest string, size int64, err error) {
	switch more, err := io.Copy(io.Discard, &s.raw); {
	case err != nil:
		return "", 0, fmt.Errorf("%s: %w", s.Path, err)
	case more > 0:
		return "", 0, fmt.Errorf("%s grew while it was read", s.Path)
	}
	return hex.EncodeToString(s.raw.digest.Sum(nil)), s.raw.read, nil
}

// Close closes the file and frees the decompressor.
func (s *Source) Close() {
	s.plain()
	s.raw.file.Close()
}

// Content returns a reader of the decompressed file without its byte order mark. It is an
// alternative to Blocks, and the two must not be mixed. An error is bad input if the
// compressed data are malformed, but not if the file could not be read.
func (s *Source) Content() io.Reader {
	if head, _ := s.lines.Peek(len(mark)); bytes.Equal(head, mark) {
		_, _ = s.lines.Discard(len(mark)) // cannot fail, because the bytes are buffered
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
