package checkpoint

import (
	"archive/zip"
	"compress/flate"
	"errors"
	"fmt"
	"io"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/click/tensor"
)

const (
	maxPickle = 64 << 20 // bytes of data.pkl; real ones have a few kilobytes
	// A storage is normally not compressed. All compressed entries together may expand to
	// maxGrowth times the file's size plus growthSlack, in bytes.
	maxGrowth   = 64
	growthSlack = 64 << 20
	// A tensor may have more elements than its storage, because a stride may be 0.
	// smallTensor is the largest number of elements of such a tensor.
	smallTensor = 1 << 16
)

// archive is a zip file of torch.save. It holds <root>/data.pkl and the raw storages
// <root>/data/<key>. Or it is one of torch.export.save, with weightsFile and raw storages next to it.
type archive struct {
	name     string
	size     int64 // size of the file in bytes
	root     string
	entries  map[string]*zip.File
	storages map[string][]byte
	weights  *zip.File // weightsFile of torch.export.save; otherwise nil
	shards   *shards   // of a folder, which has nothing but a name in the other fields; otherwise nil
	stored   int64     // bytes read so far from uncompressed entries
	inflated int64     // bytes read so far from compressed entries
	copied   int64     // bytes copied so far to lay out strided tensors
}

func openArchive(name string, r io.ReaderAt, size int64) (*archive, error) {
	z, err := zip.NewReader(io.NewSectionReader(r, 0, size), size) // which gives EOF for a negative offset
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		return nil, fmt.Errorf("%s: %w", name, damaged(err))
	}
	a := &archive{name: name, size: size, entries: map[string]*zip.File{}, storages: map[string][]byte{}}
	for _, f := range z.File {
		if a.entries[f.Name] != nil {
			return nil, fault.Inputf("%s: entry %s occurs twice", name, tensor.Quote(f.Name))
		}
		a.entries[f.Name] = f
		root, rest, _ := strings.Cut(f.Name, "/")
		switch {
		case rest == "constants.pkl" || strings.HasPrefix(rest, "code/"):
			return nil, fault.Inputf("%s is a TorchScript archive: save the model's state_dict() with torch.save instead", name)
		case rest == "data.pkl" && a.root != "":
			return nil, fault.Inputf("%s holds two pickles, %s and %s: expected one file of torch.save", name, tensor.Quote(a.root+"/data.pkl"), tensor.Quote(f.Name))
		case rest == "data.pkl", rest == weightsFile && a.root == "":
			if a.root = root; rest == weightsFile {
				a.weights = f
			}
		}
	}
	if a.root == "" {
		return nil, fault.Inputf("%s is a zip file without data.pkl: expected one file of torch.save", name)
	}
	if order := a.entries[a.root+"/byteorder"]; order != nil {
		text, err := a.read(order, 16)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if strings.TrimSpace(string(text)) != "little" {
			return nil, fault.Inputf("%s has the byte order %s: only little-endian files are read", name, tensor.Quote(string(text)))
		}
	}
	return a, nil
}

// damaged turns err, met while reading the archive, into an input error if the file is at
// fault.
func damaged(err error) error {
	var corrupt flate.CorruptInputError
	for _, input := range []error{zip.ErrFormat, zip.ErrAlgorithm, zip.ErrChecksum, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, input) {
			return fault.Inputf("the file is cut short or damaged: %w", err)
		}
	}
	if errors.As(err, &corrupt) {
		return fault.Inputf("the file is damaged: %w", err)
	}
	return err
}

// read returns the bytes of an entry of at most limit bytes and verifies its checksum.
func (a *archive) read(f *zip.File, limit int64) ([]byte, error) {
	size := int64(f.UncompressedSize64)
	switch {
	case size < 0 || size > limit:
		return nil, fault.Inputf("entry %s claims %d bytes, expected at most %d", tensor.Quote(f.Name), f.UncompressedSize64, limit)
	case f.Flags&1 != 0:
		return nil, fault.Inputf("entry %s is encrypted", tensor.Quote(f.Name))
	case f.Method == zip.Store:
		if a.stored += size; a.stored > a.size {
			return nil, fault.Inputf("entry %s claims %d bytes, more than the file has", tensor.Quote(f.Name), size)
		}
	default:
		if a.inflated += size; a.inflated > maxGrowth*a.size+growthSlack {
			return nil, fault.Inputf("entry %s claims %d bytes, over %d times the file: save it uncompressed", tensor.Quote(f.Name), size, maxGrowth)
		}
	}
	r, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("entry %s: %w", tensor.Quote(f.Name), damaged(err))
	}
	defer r.Close()
	var data []byte
	if f.Method == zip.Store {
		data = make([]byte, size)
		_, err = io.ReadFull(r, data)
		if err == nil { // the zip reader verifies the checksum at the end of the entry
			if _, err = io.ReadFull(r, make([]byte, 1)); err == io.EOF {
				err = nil
			}
		}
	} else {
		data, err = io.ReadAll(io.LimitReader(r, size+1))
	}
	if err == nil && int64(len(data)) != size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("entry %s: %w", tensor.Quote(f.Name), damaged(err))
	}
	return data, nil
}

