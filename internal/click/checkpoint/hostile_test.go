package checkpoint

import (
	"archive/zip"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/compact"
)

// Nothing that a pickle names is run. Every file below is refused with a one-line error.
func TestHostilePickles(t *testing.T) {
	long := func(parts ...any) string { return pickled(parts...) }
	mib := strings.Repeat("x", 1<<20)
	many := func(part any, n int) []any {
		parts := make([]any, n)
		for i := range parts {
			parts[i] = part
		}
		return parts
	}
	for name, test := range map[string]struct {
		pickle string
		want   string
	}{
		"system":       {pickled(named("os system"), opMark, "echo", opTuple, opReduce), "holds an object of os.system, expected a state dict"},
		"posix":        {pickled(named("posix system"), "echo", []byte{opTuple1}, opReduce), "holds an object of posix.system"},
		"stack global": {pickled("os", "system", []byte{opStackGlobal}, "echo", []byte{opTuple1}, opReduce), "holds an object of os.system"},
		"new object":   {pickled(named("subprocess Popen"), opEmptyTuple, []byte{opNewObject}), "holds an object of subprocess.Popen"},
		"bytes loader": {pickled(named("torch.storage _load_from_bytes"), opEmptyTuple, opReduce), "holds an object of torch.storage._load_from_bytes"},
		"odd name":     {pickled(named("o\x1b[2J s\x00ystem"), opEmptyTuple, opReduce), `holds an object of "o\x1b[2J.s\x00ystem"`},
		"call a call":  {pickled(named("collections OrderedDict"), opEmptyTuple, opReduce, opEmptyTuple, opReduce), "holds an object, expected"},
		"build":        {pickled(named("os system"), opEmptyDict, opBuild), "gives \"os.system\" a state"},
		"build list":   {pickled(opEmptyList, opEmptyDict, opBuild), "gives a list a state"},
		"old protocol": {"\x80\x01N.", "protocol 2 to 5"},
		"inst":         {"\x80\x02(ios\nsystem\n.", "opcode 0x69"},
		"ext":          {"\x80\x02\x82\x01.", "opcode 0x82"},
		"no value":     {pickled(opPop), "takes a value from the empty stack"},
		"no mark":      {pickled(opTuple), "a mark at byte 3"},
		"past a mark":  {pickled("x", opMark, []byte{opTuple1}), "takes a value from the empty stack"},
		"no memo":      {pickled(opGet, []byte{7}), "fetches value 7"},
		"long text":    {"\x80\x02X\xff\xff\xff\x7fabc.", "claims 2147483647 bytes"},
		"longer text":  {"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xffabc.", "claims 18446744073709551615 bytes"},
		"long int":     {"\x80\x02\x8b\xff\xff\xff\xffabc.", "claims 4294967295 bytes"},
		"dict key":     {pickled(opEmptyDict, opEmptyDict, opNone, opSetItem), "whose key is a dict"},
		"odd pairs":    {pickled(opEmptyDict, opMark, opNone, opSetItems), "a key without a value"},
		"append":       {pickled(opEmptyDict, opNone, opAppend), "appends at byte"},
		"set item":     {pickled(opEmptyList, opNone, opNone, opSetItem), "sets an item"},
		"no tensor":    {pickled(named("torch._utils _rebuild_tensor_v2"), opEmptyTuple, opReduce), "with arguments that torch.save does not give it"},
		"no storage":   {pickled("x", opPersistent), "not a storage"},
		"class":        {pickled(opMark, "storage", named("torch ComplexFloatStorage"), "0", "cpu", 1, opTuple, opPersistent), "torch.ComplexFloatStorage"},
		"big endian":   {pickled(named("numpy dtype"), "i8", []byte{opTuple1}, opReduce, opMark, 3, ">", opTuple, opBuild), "a state at byte"},
		"object array": {pickled(named("numpy dtype"), "O8", []byte{opTuple1}, opReduce), "holds an object of numpy.dtype"},
		"stack":        {long(many(opNone, maxValues+1)...), "lists more than"},
		"marks":        {long(many(opMark, maxValues+1)...), "open marks"},
		"containers":   {long(append([]any{opEmptyList}, many([]byte{opEmptyDict, '0'}, maxValues)...)...), "more than 1048576 lists"},
		"encoded twice": {pickled(append([]any{mib, opPut, []byte{0}}, many([]byte("c_codecs\nencode\n(h\x00X\x06\x00\x00\x00latin1tR0"), 40)...)...),
			"_codecs.encode with arguments"},
		"a list": {pickled(opEmptyList), "holds a list, expected a state dict"},
		"itself": {pickled(opEmptyDict, opPut, []byte{0}, "x", opGet, []byte{0}, opSetItem), "x is a dict, expected a tensor"},
		"keys":   {pickled(opEmptyDict, 5, opNone, opSetItem), "has the int 5 for a key"},
		"module": {pickled(opEmptyDict, "state_dict", opNone, opSetItem), "state_dict is None"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("model.pth", zipBytes(t, zip.Store, "m/data.pkl", test.pickle))
			wantInput(t, err, "model.pth", test.want)
		})
	}
}

