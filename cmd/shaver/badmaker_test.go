package main

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow/ipc"
)

// badInputs are the inputs of the cases.
type badInputs struct {
	dir     string
	silent  string // HOST:PORT of a server that accepts connections and says nothing
	nobody  string // HOST:PORT at which nobody listens
	guarded string // HOST:PORT of a NATS server without JetStream for the user me:secret
}

// makeBad makes all inputs: good ones, and from these the bad ones.
func makeBad(t *testing.T) badInputs {
	t.Helper()
	b := &badMaker{t: t, dir: t.TempDir()}
	b.good()
	b.models()
	b.families()
	b.graphs()
	b.datasets()
	b.rows()
	b.documents()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer gone.Close()
	return badInputs{b.dir, silent(t), gone.Addr().String(), guardedServer(t, "me", "secret", false)}
}

// small returns a folder on a file system of 8 KiB, or "" if this process may not make
// one.
func small(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if runtime.GOOS != "linux" || exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", dir).Run() != nil {
		return ""
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", "--lazy", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

// makePipes returns a folder with named pipes, to which nobody writes, or "" if the system has none.
func makePipes(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{"file", filepath.Join("ds", "dataset.json"), filepath.Join("state", "state.json")} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if exec.CommandContext(t.Context(), "mkfifo", path).Run() != nil {
			return ""
		}
	}
	return dir
}

// silent returns the address of a server that accepts connections and sends nothing.
func silent(t *testing.T) (address string) {
	t.Helper()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return server.Addr().String()
}

// badMaker makes files in dir. The names in its methods are relative to dir.
type badMaker struct {
	t   *testing.T
	dir string
}

func (b *badMaker) path(name string) string { return filepath.Join(b.dir, filepath.FromSlash(name)) }

func (b *badMaker) read(name string) []byte {
	b.t.Helper()
	data, err := os.ReadFile(b.path(name))
	if err != nil {
		b.t.Fatal(err)
	}
	return data
}

func (b *badMaker) write(name string, data []byte) {
	b.t.Helper()
	if err := os.MkdirAll(filepath.Dir(b.path(name)), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(b.path(name), data, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// shaver runs a command in dir that must succeed.
func (b *badMaker) shaver(args ...string) []byte {
	b.t.Helper()
	c := exec.CommandContext(b.t.Context(), "shaver", args...)
	c.Dir = b.dir
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		b.t.Fatalf("shaver %q: %v\n%s", args, err, &stderr)
	}
	return out
}

// replaced returns data with the first old replaced by new.
func (b *badMaker) replaced(data []byte, old, new string) []byte {
	b.t.Helper()
	if !bytes.Contains(data, []byte(old)) {
		b.t.Fatalf("%q is not in the data", old)
	}
	return bytes.Replace(data, []byte(old), []byte(new), 1)
}

// flipped returns data with one bit changed at a portion of its length.
func flipped(data []byte, at float64) []byte {
	data = bytes.Clone(data)
	data[int(at*float64(len(data)))] ^= 4
	return data
}

// zipped makes a zip file of the entries, given as names and contents in turn.
func (b *badMaker) zipped(name string, method uint16, entries ...string) {
	b.t.Helper()
	var file bytes.Buffer
	z := zip.NewWriter(&file)
	for i := 0; i < len(entries); i += 2 {
		w, err := z.CreateHeader(&zip.FileHeader{Name: entries[i], Method: method})
		if err == nil {
			_, err = w.Write([]byte(entries[i+1]))
		}
		if err != nil {
			b.t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		b.t.Fatal(err)
	}
	b.write(name, file.Bytes())
}

// edited makes a copy of a checkpoint, which is a zip file, with the first old in one
// entry replaced by new.
func (b *badMaker) edited(from, to, entry, old, new string) {
	b.t.Helper()
	data := b.read(from)
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		b.t.Fatal(err)
	}
	var entries []string
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			b.t.Fatal(err)
		}
		var content bytes.Buffer
		if _, err := content.ReadFrom(r); err != nil {
			b.t.Fatal(err)
		}
		if strings.HasSuffix(f.Name, "/"+entry) {
			content = *bytes.NewBuffer(b.replaced(content.Bytes(), old, new))
		}
		entries = append(entries, f.Name, content.String())
	}
	b.zipped(to, zip.Store, entries...)
}