// storage returns the bytes of a storage. It reads each storage once.
func (a *archive) storage(s *storageRef) ([]byte, error) {
	want := int64(s.elements) * int64(s.dtype.Size())
	data, ok := a.storages[s.key]
	if !ok {
		f := a.entries[a.root+"/"+a.storageFolder()+s.key]
		if f == nil {
			return nil, fault.Inputf("refers to storage %s, which the file does not hold", tensor.Quote(s.key))
		}
		if f.UncompressedSize64 != uint64(want) {
			return nil, fault.Inputf("needs %d bytes in storage %s, the file holds %d", want, tensor.Quote(s.key), f.UncompressedSize64)
		}
		var err error
		if data, err = a.read(f, want); err != nil {
			return nil, fmt.Errorf("cannot be read: %w", err)
		}
		a.storages[s.key] = data
	}
	if int64(len(data)) != want {
		return nil, fault.Inputf("needs %d bytes in storage %s, another tensor needs %d", want, tensor.Quote(s.key), len(data))
	}
	return data, nil
}

// tensor returns t in row-major order. If t is stored in that order, the result shares the
// storage's memory.
func (a *archive) tensor(t *tensorRef) (Tensor, error) {
	if t.sharded != nil {
		return a.shards.tensor(t.sharded, t.shape)
	}
	n, ok := tensor.Count(t.shape)
	if !ok || n > max(t.storage.elements, smallTensor) {
		return Tensor{}, fault.Inputf("claims shape %s on a storage of %d elements", tensor.ShapeText(t.shape), t.storage.elements)
	}
	last := t.offset // index of the last element of the storage that t reaches
	for i, size := range t.shape {
		if n > 0 && size > 1 && t.stride[i] > (t.storage.elements-last)/(size-1) {
			return Tensor{}, fault.Inputf("with shape %s, strides %s and offset %d exceeds its storage of %d elements",
				tensor.ShapeText(t.shape), tensor.ShapeText(t.stride), t.offset, t.storage.elements)
		}
		if n > 0 {
			last += (size - 1) * t.stride[i]
		}
	}
	if n > 0 && last >= t.storage.elements {
		return Tensor{}, fault.Inputf("at offset %d exceeds its storage of %d elements", t.offset, t.storage.elements)
	}
	width := t.storage.dtype.Size()
	if n == 0 {
		return Tensor{DType: t.storage.dtype, Shape: t.shape, Data: nil}, nil
	}
	data, err := a.storage(t.storage)
	if err != nil {
		return Tensor{}, err
	}
	if rowMajor(t.shape, t.stride) {
		return Tensor{DType: t.storage.dtype, Shape: t.shape, Data: data[t.offset*width : (t.offset+n)*width]}, nil
	}
	if a.copied += int64(n * width); a.copied > 2*a.size+growthSlack {
		return Tensor{}, fault.Inputf("and the strided tensors before it need more than twice the file's size: save contiguous tensors")
	}
	return Tensor{DType: t.storage.dtype, Shape: t.shape, Data: gather(data, t, n, width)}, nil
}

// rowMajor reports whether the strides are those of a row-major array without gaps.
func rowMajor(shape, stride []int) bool {
	step := 1
	for i := len(shape) - 1; i >= 0; i-- {
		if shape[i] > 1 && stride[i] != step {
			return false
		}
		step *= shape[i]
	}
	return true
}

// gather copies the n elements of t, each width bytes wide, in row-major order.
func gather(data []byte, t *tensorRef, n, width int) []byte {
	out := make([]byte, 0, n*width)
	index := make([]int, len(t.shape))
	at := t.offset
	for range n {
		out = append(out, data[at*width:(at+1)*width]...)
		for i := len(index) - 1; i >= 0; i-- {
			index[i]++
			at += t.stride[i]
			if index[i] < t.shape[i] {
				break
			}
			at -= index[i] * t.stride[i]
			index[i] = 0
		}
	}
	return out
}
