// Package seal makes files that contain their own digest. The digest is the SHA-256 of the
// whole file, computed with 64 zeros in every place of the digest. So it covers every byte
// of the file, and a reader can check it with a few lines in any language.
package seal

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"shaver/internal/base/fault"
)

// Blank stands in the places of the digest while the digest is computed. It is as long as
// a digest.
const Blank = "0000000000000000000000000000000000000000000000000000000000000000"

// Of returns the digest of the content that write writes. The content must have Blank in
// the places of the digest.
func Of(write func(io.Writer) error) (string, error) {
	sum := sha256.New()
	if err := write(sum); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// Check returns bad input unless digest is the digest of content. name stands for the
// content in errors. If content cannot be read, Check returns the error of content.
func Check(name string, content io.Reader, digest string) error {
	if len(digest) != len(Blank) || strings.Trim(digest, "0123456789abcdef") != "" {
		return fault.Inputf("%s is damaged: its digest is missing or malformed", name)
	}
	found, err := blanked(content, []byte(digest))
	if err != nil {
		return err
	}
	if found != digest {
		return fault.Inputf("%s is damaged: its content does not match its digest", name)
	}
	return nil
}

// blanked returns the SHA-256 of content with Blank in every place of digest.
func blanked(content io.Reader, digest []byte) (string, error) {
	sum := sha256.New()
	window := make([]byte, 0, 1<<16)
	for {
		n, err := io.ReadFull(content, window[len(window):cap(window)])
		window = window[:len(window)+n]
		for at := 0; ; {
			next := bytes.Index(window[at:], digest)
			if next < 0 {
				break
			}
			at += next + copy(window[at+next:], Blank)
		}
		switch err {
		case nil:
			hashed := len(window) - (len(digest) - 1) // the rest may be the beginning of a digest
			sum.Write(window[:hashed])
			window = window[:copy(window, window[hashed:])]
		case io.EOF, io.ErrUnexpectedEOF:
			sum.Write(window)
			return hex.EncodeToString(sum.Sum(nil)), nil
		default:
			return "", fmt.Errorf("reading it again: %w", err)
		}
	}
}