// safetensors makes a file with the given header and body.
func (b *badMaker) safetensors(name, header string, body int) {
	b.write(name, append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), make([]byte, body)...))
}

func (b *badMaker) good() {
	golden, err := filepath.Abs(goldenDir)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, name := range []string{"fm.pth", "fm.rows.csv", "deepfm.pth"} {
		data, err := os.ReadFile(filepath.Join(golden, name))
		if err != nil {
			b.t.Fatal(err)
		}
		b.write(name, data)
	}
	b.shaver("dataset", "import", "csv", "--ids", "global", "--train", "fm.rows.csv", "--split", "2:1:1", "--model", "fm.pth", "--out", "ds")
	b.shaver("model", "convert", "fm.pth", "known.safetensors", "--dense", "--dataset", "ds")
	var raw, many bytes.Buffer
	raw.WriteString("label,color,size\n")
	many.WriteString("label,f0,f1,f2\n")
	for i := range 200 {
		fmt.Fprintf(&raw, "%d,c%d,%d\n", i%2, i%7, i%5)
	}
	for i := range 80_000 {
		fmt.Fprintf(&many, "%d,%d,%d,%d\n", i*i%3&1, i%3, i/3%4, i/12%3)
	}
	b.write("raw.csv", raw.Bytes())
	b.write("many.csv", many.Bytes())
	b.shaver("dataset", "import", "csv", "--raw", "raw.csv", "--split", "2:1:1", "--out", "raw")
	b.write("shared.csv", []byte("label,item,items\n1,a,b|c\n0,d,e|f\n1,g,h|i\n0,j,\n"))
	b.write("lists.csv", []byte("label,item,items\n1,new,b|other\n0,a,b\n"))
	b.shaver("dataset", "import", "csv", "--raw", "shared.csv", "--list", "items=2", "--share", "items=item", "--min-count", "1", "--split", "1:0:0", "--out", "lists")
	b.write("ratings.tsv", []byte("3.5"+strings.Repeat("\t", 39)+"\n"))
	b.write("swapped.csv", []byte("label,f1,f0,f2\n1,0,1,0\n0,1,0,1\n"))
	b.write("ratings.csv", []byte("rating,f0,f1,f2\n3.5,0,1,2\n1,2,3,0\n-2e3,1,0,1\n"))
	b.shaver("dataset", "import", "csv", "--train", "ratings.csv", "--labels", "numbers", "--model", "fm.pth", "--out", "ratings")
	b.shaver("dataset", "import", "csv", "--train", "many.csv", "--model", "fm.pth", "--out", "many")
	b.shaver("score", "--model", "fm.pth", "--dataset", "ds", "--out", "s.arrow")
	b.shaver("prune", "--model", "fm.pth", "--scores", "s.arrow", "--sparsity", "0.5", "--out", "pruned.safetensors")
	b.shaver("model", "convert", "pruned.safetensors", "dense.safetensors", "--dense")
	b.shaver("model", "convert", "deepfm.pth", "otherpruned.safetensors")
	b.shaver("model", "convert", "fm.pth", "otherdense.safetensors", "--dense")
	b.edited("fm.pth", "other.pth", "data/3", fmStart(b, "3", 4), "\x00\x00\x80\x3f")
	b.shaver("score", "--model", "other.pth", "--dataset", "ds", "--out", "s-other.arrow")
	b.shaver("report", "--model", "fm.pth", "--scores", "s.arrow", "--out", "page.html")
	b.write("sweep.json", b.shaver("sweep", "--model", "fm.pth", "--scores", "s.arrow", "--dataset", "ds", "-o", "json"))
}

