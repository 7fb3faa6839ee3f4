package checkpoint

import (
	"archive/zip"
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/click/checkpoint/family"
	"shaver/internal/click/tensor"
)

// metadataFile is the file of a folder of torch.distributed.checkpoint that says which part of
// which other file has which part of which tensor.
const metadataFile = ".metadata"

// maxSaid bounds the bytes of the values besides tensors that a sharded checkpoint says about
// its model, such as field_dims.
const maxSaid = 1 << 20

// torchTypes maps the names of PyTorch's element types to ours.
var torchTypes = map[global]DType{
	"torch.float64": F64, "torch.float32": F32, "torch.float16": F16, "torch.bfloat16": BF16, "torch.int64": I64,
	"torch.int32": I32, "torch.int16": I16, "torch.int8": I8, "torch.uint8": U8, "torch.bool": Bool,
}

// shardFile is an open file of a sharded checkpoint.
type shardFile interface {
	io.ReaderAt
	io.Closer
}

// shards is a folder of torch.distributed.checkpoint. Each part of a tensor is a file of
// torch.save, and the parts of one process follow each other in a file such as __0_0.distcp.
type shards struct {
	name   string // of the folder
	open   func(name string) (shardFile, int64, error)
	places map[string][]place // of the parts of each tensor or other value, by its name in the folder
	sizes  map[string]int64   // of the files
	total  int64              // size of all files
	read   int64              // bytes of the tensors read so far
	said   int64              // bytes of the other values read so far
	opened int64              // bytes of the parts of files opened so far
}

// place says where a part of a tensor is stored.
type place struct {
	start          []int // index of the part's first element in the tensor
	file           string
	offset, length int64
}

// sharded is a tensor of a folder that is not read yet.
type sharded struct {
	key   string // in the folder
	named global // PyTorch's name of the type
	parts []box
}

// box is the part of a tensor whose elements have the indices from start to start + size.
type box struct{ start, size []int }

