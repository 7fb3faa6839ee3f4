package checkpoint

import (
	"bytes"
	"strings"
)

// storageTypes maps the classes of storages to the types of their elements.
var storageTypes = map[global]DType{
	"torch.DoubleStorage":          F64,
	"torch.FloatStorage":           F32,
	"torch.HalfStorage":            F16,
	"torch.BFloat16Storage":        BF16,
	"torch.LongStorage":            I64,
	"torch.IntStorage":             I32,
	"torch.ShortStorage":           I16,
	"torch.CharStorage":            I8,
	"torch.ByteStorage":            U8,
	"torch.BoolStorage":            Bool,
	"torch.storage.UntypedStorage": U8,
}

// storageRef is a storage, which the archive holds in an entry of its own.
type storageRef struct {
	key      string
	dtype    DType
	elements int
}

// tensorRef is a tensor of the pickle that is not read yet, a view of a storage. Offset
// and strides are in elements.
type tensorRef struct {
	storage       *storageRef
	offset        int
	shape, stride []int
	sharded       *sharded // the parts of a tensor of a folder, which has no storage; otherwise nil
}

// maxDimensions is PyTorch's own limit.
const maxDimensions = 64

// call runs op if it names, calls or restores something from Python's modules, and
// otherwise returns false.
func (u *unpickler) call(op byte) bool {
	switch op {
	case opGlobal:
		module, name := u.line(), u.line()
		u.push(global(module + "." + name))
	case opStackGlobal:
		name, isName := u.pop().(string)
		module, isModule := u.pop().(string)
		if !isName || !isModule {
			u.fail("names a global at byte %d by a value that is not text", u.at)
		}
		if u.decoded += len(module) + len(name); u.decoded > len(u.data) {
			u.fail("makes more text than it holds")
			return true
		}
		u.push(global(module + "." + name))
	case opReduce:
		args := u.arguments()
		u.reduce(u.pop(), args)
	case opNewObject:
		args := u.arguments()
		u.instance(u.pop(), args)
	case opNewObjectEx:
		u.pop() // named arguments, which only the class could use
		args := u.arguments()
		u.instance(u.pop(), args)
	case opBuild:
		state := u.pop()
		u.build(u.top(), state)
	case opPersistent:
		u.persistent(u.pop())
	default:
		return false
	}
	return true
}

// line returns the text up to the next line feed.
func (u *unpickler) line() string {
	n := bytes.IndexByte(u.data[u.at:], '\n')
	if n < 0 {
		n = len(u.data) // so that take fails
	}
	text := string(u.take(n))
	u.take(1)
	return text
}

func (u *unpickler) arguments() tuple {
	v := u.pop()
	args, ok := v.(tuple)
	if !ok {
		u.fail("calls something at byte %d with %s for arguments", u.at, describe(v))
	}
	return args
}

// instance pushes a new instance of class.
func (u *unpickler) instance(class any, args tuple) {
	switch {
	case u.err != nil:
	case class == any(global("collections.OrderedDict")):
		u.reduce(class, args)
	default:
		u.made(newObject(class, args))
	}
}

// reduce pushes the value of function(*args) if function is on the list, and otherwise an
// inert object.
func (u *unpickler) reduce(function any, args tuple) {
	if u.err != nil {
		return
	}
	name, _ := function.(global)
	var v any
	ok := false
	switch name {
	case "collections.OrderedDict":
		v, ok = &dict{}, len(args) == 0
	case "torch._utils._rebuild_tensor_v2":
		v, ok = rebuildTensor(args)
	case "torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state":
		if ok = len(args) == 3 || len(args) == 4; ok {
			v, ok = args[0].(*tensorRef)
		}
	case "torch._tensor._rebuild_from_type_v2": // a tensor with attributes
		if ok = len(args) == 4; ok {
			inner, _ := args[2].(tuple)
			if args[0] == any(global("torch._utils._rebuild_tensor_v2")) {
				v, ok = rebuildTensor(inner)
			} else {
				v = newObject(args[1], inner)
			}
		}
	case "torch.Size":
		if ok = len(args) == 1; ok {
			v, ok = args[0].(tuple)
		}
	case "torch.device":
		v, ok = opaque("a torch.device"), true
	case "numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct":
		v, ok = &ndarray{}, len(args) == 3 && args[0] == any(global("numpy.ndarray"))
	case "numpy.core.numeric._frombuffer", "numpy._core.numeric._frombuffer":
		v, ok = arrayFromBuffer(args)
	case "numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar":
		v, ok = scalar(args)
	case "numpy.dtype":
		v, ok = newNumpyType(args)
	case "_codecs.encode":
		v, ok = u.encode(args)
	case "__builtin__.bytes", "builtins.bytes":
		v, ok = []byte{}, len(args) == 0
	default:
		v, ok = newObject(function, args), true
	}
	if !ok && strings.HasPrefix(string(name), "numpy.") { // an array of text or objects, for example
		v, ok = newObject(function, args), true
	}
	if !ok {
		u.fail("calls %s with arguments that torch.save does not give it", name)
		return
	}
	u.made(v)
}