func (b *badMaker) models() {
	fm, deepfm, dense := b.read("fm.pth"), b.read("deepfm.pth"), b.read("dense.safetensors")
	b.write("empty", nil)
	b.write("text.txt", []byte("hello\n"))
	b.write("m.json", []byte("{\n  \"kind\": \"fm\"\n}\n"))
	b.write("m.safetensors.index.json", []byte(`{"metadata": {}, "weight_map": {"a": "m-1-of-2.safetensors", "b": "m-2-of-2.safetensors"}}`))
	b.write("stranger.safetensors", b.replaced(b.read("known.safetensors"), `\"name\":\"f1\"`, `\"name\":\"f0\"`))
	b.write("half.pth", fm[:len(fm)/2])
	b.write("cut.pth", deepfm[:len(deepfm)-1])
	b.zipped("system.pth", zip.Store, "m/data.pkl", "\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.")
	b.zipped("module.pth", zip.Store, "m/data.pkl", "\x80\x02csrc.models\nDeepFM\n)R.")
	b.zipped("nopickle.pth", zip.Store, "m/other", "x")
	b.zipped("endless.pth", zip.Store, "m/data.pkl", "\x80\x02X\xff\xff\xff\x7fabc")
	b.zipped("deep.pth", zip.Store, "m/data.pkl", "\x80\x02"+strings.Repeat("]", 3_000_000)+".")
	b.zipped("bomb.pth", zip.Deflate, "m/data.pkl", strings.Repeat("\x00", 400<<20))
	b.edited("fm.pth", "nan.pth", "data/3", fmStart(b, "3", 4), "\x00\x00\xc0\x7f")
	b.edited("fm.pth", "missing.pth", "data.pkl", "fc.weight", "fc.weighs")
	b.edited("fm.pth", "foreign.pth", "data.pkl", "embedding.weight", "embeddings.table")
	b.edited("fm.pth", "shape.pth", "data.pkl", "K\nK\x01\x86", "K\tK\x01\x86")
	b.edited("fm.pth", "storage.pth", "data.pkl", "K\x00K\nK\x03\x86", "K\x00K\nK\x04\x86")
	b.edited("fm.pth", "dims.pth", "data.pkl", "K\x03K\x04K\x03e", "K\x03K\x04K\x04e")
	b.edited("fm.pth", "hugedims.pth", "data.pkl", "K\x03K\x04K\x03e", "K\x03J\xff\xff\xff\x7fK\x03e")
	b.write("flipped.pth", flipped(fm, .3))
	b.write("cut.safetensors", dense[:len(dense)-1])
	b.write("long.safetensors", append(bytes.Clone(dense), 0))
	b.write("hugeheader.safetensors", append([]byte("\xff\xff\xff\xff\xff\xff\xff\x7f"), "{}"...))
	b.safetensors("nojson.safetensors", "hello", 0)
	b.safetensors("deep.safetensors", strings.Repeat("[", 100_000), 0)
	b.safetensors("offsets.safetensors", `{"w":{"dtype":"F32","shape":[4],"data_offsets":[0,99]}}`, 16)
	b.safetensors("overflow.safetensors", `{"w":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,16]}}`, 16)
	b.safetensors("dtype.safetensors", `{"w":{"dtype":"F7","shape":[4],"data_offsets":[0,16]}}`, 16)
	b.safetensors("nothing.safetensors", `{}`, 0)
	b.write("cutpruned.safetensors", b.read("pruned.safetensors")[:300])
}