// readFolder reads a folder of torch.distributed.checkpoint, such as FSDP and torchrec write it.
// Its tensors may be divided into parts by any dimension. Besides the tensors it needs the
// memory of .metadata.
func readFolder(path, key string) (*Checkpoint, error) {
	path = filepath.Clean(path)
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	open := func(name string) (shardFile, int64, error) {
		f, err := files.OpenIn(root, name, "a file of this folder")
		if err != nil {
			return nil, 0, err
		}
		info, err := f.Stat()
		if err != nil {
			return nil, 0, errors.Join(err, f.Close())
		}
		return f, info.Size(), nil
	}
	f, size, err := open(metadataFile)
	if errors.Is(err, fs.ErrNotExist) {
		for _, pattern := range []string{"*.safetensors", "*.bin"} { // as Hugging Face saves models
			if found, _ := fs.Glob(root.FS(), pattern); len(found) == 1 {
				return nil, fault.Inputf("%s is a folder, expected a file: give %s", path, filepath.Join(path, found[0]))
			} else if len(found) > 1 {
				return nil, fault.Inputf("%s is a folder with the %d files %s, expected one: if they are one checkpoint, %s", path, len(found), pattern, joining(found[0]))
			}
		}
		return nil, fault.Inputf("%s is a folder without %s: expected a .pth, safetensors or .onnx file, or a folder of torch.distributed.checkpoint", path, metadataFile)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	name := filepath.Join(path, metadataFile)
	if size > maxPickle {
		return nil, fault.Inputf("%s has %d bytes, expected at most %d", name, size, maxPickle)
	}
	metadata := make([]byte, size)
	if _, err := io.ReadFull(io.NewSectionReader(f, 0, size), metadata); err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	return parseShards(path, metadata, open, key, sidecarFile(path))
}

// parseShards reads a folder whose .metadata is given. open opens one of its other files, and
// returns its size.
func parseShards(path string, metadata []byte, open func(string) (shardFile, int64, error), key string, sidecar family.Lookup) (*Checkpoint, error) {
	object, err := unpickle(filepath.Join(path, metadataFile), metadata)
	if err != nil {
		return nil, err
	}
	s := &shards{name: path, open: open, places: map[string][]place{}, sizes: map[string]int64{}}
	top, ordered, err := s.takeMetadata(object)
	if err != nil {
		return nil, fault.Inputf("%s: %w", filepath.Join(path, metadataFile), err)
	}
	c, said, config, err := chooseParsed(&archive{name: path, shards: s}, top, key)
	if err != nil {
		return nil, err
	}
	c.unordered = !ordered
	return c, c.recognise(said, config, sidecar)
}

// attribute returns an attribute of an object of the named class, or of any class if it is "".
func attribute(v any, class, name string) (any, bool) {
	o, ok := v.(*object)
	if !ok || class != "" && o.class != class {
		return nil, false
	}
	return o.state.get(name)
}

// takeMetadata returns the nested dicts that were saved, with the tensors and what describes
// the model. ordered reports whether they have the order of the program that saved them.
func (s *shards) takeMetadata(object any) (top *dict, ordered bool, err error) {
	const class = "torch.distributed.checkpoint.metadata.Metadata"
	v, _ := attribute(object, class, "state_dict_metadata")
	tensors, ok := v.(*dict)
	if !ok {
		return nil, false, fmt.Errorf("holds %s, expected the %s of torch.distributed.checkpoint", describe(object), class)
	}
	v, _ = attribute(object, class, "storage_data")
	stored, ok := v.(*dict)
	if !ok {
		return nil, false, fmt.Errorf("has no storage_data, expected a folder of torch.distributed.checkpoint.FileSystemWriter")
	}
	if err := s.takePlaces(stored); err != nil {
		return nil, false, err
	}
	values := make(map[string]any, len(tensors.keys))
	var keys []string
	for i, k := range tensors.keys {
		key, ok := k.(string)
		if !ok {
			return nil, false, fmt.Errorf("has %s for the name of a tensor", describe(k))
		}
		if _, ok := values[key]; ok {
			return nil, false, fmt.Errorf("has the tensor %s twice", tensor.Quote(key))
		}
		keys, values[key] = append(keys, key), tensors.values[i]
	}
	// planner_data maps the name of each value to its place in the nested dicts that were
	// saved, in their order. The order of tensors depends on which process wrote which.
	paths := make(map[string]tuple, len(keys))
	v, _ = attribute(object, class, "planner_data")
	if planned, ok := v.(*dict); ok {
		for i, k := range planned.keys {
			key, _ := k.(string)
			path, isPath := planned.values[i].(tuple)
			if _, ok := values[key]; ok && isPath && len(path) > 0 && paths[key] == nil {
				paths[key] = path
			}
		}
		at := map[string]int{}
		for i, k := range planned.keys {
			if key, ok := k.(string); ok {
				at[key] = i
			}
		}
		ordered = len(paths) == len(keys)
		slices.SortStableFunc(keys, func(a, b string) int { return cmp.Compare(at[a], at[b]) })
	}
	tree := &nested{dicts: map[slot]any{}}
	for _, key := range keys {
		path := paths[key]
		if path == nil {
			path = tuple{key}
		}
		leaf, err := s.leaf(key, path, values[key])
		if err != nil {
			return nil, false, err
		}
		if leaf == nil {
			continue
		}
		if !tree.set(path, leaf) {
			return nil, false, fmt.Errorf("gives %s a place in planner_data that another value has", tensor.Quote(key))
		}
	}
	return &tree.top, ordered, nil
}

// slot is a key of a dict.
type slot struct {
	in  *dict
	key string
}

// nested is a dict of dicts.
type nested struct {
	top   dict
	dicts map[slot]any
}

// set stores a value under a path of keys. It returns false if the place is taken.
func (n *nested) set(path tuple, value any) bool {
	at := &n.top
	for i, k := range path {
		key, ok := k.(string)
		if !ok {
			key = fmt.Sprint(k) // the number of an item of a list
		}
		here := slot{at, key}
		there, taken := n.dicts[here]
		if i == len(path)-1 {
			if taken {
				return false
			}
			at.keys, at.values = append(at.keys, key), append(at.values, value)
			n.dicts[here] = value
			return true
		}
		if !taken {
			d := &dict{}
			at.keys, at.values = append(at.keys, key), append(at.values, d)
			n.dicts[here], there = d, d
		}
		if at, ok = there.(*dict); !ok {
			return false
		}
	}
	return false
}

// leaf returns the value of a key that described says. It is nil for a value that does not describe
// the model, such as the state of an optimizer.
func (s *shards) leaf(key string, path tuple, described any) (any, error) {
	const module = "torch.distributed.checkpoint.metadata."
	size, isTensor := attribute(described, module+"TensorStorageMetadata", "size")
	if !isTensor {
		first, _ := path[0].(string)
		last, _ := path[len(path)-1].(string)
		if first == "field_dims" || first == "model_config" || first == "hyper_parameters" && last == "field_dims" {
			return s.value(key)
		}
		return nil, nil
	}
	shape, ok := sizes(size)
	if !ok {
		return nil, fmt.Errorf("tensor %s has a size that is %s, expected at most %d ints", tensor.Quote(key), describe(size), maxDimensions)
	}
	if _, ok := tensor.Count(shape); !ok {
		return nil, fmt.Errorf("tensor %s has the size %s, which overflows", tensor.Quote(key), tensor.ShapeText(shape))
	}
	v, _ := attribute(described, "", "properties")
	properties, _ := v.(*object)
	if properties == nil || len(properties.form) == 0 {
		return nil, fmt.Errorf("tensor %s has no properties with a dtype", tensor.Quote(key))
	}
	name, _ := properties.form[0].(global)
	v, _ = attribute(described, "", "chunks")
	chunks, ok := v.(*list)
	if !ok {
		return nil, fmt.Errorf("tensor %s has no chunks", tensor.Quote(key))
	}
	t := &sharded{key: key, named: name, parts: make([]box, 0, len(chunks.items))}
	for _, item := range chunks.items {
		at, _ := attribute(item, module+"ChunkStorageMetadata", "offsets")
		n, _ := attribute(item, module+"ChunkStorageMetadata", "sizes")
		start, ok := sizes(at)
		size, alsoOk := sizes(n)
		if !ok || !alsoOk || len(start) != len(shape) || len(size) != len(shape) {
			return nil, fmt.Errorf("tensor %s of size %s has a chunk without %d offsets and sizes", tensor.Quote(key), tensor.ShapeText(shape), len(shape))
		}
		if !slices.Contains(size, 0) {
			t.parts = append(t.parts, box{start, size})
		}
	}
	if !tiles(t.parts, shape, 1) && !tiles(t.parts, shape, -1) {
		return nil, fmt.Errorf("tensor %s of size %s has %d chunks that leave a gap or overlap", tensor.Quote(key), tensor.ShapeText(shape), len(t.parts))
	}
	return &tensorRef{shape: shape, sharded: t}, nil
}

// tiles reports whether each element of a tensor of the given shape is in exactly one box. It
// cuts the tensor by one dimension after the other, from the first if step is 1 and from the
// last if it is -1. It returns false for boxes that no such cuts separate. It sorts the boxes.
func tiles(boxes []box, shape []int, step int) bool {
	if n, _ := tensor.Count(shape); n == 0 {
		return len(boxes) == 0
	}
	first := 0
	if step < 0 {
		first = len(shape) - 1
	}
	return tile(boxes, shape, first, step)
}

func tile(boxes []box, shape []int, by, step int) bool {
	if by < 0 || by == len(shape) {
		return len(boxes) == 1
	}
	slices.SortFunc(boxes, func(a, b box) int { return cmp.Compare(a.start[by], b.start[by]) })
	end := 0
	for i := 0; i < len(boxes); {
		b, from := boxes[i], i
		if b.start[by] != end {
			return false
		}
		for ; i < len(boxes) && boxes[i].start[by] == end; i++ {
			if boxes[i].size[by] != b.size[by] {
				return false
			}
		}
		if !tile(boxes[from:i], shape, by+step, step) {
			return false
		}
		end += b.size[by]
	}
	return end == shape[by]
}

// takePlaces reads storage_data, which maps the parts of tensors to parts of files.
func (s *shards) takePlaces(stored *dict) error {
	for i, k := range stored.keys {
		v, _ := attribute(k, "torch.distributed.checkpoint.metadata.MetadataIndex", "fqn")
		key, ok := v.(string)
		if !ok {
			return fmt.Errorf("storage_data has %s for a key, expected a MetadataIndex", describe(k))
		}
		p := place{}
		if v, _ := attribute(k, "", "offset"); v != nil {
			if p.start, ok = sizes(v); !ok {
				return fmt.Errorf("storage_data has %s for an offset in tensor %s", describe(v), tensor.Quote(key))
			}
		}
		info := stored.values[i]
		file, _ := attribute(info, "torch.distributed.checkpoint.filesystem._StorageInfo", "relative_path")
		offset, _ := attribute(info, "", "offset")
		length, _ := attribute(info, "", "length")
		p.file, ok = file.(string)
		from, isInt := offset.(int64)
		n, alsoInt := length.(int64)
		if !ok || !isInt || !alsoInt || from < 0 || n < 0 || !filepath.IsLocal(p.file) {
			return fmt.Errorf("storage_data does not say which part of which file of this folder has %s", tensor.Quote(key))
		}
		if v, _ := attribute(info, "", "transform_descriptors"); v != nil {
			if l, ok := v.(*list); !ok || len(l.items) > 0 {
				return fmt.Errorf("%s is stored with extensions, such as a compression: save it without", tensor.Quote(key))
			}
		}
		if _, ok := s.sizes[p.file]; !ok {
			f, size, err := s.open(p.file)
			if err != nil {
				var e *fs.PathError
				if errors.As(err, &e) {
					err = e.Err // which does not name the file again
				}
				return fmt.Errorf("refers to %s, which cannot be read: %w", tensor.Quote(p.file), err)
			}
			if err := f.Close(); err != nil {
				return err
			}
			s.sizes[p.file] = size
			s.total += size
		}
		if size := s.sizes[p.file]; n > size || from > size-n {
			return fmt.Errorf("%s is in bytes %d to %d of %s, which has %d bytes: the file is cut short", tensor.Quote(key), from, from+n, tensor.Quote(p.file), size)
		}
		p.offset, p.length = from, n
		s.places[key] = append(s.places[key], p)
	}
	for _, places := range s.places {
		slices.SortStableFunc(places, func(a, b place) int { return slices.Compare(a.start, b.start) })
	}
	return nil
}

// find returns the place of the part of a tensor that begins at start.
func (s *shards) find(key string, start []int) (place, error) {
	places := s.places[key]
	i, ok := slices.BinarySearchFunc(places, start, func(p place, start []int) int { return slices.Compare(p.start, start) })
	if !ok {
		return place{}, fault.Inputf("has no part in storage_data that begins at %s", tensor.ShapeText(start))
	}
	return places[i], nil
}

// in calls use with the file of torch.save at p and its object.
func (s *shards) in(p place, use func(a *archive, object any) error) error {
	name := filepath.Join(s.name, p.file)
	if s.opened += p.length; s.opened > s.total {
		return fault.Inputf("%s at byte %d: the parts in .metadata have more bytes together than the folder's files", name, p.offset)
	}
	f, _, err := s.open(p.file)
	if err != nil {
		return err
	}
	defer f.Close()
	name = fmt.Sprintf("%s at byte %d", name, p.offset)
	a, err := openArchive(name, io.NewSectionReader(f, p.offset, p.length), p.length)
	if err != nil {
		return err
	}
	pickle, err := a.read(a.entries[a.root+"/data.pkl"], min(maxSaid, p.length))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	object, err := unpickle(name+": data.pkl", pickle)
	if err != nil {
		return err
	}
	return use(a, object)
}

// value returns a value that is no tensor.
func (s *shards) value(key string) (v any, err error) {
	places := s.places[key]
	if len(places) != 1 {
		return nil, fmt.Errorf("storage_data has %d places for %s, expected 1", len(places), tensor.Quote(key))
	}
	if s.said += places[0].length; s.said > maxSaid {
		return nil, fmt.Errorf("%s and the values before it have more than %d bytes", tensor.Quote(key), maxSaid)
	}
	err = s.in(places[0], func(_ *archive, object any) error {
		if _, ok := object.(*tensorRef); ok {
			return fault.Inputf("%s is a tensor, expected another value, as .metadata says", tensor.Quote(key))
		}
		v = object
		return nil
	})
	return v, err
}

// tensor returns t in row-major order. It reads each part into its place, without a second copy.
func (s *shards) tensor(t *sharded, shape []int) (Tensor, error) {
	n, _ := tensor.Count(shape)
	dtype := torchTypes[t.named]
	width := dtype.Size()
	if width == 0 {
		return Tensor{}, fault.Inputf("has elements of the unsupported type %s", describe(t.named))
	}
	if int64(n) > (s.total-s.read)/int64(width) {
		return Tensor{}, fault.Inputf("and the tensors before it have more bytes than the %d of the folder's files", s.total)
	}
	s.read += int64(n * width)
	places := make([]place, len(t.parts))
	for i, part := range t.parts {
		var err error
		if places[i], err = s.find(t.key, part.start); err != nil {
			return Tensor{}, err
		}
		if n, _ := tensor.Count(part.size); int64(n) > places[i].length/int64(width) {
			return Tensor{}, fault.Inputf("has a part of shape %s in %d bytes of %s", tensor.ShapeText(part.size), places[i].length, tensor.Quote(places[i].file))
		}
	}
	if n == 0 {
		return Tensor{DType: dtype, Shape: shape, Data: nil}, nil
	}
	data := make([]byte, n*width)
	for i, part := range t.parts {
		err := s.in(places[i], func(a *archive, object any) error {
			ref, ok := object.(*tensorRef)
			if !ok || ref.storage.dtype != dtype || !slices.Equal(ref.shape, part.size) {
				return fault.Inputf("%s is not a part of type %s and shape %s, as .metadata says", a.name, dtype, tensor.ShapeText(part.size))
			}
			if err := a.copyTo(data, shape, part, ref); err != nil {
				return fmt.Errorf("%s: tensor %w", a.name, err)
			}
			return nil
		})
		if err != nil {
			return Tensor{}, fmt.Errorf("cannot be read: %w", err)
		}
	}
	return Tensor{DType: dtype, Shape: shape, Data: data}, nil
}

// copyTo reads t, which is a part of a tensor of the given shape, into the tensor's data.
func (a *archive) copyTo(data []byte, shape []int, part box, t *tensorRef) error {
	width := t.storage.dtype.Size()
	n, _ := tensor.Count(t.shape)
	entry := a.entries[a.root+"/data/"+t.storage.key]
	if t.offset != 0 || n != t.storage.elements || !rowMajor(t.shape, t.stride) || entry == nil || entry.Method != zip.Store {
		whole, err := a.tensor(t)
		if err != nil {
			return err
		}
		at := 0
		return runs(shape, part, func(from, n int) error {
			at += copy(data[from*width:(from+n)*width], whole.Data[at:])
			return nil
		})
	}
	if size := int64(n * width); entry.UncompressedSize64 != uint64(size) {
		return fault.Inputf("needs %d bytes in storage %s, the file holds %d", size, tensor.Quote(t.storage.key), entry.UncompressedSize64)
	}
	r, err := entry.Open()
	if err != nil {
		return fmt.Errorf("cannot be read: %w", damaged(err))
	}
	defer r.Close()
	b := bufio.NewReaderSize(r, 1<<16) // long runs go past its buffer
	err = runs(shape, part, func(from, n int) error {
		_, err := io.ReadFull(b, data[from*width:(from+n)*width])
		return err
	})
	if err == nil { // the zip reader verifies the checksum at the end of the entry
		if _, err = b.ReadByte(); err == io.EOF {
			return nil
		} else if err == nil {
			err = io.ErrUnexpectedEOF
		}
	}
	return fmt.Errorf("cannot be read: entry %s: %w", tensor.Quote(entry.Name), damaged(err))
}

// runs calls use for each run of elements of a part that follow each other in a tensor of
// the given shape, in row-major order. from is the number of the first one in the tensor. The part
// is not empty.
func runs(shape []int, part box, use func(from, n int) error) error {
	cut := 0 // the dimensions after it are whole
	for i := range shape {
		if part.size[i] < shape[i] {
			cut = i
		}
	}
	n, step := 1, make([]int, len(shape)) // elements between neighbours of a dimension
	for i, stride := len(shape)-1, 1; i >= 0; i-- {
		if i >= cut {
			n *= part.size[i]
		}
		step[i] = stride
		stride *= shape[i]
	}
	from := 0
	for i, start := range part.start {
		from += start * step[i]
	}
	index := make([]int, min(cut, len(shape)))
	for {
		if err := use(from, n); err != nil {
			return err
		}
		i := len(index) - 1
		for ; i >= 0; i-- {
			index[i]++
			from += step[i]
			if index[i] < part.size[i] {
				break
			}
			from -= index[i] * step[i]
			index[i] = 0
		}
		if i < 0 {
			return nil
		}
	}
}