// Equal values compress a thousandfold and take 16 bytes each in memory.
func TestHostileItems(t *testing.T) {
	const enough = maxItems/1000 + 1
	nones := strings.Repeat("N", 1000)
	for name, body := range map[string]string{
		"append":    "]" + strings.Repeat("Na", maxItems+1),
		"appends":   "]" + strings.Repeat("("+nones+"e", enough),
		"list":      strings.Repeat("("+nones+"l0", enough),
		"tuple":     strings.Repeat("("+nones+"t0", enough),
		"dict":      strings.Repeat("("+nones+"d0", enough),
		"set item":  "}" + strings.Repeat("NNs", maxItems/2+1),
		"set items": "}" + strings.Repeat("("+nones+"u", enough),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("model.pth", zipBytes(t, zip.Deflate, "m/data.pkl", "\x80\x02"+body+"."))
			wantInput(t, err, "model.pth: data.pkl has lists, tuples and dicts of more than 4194304 values")
		})
	}
}

// Equal elements of a vector compress a thousandfold too.
func TestHostileFieldDims(t *testing.T) {
	zeros := strings.Repeat("\x00", maxFields+1)
	vector := []any{named("numpy.core.numeric _frombuffer"), opMark, []byte{opBytes, 1, 0, 1, 0}, []byte(zeros),
		named("numpy dtype"), "u1", []byte{opTuple1}, opReduce, maxFields + 1, []byte{opTuple1}, "C", opTuple, opReduce}
	tensor := tensorParts("ByteStorage", "0", maxFields+1, 0, []int{maxFields + 1}, []int{1})
	for _, dims := range [][]any{vector, tensor} {
		parts := append(append([]any{opEmptyDict, "state_dict", opEmptyDict, opSetItem, "field_dims"}, dims...), opSetItem)
		_, err := Parse("model.pth", zipBytes(t, zip.Store, "m/data.pkl", pickled(parts...), "m/data/0", zeros))
		wantInput(t, err, "model.pth: field_dims has 65537 values, expected at most 65536")
	}
}

// A tensor cannot claim more than its storage, and a storage cannot claim more than the
// file.
func TestHostileTensors(t *testing.T) {
	const huge = 1 << 40
	ten := strings.Repeat("\x00\x00\x80\x3f", 10)
	for name, test := range map[string]struct {
		elements, offset int
		shape, stride    []int
		want             string
	}{
		"broadcast":       {10, 0, []int{huge, 1}, []int{0, 1}, "claims shape [1099511627776, 1] on a storage of 10"},
		"product":         {10, 0, []int{huge, huge}, []int{0, 0}, "claims shape"},
		"beyond":          {10, 0, []int{3, 4}, []int{4, 1}, "exceeds its storage of 10 elements"},
		"offset":          {10, 7, []int{2, 2}, []int{2, 1}, "exceeds its storage"},
		"far offset":      {10, math.MaxInt, []int{2}, []int{1}, "exceeds its storage"},
		"far offset, 0":   {10, 1 << 50, []int{1}, []int{0}, "exceeds its storage"},
		"stride":          {10, 0, []int{2}, []int{1 << 48}, "exceeds its storage"},
		"storage":         {huge, 0, []int{2}, []int{1}, "needs 4398046511104 bytes in storage \"0\", the file holds 40"},
		"negative":        {10, 0, []int{2}, []int{-1}, "arguments that torch.save does not give it"},
		"rank":            {10, 0, []int{2, 2}, []int{1}, "arguments that torch.save does not give it"},
		"negative offset": {10, -1, []int{2}, []int{1}, "arguments that torch.save does not give it"},
	} {
		t.Run(name, func(t *testing.T) {
			value := tensorParts("FloatStorage", "0", test.elements, test.offset, test.shape, test.stride)
			_, err := Parse("model.pth", pthBytes(t, "embedding.weight", value, "m/data/0", ten))
			wantInput(t, err, "model.pth", test.want)
		})
	}
	value := tensorParts("FloatStorage", "gone", 10, 0, []int{10}, []int{1})
	_, err := Parse("model.pth", pthBytes(t, "fc.weight", value))
	wantInput(t, err, "tensor fc.weight refers to storage \"gone\"")
}