// families makes checkpoints of other frameworks. A second name of a file has a JSON file
// next to it.
func (b *badMaker) families() {
	for _, c := range []struct{ from, to, json string }{
		{"fuxictr-deepfm.model", "fuxi.model", ""},
		{"fuxictr-deepfm.model", "tanh.model", `{"activation": "Tanh"}`},
		{"fuxictr-deepfm.model", "renamed.model", `{"activation": "relu", "field_names": ["user", "item", "category", "city", "phone"]}`},
		{"fuxictr-deepfm.model", "short.model", `{"activation": "relu", "field_names": ["user", "item", "category", "city"]}`},
		{"fuxictr-deepfm-numeric.model", "numeric.model", `{"activation": "relu"}`},
		{"fuxictr-dcnv2-mixture.model", "mixture.model", `{"activation": "relu"}`},
		{"fuxictr-dcnv2-stacked-parallel.model", "both.model", `{"activation": "relu"}`},
		{"deepctr-torch-deepfm.h5", "deepctr.h5", ""},
		{"deepctr-torch-deepfm.h5", "wrong.h5", `{"kind": "dcnv2", "activation": "relu"}`},
		{"deepctr-torch-deepfm.h5", "sizes.h5", `{"kind": "deepfm", "activation": "relu", "field_dims": [7, 11, 5, 4, 4]}`},
		{"deepctr-torch-deepfm.h5", "whole.h5", `{"kind": "deepfm", "activation": "relu"}`},
		{"deepctr-torch-deepfm-dense.h5", "dense.h5", `{"kind": "deepfm", "activation": "relu"}`},
		{"deepctr-torch-fm.h5", "deepctr-fm.h5", ""},
		{"recbole-deepfm.pth", "recbole.pth", ""},
		{"pytorch-fm-wd.pth", "torchfm.pth", `{"field_dims": [7, 11, 5, 4, 3]}`},
		{"pytorch-fm-fm.pth", "torchfm-sum.pth", `{"field_dims": [7, 11, 5, 4]}`},
		{"torch-rechub-dcnv2-parallel.pth", "rechub.pth", `{"activation": "relu"}`},
		{"fuxictr-deepfm.model", "mapped/map.model", `{"activation": "relu"}`},
	} {
		data, err := os.ReadFile(filepath.Join("..", "..", "testdata", "families", c.from))
		if err != nil {
			b.t.Fatal(err)
		}
		b.write(c.to, data)
		if c.json != "" {
			b.write(c.to+".json", []byte(c.json))
		}
	}
	b.write("mapped/feature_map.json", []byte(`{"features": [{"user": {"type": "categorical"}}, {"item": {"type": "sequence"}}]}`))
	table := `{"dtype":"F32","shape":[1,1],"data_offsets":[%d,%d]}`
	b.safetensors("sorted.safetensors", fmt.Sprintf(`{"embedding_dict.a.weight":`+table+`,"embedding_dict.b.weight":`+table+`,"linear_model.embedding_dict.a.weight":`+table+`}`, 0, 4, 4, 8, 8, 12), 12)
	b.safetensors("framework.safetensors", `{"__metadata__":{"shaver.architecture":"{}","shaver.family":"{\"name\":\"x\"}"}}`, 0)
	b.safetensors("alias.safetensors", fmt.Sprintf(`{"__metadata__":{"shaver.aliases":"{\"a\":\"b\"}"},"a":`+table+`}`, 0, 4), 4)
}

// fmStart returns the first n bytes of a tensor of fm.pth.
func fmStart(b *badMaker, tensor string, n int) string {
	data := b.read("fm.pth")
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		b.t.Fatal(err)
	}
	r, err := z.Open("fm/data/" + tensor)
	if err != nil {
		b.t.Fatal(err)
	}
	value := make([]byte, n)
	if _, err := io.ReadFull(r, value); err != nil {
		b.t.Fatal(err)
	}
	return string(value)
}

// dataset makes a copy of the dataset from, and then replaces old by new in its manifest.
func (b *badMaker) dataset(from, to, old, new string) {
	b.t.Helper()
	if err := os.CopyFS(b.path(to), os.DirFS(b.path(from))); err != nil {
		b.t.Fatal(err)
	}
	b.write(to+"/dataset.json", b.replaced(b.read(to+"/dataset.json"), old, new))
}

