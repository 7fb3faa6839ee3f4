package main

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"shaver/internal/base/long"
)

// TestScripts runs testdata/script/*.txtar. A copy of the goldens is in $GOLDEN, and the
// exported models are in $EXPORTS, which is not a copy. In addition to the commands of
// testscript, scripts have these:
//
//	exits CODE PROGRAM ARG...    run it and check its exit code
//	refused CODE PROGRAM ARG...  the same, and check that it prints one line on stderr only
//	json FILE PATH VALUE [TOLERANCE]  compare a value of a JSON file; PATH is like .fields[0].name
//	same FILE PATH FILE PATH     compare two such values
//	near FILE PATH FILE PATH TOLERANCE  compare two such numbers
//	zip OUT NAME TEXT            write a zip file with one entry; TEXT has Go's escapes
//	patch IN OUT ENTRY OLD NEW   replace the first OLD in an entry of a zip file, or if OLD is @N, what is at byte N
//	truncate IN OUT PORTION      write the first bytes of a file
//	flip FILE TEXT               change one bit of the first TEXT in a file
//	jsonlines FILE               check that every line of a file is JSON, and that there are lines
//	keys FILE                    print the tensors of a safetensors file
func TestScripts(t *testing.T) {
	golden, err := filepath.Abs(goldenDir)
	if err != nil {
		t.Fatal(err)
	}
	exports, err := filepath.Abs(filepath.Join("..", "..", "testdata", "onnx"))
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                filepath.Join("testdata", "script"),
		RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("GOLDEN", filepath.Join(env.WorkDir, "golden"))
			env.Setenv("EXPORTS", exports)
			return os.CopyFS(filepath.Join(env.WorkDir, "golden"), os.DirFS(golden))
		},
		Condition: func(name string) (bool, error) { // a script that takes long begins with "[!long] skip"
			if name != "long" {
				return false, fmt.Errorf("unknown condition %q", name)
			}
			return long.All(), nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "refused": refused, "json": jsonIs, "same": same, "near": near,
			"zip": makeZip, "patch": patch, "truncate": truncate, "flip": flip, "keys": keys, "jsonlines": jsonLines,
		},
	})
}

func usage(ts *testscript.TestScript, neg bool, args []string, least int, text string) {
	if neg || len(args) < least {
		ts.Fatalf("usage: %s", text)
	}
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, args, 2, "exits CODE PROGRAM ARG...")
	code, err := exitCode(ts.Exec(args[1], args[2:]...))
	ts.Check(err)
	if want, err := strconv.Atoi(args[0]); err != nil || code != want {
		ts.Fatalf("exit code %d, expected %s", code, args[0])
	}
}

func refused(ts *testscript.TestScript, neg bool, args []string) {
	exits(ts, neg, args)
	if out := ts.ReadFile("stdout"); out != "" {
		ts.Fatalf("stdout is %q, expected nothing", out)
	}
	text := ts.ReadFile("stderr")
	line, ended := strings.CutSuffix(text, "\n")
	if !ended || strings.Contains(line, "\n") || !strings.HasPrefix(line, args[1]+": ") {
		ts.Fatalf("stderr is not one line that begins with %q: %q", args[1]+": ", text)
	}
}

func jsonIs(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, args, 3, "json FILE PATH VALUE [TOLERANCE]")
	value := jsonAt(ts, args[0], args[1])
	if len(args) == 3 {
		text, err := json.Marshal(value)
		ts.Check(err)
		if got := strings.Trim(string(text), `"`); got != args[2] {
			ts.Fatalf("%s is %s, expected %s", args[1], got, args[2])
		}
		return
	}
	want, err := strconv.ParseFloat(args[2], 64)
	ts.Check(err)
	tolerance, err := strconv.ParseFloat(args[3], 64)
	ts.Check(err)
	if got, ok := value.(float64); !ok || !(math.Abs(got-want) <= tolerance) {
		ts.Fatalf("%s is %v, expected %v within %v", args[1], value, want, tolerance)
	}
}

func jsonLines(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, args, 1, "jsonlines FILE")
	text := ts.ReadFile(args[0])
	if text == "" {
		ts.Fatalf("%s is empty", args[0])
	}
	for line := range strings.Lines(text) {
		if !json.Valid([]byte(line)) {
			ts.Fatalf("%s: the line %q is not JSON", args[0], line)
		}
	}
}

func same(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, args, 4, "same FILE PATH FILE PATH")
	if a, b := jsonAt(ts, args[0], args[1]), jsonAt(ts, args[2], args[3]); !reflect.DeepEqual(a, b) {
		ts.Fatalf("%s of %s is %v, %s of %s is %v", args[1], args[0], a, args[3], args[2], b)
	}
}

