package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"shaver/infer/infertest"
	"shaver/internal/base/long"
)

// A C program gets the logits of package infer bit for bit, from both forms of the library and in two threads, and
// errors that say what is wrong.
func TestLibrary(t *testing.T) {
	long.Test(t)
	if runtime.GOOS != "linux" {
		t.Skip("the compiler's flags are those of Linux")
	}
	gcc := infertest.Program(t, "gcc")
	dir := t.TempDir()
	models := infertest.Models(t, filepath.Join("..", "..", "testdata"))
	programs := map[string]string{}
	for mode, name := range map[string]string{"c-shared": "libshaver.so", "c-archive": "libshaver.a"} {
		library := filepath.Join(dir, name)
		infertest.Go(t, []string{"CGO_ENABLED=1"}, "build", "-buildmode="+mode, "-o", library, ".")
		programs[mode] = filepath.Join(dir, mode)
		args := []string{"-Wall", "-Wextra", "-Werror", "-std=c99", "-D_POSIX_C_SOURCE=200809L", "-I.", "-o", programs[mode], filepath.Join("testdata", "example.c"), library, "-pthread", "-Wl,-rpath," + dir}
		if out, err := exec.CommandContext(t.Context(), gcc, args...).CombinedOutput(); err != nil {
			t.Fatalf("gcc %q: %v\n%s", args, err, out)
		}
	}
	const rows = 150
	for name, said := range map[string]string{
		"deepfm":  "",
		"autoint": "field x[0]\nfield x[1]\nfield x[2]\nfield x[3]\nfield x[4]\ndense x[5]\ndense x[6]\n",
	} {
		ids, dense, want := infertest.Rows(t, models[name], rows)
		if slices.Min(want) == slices.Max(want) {
			t.Fatalf("%s: all logits are %v", name, want[0])
		}
		idsFile, denseFile, out := filepath.Join(dir, "ids"), filepath.Join(dir, "dense"), filepath.Join(dir, "logits")
		write(t, idsFile, ids)
		write(t, denseFile, dense)
		for mode, program := range programs {
			c := exec.CommandContext(t.Context(), program, models[name], fmt.Sprint(rows), idsFile, denseFile, out)
			stdout, err := c.CombinedOutput()
			if err != nil {
				t.Fatalf("%s, %s: %v\n%s", name, mode, err, stdout)
			}
			data, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			if len(data) != 8*rows {
				t.Fatalf("%s, %s: %d bytes of logits, expected %d", name, mode, len(data), 8*rows)
			}
			for i, logit := range want {
				if bits := binary.NativeEndian.Uint64(data[8*i:]); bits != math.Float64bits(logit) {
					t.Errorf("%s, %s: row %d has the logit %v, expected %v", name, mode, i, math.Float64frombits(bits), logit)
				}
			}
			for _, text := range []string{
				"missing.safetensors: no such file", said,
				"row 1 has id", "in field 0: expected 0 to", "is NULL: expected 150 rows of a logit", "-1 rows: expected 0 to", "the model is closed",
			} {
				if !strings.Contains(string(stdout), text) {
					t.Errorf("%s, %s: the program printed\n%s\nexpected %q", name, mode, stdout, text)
				}
			}
		}
	}
}

// write writes numbers to a file.
func write(t *testing.T, path string, numbers any) {
	t.Helper()
	var data bytes.Buffer
	err := binary.Write(&data, binary.NativeEndian, numbers)
	if err == nil {
		err = os.WriteFile(path, data.Bytes(), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}