func (b *badMaker) datasets() {
	same := `"version"`
	for name, edit := range map[string][2]string{
		"ds-version":  {`shaver.dataset/1`, `shaver.dataset/4`},
		"ds-nojson":   {`{`, `[`},
		"ds-unknown":  {same, `"more": 1, "version"`},
		"ds-type":     {`"skipped": 0`, `"skipped": "no"`},
		"ds-size0":    {`"size": 3`, `"size": 0`},
		"ds-size":     {`"size": 3`, `"size": 4`},
		"ds-sizehuge": {`"size": 3`, `"size": 2147483647`},
		"ds-sizemax":  {`"size": 3`, `"size": 2147483640`},
		"ds-sizebig":  {`"size": 3`, `"size": 9223372036854775808`},
		"ds-noname":   {`"name": "f1"`, `"name": ""`},
		"ds-twice":    {`"name": "f1"`, `"name": "f0"`},
		"ds-reserved": {`"name": "f1"`, `"name": "label"`},
		"ds-renamed":  {`"name": "f1"`, `"name": "f9"`},
		"ds-rowshuge": {`"rows": 15,`, `"rows": 1000000000000000000,`}, "ds-rowslarge": {`"rows": 15,`, `"rows": 100000000000,`},
		"ds-rows":      {`"rows": 15,`, `"rows": 16,`},
		"ds-rows0":     {`"rows": 15,`, `"rows": 0,`},
		"ds-rowsneg":   {`"rows": `, `"rows": -`},
		"ds-positives": {`"positives": `, `"positives": 9`},
		"ds-split":     {`"name": "train"`, `"name": "dev"`},
		"ds-order":     {`"name": "train"`, `"name": "val"`},
		"ds-outside":   {`"train.arrow"`, `"../train.arrow"`},
		"ds-absolute":  {`"train.arrow"`, `"/etc/passwd"`},
		"ds-folder":    {`"train.arrow"`, `"."`},
		"ds-bytes":     {`"bytes": `, `"bytes": 9`},
		"ds-bytesneg":  {`"bytes": `, `"bytes": -`},
		"ds-digest":    {`"sha256": "`, `"sha256": "0`},
		"ds-oov":       {`"size": 3`, `"size": 3, "oov": 7`},
		"ds-missing":   {same, same},
		"ds-nofreq":    {same, same},
		"ds-freq":      {same, same},
		"ds-cut":       {same, same},
		"ds-flipped":   {same, same},
		"ds-footer":    {same, same},
		"ds-swapped":   {same, same},
		"ds-empty":     {same, same},
	} {
		b.dataset("ds", name, edit[0], edit[1])
	}
	b.dataset("ratings", "rt-version", `shaver.dataset/3`, `shaver.dataset/1`)
	b.dataset("ratings", "rt-kind", `"labels": "numbers"`, `"labels": "letters"`)
	b.dataset("ratings", "rt-positives", `"rows": 3,`, `"rows": 3, "positives": 1,`)
	b.dataset("ratings", "rt-order", `"min": -2000`, `"min": 2000`)
	b.dataset("ratings", "rt-spread", `"deviation": `, `"deviation": 9`)
	b.remove("ds-missing/val.arrow")
	b.remove("ds-nofreq/frequencies.arrow")
	b.write("ds-freq/frequencies.arrow", flipped(b.read("ds/frequencies.arrow"), .5))
	train := b.read("ds/train.arrow")
	b.write("ds-cut/train.arrow", train[:len(train)/2])
	b.write("ds-flipped/train.arrow", flipped(train, .4))
	b.write("ds-footer/train.arrow", append(bytes.Clone(train[:len(train)-10]), "\xff\xff\xff\x7fARROW1"...))
	b.write("ds-swapped/train.arrow", append([]byte("NO"), train[2:]...))
	b.write("ds-empty/dataset.json", nil)
	b.write("ds-deep/dataset.json", bytes.Repeat([]byte("["), 1<<20))
	b.write("ds-large/dataset.json", bytes.Repeat([]byte(" "), 20<<20))
	b.values("ds-label", "label")
	b.values("ds-id", "f1")
	b.dataset("many", "many-flipped", same, same)
	b.write("many-flipped/train.arrow", flipped(b.read("many/train.arrow"), .2))
	broken := b.read("many/train.arrow")
	copy(broken[len(broken)/2:], bytes.Repeat([]byte{255}, 200))
	b.dataset("many", "many-broken", same, same)
	b.write("many-broken/train.arrow", broken)
	b.dataset("raw", "raw-vocabulary", same, same)
	b.write("raw-vocabulary/vocabulary/0-color.txt", flipped(b.read("raw/vocabulary/0-color.txt"), .5))
	b.dataset("raw", "raw-few", `"vocabulary": [`, `"vocabulary": [], "sources": [`)
}

