package dataset

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
)

// BlocksName is the name of the file of Blocks in the folder.
const BlocksName = "blocks.json"

// BlocksVersion is the version of the form of Blocks.
const BlocksVersion = "shaver.blocks/1"

// Blocks lets a reader of a few rows check them without the rest of the file. It lists the blocks of each
// split's file. A block ends with a record batch, and begins where the one before it ends. For
// each block the list has the state of SHA-256 after all bytes up to its end. A reader continues
// the hash from the state before a block, and expects the state after it. What follows the last
// block leads to the digest in the manifest, so the list of another file is noticed, and the
// blocks together prove as much as the digest does. The manifest does not name the list, so a
// dataset has the same identity with and without it.
type Blocks struct {
	Version string        `json:"version"`
	Splits  []SplitBlocks `json:"splits"` // in the order of the manifest
}

// SplitBlocks has the blocks of one split.
type SplitBlocks struct {
	Name   string  `json:"name"`
	Blocks []Block `json:"blocks"` // one for each record batch
}

// Block is a part of a file.
type Block struct {
	End   int64  `json:"end"`   // number of bytes of the file up to the block's end
	State []byte `json:"state"` // state of SHA-256 after these bytes, as crypto/sha256 marshals it
}

// Add adds a block that ends after the given number of bytes. digest is the SHA-256 of these bytes.
func (s *SplitBlocks) Add(end int64, digest hash.Hash) {
	s.Blocks = append(s.Blocks, Block{end, state(digest)})
}

// Marshal returns b as JSON, with the same bytes as in the folder.
func (b *Blocks) Marshal() []byte {
	text, err := json.Marshal(b)
	if err != nil {
		panic("dataset: blocks do not marshal: " + err.Error())
	}
	return append(text, '\n')
}

// state returns the state of a SHA-256.
func state(digest hash.Hash) []byte {
	state, err := digest.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		panic("dataset: a SHA-256 does not marshal: " + err.Error())
	}
	return state
}

// resumed returns the SHA-256 with the given state.
func resumed(state []byte) (hash.Hash, error) {
	digest := sha256.New()
	return digest, digest.(encoding.BinaryUnmarshaler).UnmarshalBinary(state)
}

// blockBytes bounds the bytes of a block in the file of blocks.
const blockBytes = 256

// ParseBlocks reads the bytes of a file of blocks, and checks that it can be that of the folder
// that m describes. It checks no digest.
func ParseBlocks(data []byte, m *Manifest) (*Blocks, error) {
	b := &Blocks{}
	if err := files.Strict(data, b); err != nil {
		return nil, fault.Inputf("not a list of blocks: %w", err)
	}
	if b.Version != BlocksVersion {
		return nil, fault.Inputf("version is %q, this program reads %q", b.Version, BlocksVersion)
	}
	if len(b.Splits) != len(m.Splits) {
		return nil, fault.Inputf("%d splits, but %s states %d", len(b.Splits), ManifestName, len(m.Splits))
	}
	for k, s := range m.Splits {
		if err := b.Splits[k].check(&s, m.blocks(&s)); err != nil {
			return nil, fault.Inputf("split %s: %w", s.Name, err)
		}
	}
	return b, nil
}

// blocks returns the number of blocks of a split.
func (m *Manifest) blocks(s *Split) int64 {
	batch := int64(m.batch())
	return (s.Rows + batch - 1) / batch
}

// batch returns the number of rows of every block except the last.
func (m *Manifest) batch() int {
	form := m.RowForm()
	return form.Batch()
}

// check checks that s can have the n blocks of the split in, and brings the states into the form in which
// this program writes them.
func (s *SplitBlocks) check(in *Split, n int64) error {
	switch {
	case s.Name != in.Name:
		return fmt.Errorf("its name is %q", s.Name)
	case int64(len(s.Blocks)) != n:
		return fmt.Errorf("%d blocks, expected %d for %d rows", len(s.Blocks), n, in.Rows)
	}
	last := int64(0)
	for k := range s.Blocks {
		b := &s.Blocks[k]
		if b.End <= last || b.End > in.Bytes {
			return fmt.Errorf("block %d ends after %d bytes, expected %d to %d", k, b.End, last+1, in.Bytes)
		}
		digest, err := resumed(b.State)
		if err != nil {
			return fmt.Errorf("block %d: the state is not one of SHA-256: %w", k, err)
		}
		last, b.State = b.End, state(digest)
	}
	return nil
}

// blockList is what the folder of a part says about its blocks.
type blockList struct {
	*Blocks
	digest string // SHA-256 of the file of blocks
}

// readBlocks reads and checks the file of blocks. If the file is missing, it returns nil. The list leads to the
// digests in the manifest, but what a block contains is checked when the block is read.
func (p *part) readBlocks() (*blockList, error) {
	path := p.folder.path(BlocksName)
	file, err := p.open(BlocksName)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	most := int64(blockBytes)
	for k := range p.Splits {
		most += blockBytes * (1 + p.blocks(&p.Splits[k]))
	}
	data, err := files.Read(file, path, most>>20+1, "the blocks of a dataset")
	if err != nil {
		return nil, err
	}
	b, err := ParseBlocks(data, &p.Manifest)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for k := range b.Splits {
		if err := p.checkEnd(&p.Splits[k], b.Splits[k].Blocks); err != nil {
			return nil, err
		}
	}
	sum := sha256.Sum256(data)
	return &blockList{b, hex.EncodeToString(sum[:])}, nil
}