func TestHostileArchives(t *testing.T) {
	empty := pickled(opEmptyDict)
	value := tensorParts("FloatStorage", "0", 20<<20, 0, []int{20 << 20}, []int{1})
	bomb := pickled(append(append([]any{opEmptyDict, "embedding.weight"}, value...), opSetItem)...)
	for name, test := range map[string]struct {
		data []byte
		want string
	}{
		"empty":       {zipBytes(t, zip.Store), "without data.pkl"},
		"other":       {zipBytes(t, zip.Store, "m/readme", "x"), "without data.pkl"},
		"two":         {zipBytes(t, zip.Store, "a/data.pkl", empty, "b/data.pkl", empty), "two pickles"},
		"twice":       {zipBytes(t, zip.Store, "a/data.pkl", empty, "a/data.pkl", empty), "occurs twice"},
		"big endian":  {zipBytes(t, zip.Store, "a/data.pkl", empty, "a/byteorder", "big"), "byte order"},
		"TorchScript": {zipBytes(t, zip.Store, "a/data.pkl", empty, "a/constants.pkl", empty), "TorchScript"},
		"code":        {zipBytes(t, zip.Store, "a/code/m.py", "", "a/data.pkl", empty), "TorchScript"},
		"bomb":        {zipBytes(t, zip.Deflate, "m/data.pkl", bomb, "m/data/0", strings.Repeat("\x00", 80<<20)), "over 64 times the file"},
		"no model":    {zipBytes(t, zip.Deflate, "m/data.pkl", empty), "tensor embedding.weight is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("model.pth", test.data)
			wantInput(t, err, "model.pth", test.want)
		})
	}
	data := zipBytes(t, zip.Store, "m/data.pkl", empty)
	data[strings.Index(string(data), empty)+2] ^= 1
	_, err := Parse("model.pth", data)
	wantInput(t, err, "damaged", "checksum")
}

// A large file that is not a model, such as a log, is refused after its first bytes.
func TestLargeFileOfAnotherKind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.tsv")
	const size = 64 << 20
	if err := errors.Join(os.WriteFile(path, []byte("label\tuser\titem\n"), 0o600), os.Truncate(path, size)); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Read(path)
	runtime.ReadMemStats(&after)
	wantInput(t, err, `log.tsv is text (it begins with "label"), expected a .pth, safetensors or .onnx file`)
	if took := after.TotalAlloc - before.TotalAlloc; took > size/64 {
		t.Errorf("refusing the file took %d bytes of memory", took)
	}
}

// A large state dict whose header already refuses it takes no memory for its tensors. One that only its values could refuse is read.
func TestLargeStateDict(t *testing.T) {
	const rows = 1 << 22
	table := fmt.Sprintf(`"embedding.weight":{"dtype":"F32","shape":[%d,4],"data_offsets":[0,%d]},"fc.weight":{"dtype":"F32","shape":[%d,1],"data_offsets":[%d,%d]},"_bias":{"dtype":"F32","shape":[1],"data_offsets":[%d,%d]}`,
		rows, 16*rows, rows, 16*rows, 20*rows, 20*rows, 20*rows+4)
	offsets := fmt.Sprintf(`,"offsets":{"dtype":"I64","shape":[1],"data_offsets":[%d,%d]}`, 20*rows+4, 20*rows+12)
	for name, test := range map[string]struct{ tensors, said, want string }{
		"sizes":   {table, `{"field_dims": [24, 16]}`, "field_dims sum to 40, but tensor embedding.weight has 4194304 rows"},
		"no size": {table, "", "does not say its field sizes"},
		"name":    {strings.Replace(table, "fc.w", "fw.w", 1), `{"field_dims": [4194304]}`, "not a known model"},
		"type":    {strings.Replace(table, `"F32"`, `"I32"`, 1), `{"field_dims": [4194304]}`, "tensor embedding.weight has elements of type I32"},
		"offsets": {table + offsets, `{"field_dims": [1, 4194303]}`, "tensor offsets is [0], but field_dims"},
		"model":   {table + offsets, "", ""},
	} {
		path := filepath.Join(t.TempDir(), "m.safetensors")
		size := int64(20*rows + 4)
		if strings.Contains(test.tensors, "offsets\":{") {
			size += 8
		}
		head := append(binary.LittleEndian.AppendUint64(nil, uint64(len(test.tensors)+2)), "{"+test.tensors+"}"...)
		if err := errors.Join(os.WriteFile(path, head, 0o600), os.Truncate(path, int64(len(head))+size)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+".json", []byte(test.said), 0o600); err != nil {
			t.Fatal(err)
		}
		if test.said == "" {
			os.Remove(path + ".json")
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Read(path)
		runtime.ReadMemStats(&after)
		if test.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		wantInput(t, err, "m.safetensors", test.want)
		if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
			t.Errorf("%s: refusing the file took %d bytes of memory", name, took)
		}
	}
}