// values makes a copy of the dataset ds in which the first value of a column of the train
// split is 200. The digests are right.
func (b *badMaker) values(to, column string) {
	b.t.Helper()
	old := b.read("ds/train.arrow")
	r, err := ipc.NewFileReader(bytes.NewReader(old))
	if err != nil {
		b.t.Fatal(err)
	}
	defer r.Close()
	record, err := r.Record(0)
	if err != nil {
		b.t.Fatal(err)
	}
	at := r.Schema().FieldIndices(column)[0]
	record.Column(at).Data().Buffers()[1].Bytes()[0] = 200
	b.dataset("ds", to, `"version"`, `"version"`)
	file, err := os.Create(b.path(to + "/train.arrow"))
	if err != nil {
		b.t.Fatal(err)
	}
	defer file.Close()
	w, err := ipc.NewFileWriter(file, ipc.WithSchema(r.Schema()))
	if err == nil {
		err = w.Write(record)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		b.t.Fatal(err)
	}
	state := func(data []byte) string { // in the manifest
		return fmt.Sprintf("\"sha256\": \"%x\",\n      \"bytes\": %d", sha256.Sum256(data), len(data))
	}
	b.write(to+"/dataset.json", b.replaced(b.read(to+"/dataset.json"), state(old), state(b.read(to+"/train.arrow"))))
}

func (b *badMaker) remove(name string) {
	b.t.Helper()
	if err := os.Remove(b.path(name)); err != nil {
		b.t.Fatal(err)
	}
}

func (b *badMaker) rows() {
	head := "label,color,size\n"
	for name, text := range map[string]string{
		"header.csv":     head,
		"label.csv":      head + "0,0,1\n2,1,2\n",
		"textlabel.csv":  head + "yes,1,2\n",
		"nolabel1.csv":   head + "4.5,0,1\n,1,2\n",
		"skipped.csv":    head + "1,0,1\n,1,2\n",
		"clicked.csv":    "click,color,size\n1,0,1\n,1,2\n",
		"table.csv":      "PAR1\x15\x04\x15\x00\n",
		"inflabel.csv":   head + "4.5,0,1\n1e39,1,2\n",
		"nolabel.csv":    "click,color\n1,2\n",
		"ragged.csv":     head + "0,0,1\n1,1\n",
		"wide.csv":       head + "0,0,1,1\n",
		"negative.csv":   head + "0,-1,1\n",
		"text.csv":       head + "0,0,L\n",
		"headless.csv":   "0,1,2\n1,0,1\n",
		"garbage.csv":    "label,price,color\n0,1.5,1\n1,cheap,2\n",
		"infinite.csv":   "label,price,color\n0,1.5,1\n1,-inf,2\n",
		"noprice.csv":    "label,price,color\n0,1.5,1\n1,,2\n",
		"constant.csv":   "label,price,color\n0,1.5,1\n1,1.5,2\n",
		"globalids.csv":  "label,a,b\n1,2,3\n0,1,4\n",
		"hole.csv":       head + "0,,1\n",
		"float.csv":      head + "0,1.5,1\n",
		"hugeid.csv":     head + "0,99999999999999999999,1\n",
		"largeid.csv":    head + "0,2147483647,1\n1,0,0\n",
		"twice.csv":      "label,color,color\n0,1,2\n",
		"unnamed.csv":    ",label,color\n0,1,2\n",
		"unnamed2.csv":   "label,,color,\n0,1,2,3\n",
		"reserved.csv":   "label,row\n0,1\n",
		"quote.csv":      head + "0,\"a,1\n",
		"latin.csv":      head + "0,\xe9t\xe9,1\n1,x,2\n",
		"latinhead.csv":  "label,\xe9\n0,1\n",
		"nul.csv":        head + "0,a\x00b,1\n1,\x00,2\n",
		"binary.csv":     "\x7fELF\x02\x01\x01\x00\x00\x00\x00",
		"bad.csv.gz":     "this is no gzip",
		"bad.csv.zst":    "this is no zstd",
		"criteo.tsv":     "1\t2\t3\n",
		"kdd.tsv":        "0\t1\tx\n",
		"avazu.csv":      "id,hour\n1,2\n",
		"bad.parquet":    "PAR1PAR1",
		"bad.arrow":      "ARROW1\x00\x00",
		"map-header.csv": "a,b,c\n1,2,3\n",
		"map-id.csv":     "field,value,id\ncolor,red,x\n",
		"map-twice.csv":  "field,value,id\ncolor,red,1\ncolor,red,2\n",
		"map-huge.csv":   "field,value,id\ncolor,red,9223372036854775807\n",
		"map-deep.json":  strings.Repeat("[", 100_000),
		"map-type.json":  `{"color": [1, 2]}`,
	} {
		b.write(name, []byte(text))
	}
	b.write("hugeline.csv", append([]byte(head+"0,"), bytes.Repeat([]byte("x"), 64<<20)...))
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte(head + strings.Repeat("0,1,2\n1,2,1\n", 5000)))
	if err := z.Close(); err != nil {
		b.t.Fatal(err)
	}
	b.write("cut.csv.gz", packed.Bytes()[:packed.Len()/2])
	b.write("crc.csv.gz", flipped(packed.Bytes(), .97))
	var bomb bytes.Buffer
	z = gzip.NewWriter(&bomb)
	zeros := make([]byte, 1<<20)
	for range 300 {
		_, _ = z.Write(zeros)
	}
	if err := z.Close(); err != nil {
		b.t.Fatal(err)
	}
	b.write("bomb.csv.gz", bomb.Bytes())
	if err := os.Mkdir(b.path("folder"), 0o755); err != nil {
		b.t.Fatal(err)
	}
	sharded := os.DirFS(filepath.Join("..", "..", "internal", "click", "checkpoint", "testdata", "sharded", "ranks2"))
	for _, name := range []string{"gone", "cut", "half", "call"} {
		if err := os.CopyFS(b.path("shard-"+name), sharded); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := os.Remove(b.path("shard-gone/__1_0.distcp")); err != nil {
		b.t.Fatal(err)
	}
	part, metadata := b.read("shard-cut/__1_0.distcp"), b.read("shard-half/.metadata")
	b.write("shard-cut/__1_0.distcp", part[:len(part)-1])
	b.write("shard-half/.metadata", metadata[:len(metadata)/2])
	b.write("shard-call/.metadata", []byte("\x80\x02cos\nsystem\n(X\x04\x00\x00\x00echotR."))
}