// checkEnd checks that the blocks of a split lead to the digest in the manifest.
func (p *part) checkEnd(s *Split, blocks []Block) error {
	file, err := p.open(s.File.File)
	if err != nil {
		return err
	}
	defer file.Close()
	last := blocks[len(blocks)-1]
	digest, err := resumed(last.State)
	if err != nil {
		return err
	}
	if _, err := io.Copy(digest, io.NewSectionReader(file, last.End, s.Bytes-last.End)); err != nil {
		return fmt.Errorf("%s: %w", p.path(s.File), err)
	}
	if hex.EncodeToString(digest.Sum(nil)) != s.SHA256 {
		return fault.Inputf("%s does not lead to the SHA-256 of %s in %s: one of the two files is corrupt or belongs to another dataset",
			p.folder.path(BlocksName), p.path(s.File), ManifestName)
	}
	return nil
}

// Blocks returns the SHA-256 of the digests of the lists of blocks of all folders, in lines, the oldest first.
// It returns "" if a folder has no list, or if d has the rows of tasks. An error says that a list cannot be read or is not that of its
// folder.
func (d *Dataset) Blocks() (digest string, err error) {
	if d.tasks != nil {
		return "", nil
	}
	sum := sha256.New()
	for _, p := range d.parts {
		list, err := p.blockList()
		if err != nil || list == nil {
			return "", err
		}
		fmt.Fprintln(sum, list.digest)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// chain reads the file of a split from the beginning of a block, and checks each block.
type chain struct {
	in     *source
	list   []Block
	file   io.ReaderAt
	bytes  io.Reader // bytes of the file from the current position on
	digest hash.Hash // SHA-256 of the bytes before the current position; nil before the first block
	at     int       // index of the current block; len(list) = what follows the last block
	left   int64     // bytes of the current block that were not read yet
}

// chain returns a reader of the file, which is open, from its beginning on. Unless block k, which is to be read
// first, is 0, begin must be called after the schema is read. The schema then needs no digest, because it is compared with the manifest.
func (s *source) chain(file io.ReaderAt, k int) (*chain, error) {
	list, err := s.blockList()
	if err != nil {
		return nil, err
	}
	if list == nil {
		return nil, fault.Inputf("%s is missing", s.folder.path(BlocksName))
	}
	c := &chain{in: s, file: file}
	for _, split := range list.Splits {
		if split.Name == s.Split.Name {
			c.list = split.Blocks
		}
	}
	if k > 0 {
		c.bytes = c.from(0, 1<<12)
		return c, nil
	}
	return c, c.begin(0)
}

// begin makes c read block k next.
func (c *chain) begin(k int) error {
	start := int64(0)
	c.at, c.digest = k, sha256.New()
	if k > 0 {
		start = c.list[k-1].End
		var err error
		if c.digest, err = resumed(c.list[k-1].State); err != nil {
			return err
		}
	}
	c.left = c.list[k].End - start
	c.bytes = c.from(start, 1<<18)
	return nil
}

// from returns a reader of the file from a position on, with a buffer of the given size.
func (c *chain) from(start int64, buffer int) io.Reader {
	return bufio.NewReaderSize(io.NewSectionReader(c.file, start, c.in.Bytes-start), buffer)
}

// Read reads bytes of the current block.
func (c *chain) Read(p []byte) (int, error) {
	if c.digest == nil {
		return c.bytes.Read(p)
	}
	if c.left == 0 {
		return 0, io.EOF
	}
	n, err := c.bytes.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	c.digest.Write(p[:n])
	return n, err
}

// end ends the current block, of which one batch with the given number of rows was read. failed is nil, or says
// why the batch is not valid. If the block is not that of the list, end returns bad input that names it,
// and failed otherwise.
func (c *chain) end(rows int, failed error) error {
	if c.at == len(c.list) {
		return failed
	}
	path, batch := c.in.path(), int64(c.in.batch())
	first := int64(c.at) * batch
	count := min(batch, c.in.Rows-first)
	rest, err := io.Copy(io.Discard, c)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if c.left > 0 || !bytes.Equal(state(c.digest), c.list[c.at].State) {
		return fault.Inputf("%s is corrupt: block %d, with the rows %d to %d, is not that of %s: restore the file, or, if it has the SHA-256 in %s, remove %s",
			path, c.at, first, first+count-1, BlocksName, ManifestName, BlocksName)
	}
	if failed != nil {
		return failed
	}
	if rest > 0 || int64(rows) != count {
		return fault.Inputf("%s: block %d has %d rows and then %d bytes, expected %d rows: remove %s", path, c.at, rows, rest, count, BlocksName)
	}
	from := c.list[c.at].End
	if c.at++; c.at < len(c.list) {
		c.left = c.list[c.at].End - from
	} else {
		c.left = c.in.Bytes - from
	}
	return nil
}