// A file that is cut anywhere is an error. A file with any changed byte causes no panic.
func TestDamaged(t *testing.T) {
	files := map[string][]byte{}
	for _, name := range []string{"types.pth", "legacy.pth"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = data
	}
	c, err := Parse("sample", fileBytes(append(sampleEntries("deepfm"), offsetsOf(0, 2, 5)), nil))
	if err != nil {
		t.Fatal(err)
	}
	files["canonical"] = canonical(c)
	for i, gap := range []int{1, 2, 13} {
		f, err := c.compact(every(c.Architecture.Parameters(), gap), c.Architecture.Zero(), compact.Encodings()[i])
		if err != nil {
			t.Fatal(err)
		}
		files["compact "+string(compact.Encodings()[i])] = unsealed(f.Entries, f.Metadata)
	}
	for name, data := range files {
		for n := range len(data) {
			_, err := Parse(name, data[:n:n])
			if err == nil || !fault.IsInput(err) {
				t.Fatalf("%s cut to %d of %d bytes: error %v", name, n, len(data), err)
			}
			changed := append([]byte(nil), data...)
			changed[n] ^= 1 << (n % 8)
			if c, err := Parse(name, changed); err == nil {
				_, _ = c.Model()
			} else if !fault.IsInput(err) {
				t.Fatalf("%s with byte %d changed: error %v", name, n, err)
			}
			if m, _, err := ParseModel(name, changed); err == nil {
				scoreLast(m)
			} else if !fault.IsInput(err) {
				t.Fatalf("%s with byte %d changed: error %v", name, n, err)
			}
		}
	}
}

func TestHostileSafetensors(t *testing.T) {
	with := func(text, body string) []byte {
		return append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text+body...)
	}
	for name, test := range map[string]struct {
		data []byte
		want string
	}{
		"empty":     {nil, "0 bytes"},
		"huge":      {[]byte("\xff\xff\xff\xff\xff\xff\xff\x7f{}"), "would have 9223372036854775807 bytes"},
		"Parquet":   {[]byte("PAR1\x15\x04\x15\x80\x01\x15"), "is a Parquet file, expected a .pth, safetensors or .onnx file: shaver dataset import parquet reads rows from one"},
		"Arrow":     {[]byte("ARROW1\x00\x00\xff\xff\xff\xff"), "is an Arrow file, expected a .pth, safetensors or .onnx file: shaver scores inspect reads scores from one"},
		"gzip":      {[]byte("\x1f\x8b\x08\x08\xc5\xd0\x08\x6b\x00\x03"), "is compressed by gzip, expected a .pth, safetensors or .onnx file: decompress it"},
		"zstd":      {[]byte("\x28\xb5\x2f\xfd\x04\x58\x29\x00\x00\x61"), "is compressed by zstd"},
		"text":      {[]byte("epoch,loss\n1,0.5\n"), `is text (it begins with "epoch,lo"), expected a .pth, safetensors or .onnx file`},
		"JSON":      {[]byte("{\n  \"kind\": \"fm\"\n}\n"), `is text (it begins with "{")`},
		"one line":  {[]byte(`{"kind":"fm"}`), `is text (it begins with "{")`},
		"not text":  {[]byte("epoch\x00los\n"), "neither a .pth nor"},
		"no JSON":   {with("nonsense", ""), "header"},
		"array":     {with("[]", ""), "not a JSON object"},
		"UTF-8":     {with("{\"\xff\":1}", ""), "UTF-8"},
		"cut":       {with(`{"a":`, ""), "header"},
		"open":      {with(`{`, ""), "cut short"},
		"after":     {with(`{} x`, ""), "after its JSON"},
		"twice":     {with(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, "x"), "twice"},
		"lacks":     {with(`{"a":{"dtype":"U8","shape":[1]}}`, "x"), "lacks"},
		"type":      {with(`{"a":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}}`, "x"), "F8_E4M3"},
		"negative":  {with(`{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}}`, "x"), "shape [-1]"},
		"product":   {with(`{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}`, ""), "shape [4611686018427387904, 4]"},
		"claims":    {with(`{"a":{"dtype":"F32","shape":[1000000000],"data_offsets":[0,4000000000]}}`, ""), "cut short"},
		"gap":       {with(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, "xx"), "without gaps"},
		"overlap":   {with(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, "x"), "without gaps"},
		"rest":      {with(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, "xx"), "1 bytes after"},
		"backwards": {with(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}}`, "xx"), "data_offsets [1, 0]"},
		"key":       {with(`{"a\nb":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, "x"), "printable"},
		"metadata":  {with(`{"__metadata__":{"shaver.architecture":"{"}}`, ""), "metadata shaver.architecture"},
		"no model":  {with(`{}`, ""), "tensor embedding.weight is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("model.safetensors", test.data)
			wantInput(t, err, "model.safetensors", test.want)
		})
	}
}