func (b *badMaker) documents() {
	scores, sweep := b.read("s.arrow"), b.read("sweep.json")
	b.write("s-cut.arrow", scores[:len(scores)/2])
	b.write("s-head.arrow", scores[:200])
	b.write("s-flipped.arrow", b.replaced(scores, "shaver.scores/", "shaver.scores!"))
	b.write("s-spec.arrow", b.replaced(scores, `"version":2`, `"version":3`))
	b.write("s-rows.arrow", b.replaced(scores, `"splits":["`, `"splits":{"`))
	b.write("sweep-dataset.json", b.replaced(sweep, `"dataset": "`, `"dataset": "0`))
	b.write("sweep-version.json", b.replaced(sweep, `shaver.sweep/`, `shaver.sweep/9`))
	b.write("sweep-method.json", b.replaced(sweep, `"magnitude"`, `"magic"`))
	b.write("sweep-deep.json", bytes.Repeat([]byte("["), 1<<20))
	b.write("sweep-cut.json", sweep[:len(sweep)/2])
	for name, textfile := range map[string]string{
		"night-model": "fm.pth", "night-self": "night-self.yaml", "night-day": "ds/dataset.json", "night-text": "text.txt",
		"night-current": "out/current.json", "night-history": "out/history.jsonl", "night-url": "s3://bucket/x", "night-nowhere": "nowhere/x.prom",
	} {
		b.write(name+".yaml", []byte("model: fm.pth\ndays: days\nout: out\nprune: {sparsity: 0.5}\nmetrics: {textfile: '"+textfile+"'}\n"))
	}
	for name, tracking := range map[string]string{"night-mlflow": "mlflow: 'localhost:5000'", "night-lineage": "openlineage: 'https://u:p@h'"} {
		b.write(name+".yaml", []byte("model: fm.pth\ndays: days\nout: out\nprune: {sparsity: 0.5}\ntracking: {"+tracking+"}\n"))
	}
	b.write("out/current.json", []byte("{}\n"))
	b.write("creds", []byte("no credentials\n"))
	b.write("pem", []byte("no certificate\n"))
}