func near(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, args, 5, "near FILE PATH FILE PATH TOLERANCE")
	tolerance, err := strconv.ParseFloat(args[4], 64)
	ts.Check(err)
	a, isA := jsonAt(ts, args[0], args[1]).(float64)
	b, isB := jsonAt(ts, args[2], args[3]).(float64)
	if !isA || !isB || !(math.Abs(a-b) <= tolerance) {
		ts.Fatalf("%s of %s is %v, %s of %s is %v", args[1], args[0], a, args[3], args[2], b)
	}
}

func jsonAt(ts *testscript.TestScript, file, path string) any {
	var value any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(file)), &value))
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune(".[]", r) }) {
		switch v := value.(type) {
		case map[string]any:
			next, ok := v[step]
			if !ok {
				ts.Fatalf("%s: no %q in %v", path, step, v)
			}
			value = next
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(v) {
				ts.Fatalf("%s: no element %s in an array of %d", path, step, len(v))
			}
			value = v[i]
		default:
			ts.Fatalf("%s: %v is neither an object nor an array", path, v)
		}
	}
	return value
}

func makeZip(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, args, 3, "zip OUT NAME TEXT")
	writeZip(ts, args[0], []string{args[1]}, map[string][]byte{args[1]: literal(ts, args[2])})
}

func patch(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, args, 5, "patch IN OUT ENTRY OLD NEW")
	z, err := zip.OpenReader(ts.MkAbs(args[0]))
	ts.Check(err)
	defer z.Close()
	var names []string
	contents := map[string][]byte{}
	for _, f := range z.File {
		r, err := f.Open()
		ts.Check(err)
		data, err := io.ReadAll(r)
		ts.Check(err)
		names = append(names, f.Name)
		contents[f.Name] = data
	}
	at := slices.IndexFunc(names, func(name string) bool { return strings.HasSuffix(name, "/"+args[2]) })
	if at < 0 {
		ts.Fatalf("%s has no entry %s", args[0], args[2])
	}
	data, after := contents[names[at]], literal(ts, args[4])
	if offset, ok := strings.CutPrefix(args[3], "@"); ok {
		n, err := strconv.Atoi(offset)
		ts.Check(err)
		copy(data[n:], after)
	} else {
		before := literal(ts, args[3])
		if !bytes.Contains(data, before) {
			ts.Fatalf("entry %s does not contain %s", names[at], args[3])
		}
		data = bytes.Replace(data, before, after, 1)
	}
	contents[names[at]] = data
	writeZip(ts, args[1], names, contents)
}

// literal returns the bytes of text with Go's escapes.
func literal(ts *testscript.TestScript, text string) []byte {
	s, err := strconv.Unquote(`"` + text + `"`)
	ts.Check(err)
	return []byte(s)
}

func writeZip(ts *testscript.TestScript, path string, names []string, contents map[string][]byte) {
	var file bytes.Buffer
	z := zip.NewWriter(&file)
	for _, name := range names {
		w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
		ts.Check(err)
		_, err = w.Write(contents[name])
		ts.Check(err)
	}
	ts.Check(z.Close())
	ts.Check(os.WriteFile(ts.MkAbs(path), file.Bytes(), 0o666))
}

func truncate(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, args, 3, "truncate IN OUT PORTION")
	portion, err := strconv.ParseFloat(args[2], 64)
	ts.Check(err)
	data := ts.ReadFile(args[0])
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(data[:int(portion*float64(len(data)))]), 0o666))
}

func flip(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, args, 2, "flip FILE TEXT")
	data := []byte(ts.ReadFile(args[0]))
	at := bytes.Index(data, []byte(args[1]))
	if at < 0 {
		ts.Fatalf("%s does not contain %q", args[0], args[1])
	}
	data[at] ^= 1
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), data, 0o666))
}

// keys reads the header of a safetensors file without the code under test.
func keys(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, args, 1, "keys FILE")
	header := safetensorsHeader(ts, ts.ReadFile(args[0]))
	for _, key := range slices.Sorted(maps.Keys(header)) {
		if key != "__metadata__" {
			fmt.Fprintf(ts.Stdout(), "%s %v %v\n", key, header[key]["dtype"], header[key]["shape"])
		}
	}
}

func safetensorsHeader(ts *testscript.TestScript, file string) map[string]map[string]any {
	if len(file) < 8 {
		ts.Fatalf("%d bytes are too few for a safetensors file", len(file))
	}
	size := binary.LittleEndian.Uint64([]byte(file))
	if size > uint64(len(file)-8) {
		ts.Fatalf("the header has %d bytes, but the file has %d", size, len(file))
	}
	var header map[string]map[string]any
	ts.Check(json.Unmarshal([]byte(file[8:8+size]), &header))
	return header
}