// encode evaluates _codecs.encode(text, "latin1"), which is how protocol 2 writes bytes.
func (u *unpickler) encode(args tuple) ([]byte, bool) {
	if len(args) != 2 || args[1] != any("latin1") && args[1] != any("latin-1") {
		return nil, false
	}
	text, ok := args[0].(string)
	if u.decoded += len(text); !ok || u.decoded > len(u.data) {
		return nil, false // torch.save encodes each text once, so the file is hostile
	}
	encoded := make([]byte, 0, len(text))
	for _, r := range text {
		if r > 0xff {
			return nil, false
		}
		encoded = append(encoded, byte(r))
	}
	return encoded, true
}

// build restores the state of target.
func (u *unpickler) build(target, state any) {
	if u.err != nil {
		return
	}
	ok := false
	switch target := target.(type) {
	case *dict: // the state holds attributes of an OrderedDict, such as _metadata, not its items
		_, ok = state.(*dict)
	case *ndarray:
		ok = target.restore(state)
	case *numpyType:
		ok = target.restore(state)
	case *object:
		u.restore(target, state)
		ok = true
	}
	if !ok {
		u.fail("gives %s a state at byte %d that torch.save does not write", describe(target), u.at)
	}
}

// persistent pushes the storage that id refers to. id is the tuple ("storage", class,
// key, device, elements).
func (u *unpickler) persistent(id any) {
	if u.err != nil {
		return
	}
	args, ok := id.(tuple)
	if !ok || len(args) != 5 || args[0] != any("storage") {
		u.fail("refers at byte %d to something that is not a storage", u.at)
		return
	}
	class, _ := args[1].(global)
	key, isText := args[2].(string)
	n, isInt := args[4].(int64)
	if !isText || !isInt || n < 0 || n > 1<<48 {
		u.fail("refers to a storage at byte %d without a key or with a size of %s", u.at, describe(args[4]))
		return
	}
	dtype, ok := storageTypes[class]
	if !ok {
		u.fail("holds a storage of the unsupported class %s: save tensors of float32, and dequantise those that are quantised", describe(args[1]))
		return
	}
	u.made(&storageRef{key, dtype, int(n)})
}

// rebuildTensor evaluates torch._utils._rebuild_tensor_v2(storage, offset, size, stride,
// requires_grad, backward_hooks, metadata=None).
func rebuildTensor(args tuple) (any, bool) {
	if len(args) != 6 && len(args) != 7 {
		return nil, false
	}
	storage, ok := args[0].(*storageRef)
	if !ok {
		return nil, false
	}
	offset, isInt := args[1].(int64)
	shape, isShape := sizes(args[2])
	stride, isStride := sizes(args[3])
	if !isInt || offset < 0 || !isShape || !isStride || len(shape) != len(stride) {
		return nil, false
	}
	return &tensorRef{storage: storage, offset: int(offset), shape: shape, stride: stride}, true
}

// sizes converts a tuple of at most maxDimensions ints, each from 0 to 2^48.
func sizes(v any) ([]int, bool) {
	items, ok := v.(tuple)
	if !ok || len(items) > maxDimensions {
		return nil, false
	}
	values := make([]int, len(items))
	for i, item := range items {
		n, ok := item.(int64)
		if !ok || n < 0 || n > 1<<48 {
			return nil, false
		}
		values[i] = int(n)
	}
	return values, true
}
