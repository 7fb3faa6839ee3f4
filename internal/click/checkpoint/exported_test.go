package checkpoint

import (
	"archive/zip"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/base/fault"
)

// A defect of an archive of torch.export.save is one line. Nothing of its programs is read.
func TestHostileExported(t *testing.T) {
	weight := func(more string) string {
		return `{"config": {"w": {"path_name": "weight_0", "use_pickle": false, "tensor_meta": {"dtype": 7, "sizes": [{"as_int": 2}], "strides": [{"as_int": 1}], "storage_offset": {"as_int": 0}}` + more + `}}}`
	}
	for name, test := range map[string]struct{ config, want string }{
		"no JSON":    {"x", "is not what torch.export.save writes"},
		"a list":     {`{"config": []}`, "is not what torch.export.save writes"},
		"cut":        {weight("")[:60], "is not JSON of weights"},
		"cut later":  {`{"config": {`, "is cut short"},
		"twice":      {strings.Replace(weight(""), `"w": `, `"w": {"tensor_meta": {"dtype": 7, "storage_offset": {"as_int": 0}}, "path_name": "weight_0"}, "w": `, 1), `has the weight "w" twice`},
		"a pickle":   {strings.Replace(weight(""), "false", "true", 1), `stores "w" as a pickle`},
		"no meta":    {`{"config": {"w": {"path_name": "weight_0"}}}`, `stores "w" as a pickle`},
		"type":       {strings.Replace(weight(""), `"dtype": 7`, `"dtype": 29`, 1), "of the unsupported type 29"},
		"symbol":     {strings.Replace(weight(""), `"as_int": 2`, `"as_expr": "s0"`, 1), "without the sizes, strides and offset"},
		"negative":   {strings.Replace(weight(""), `"as_int": 2`, `"as_int": -2`, 1), "without the sizes, strides and offset"},
		"dimensions": {strings.Replace(weight(""), `[{"as_int": 1}]`, `[]`, 1), "without the sizes, strides and offset"},
		"no file":    {strings.Replace(weight(""), "weight_0", "../x", 1), `refers to "../x", which the file does not hold`},
		"too large":  {strings.Replace(weight(""), `"as_int": 2`, `"as_int": 200`, 1), "exceeds its storage of 2 elements"},
		"outside":    {strings.Replace(weight(""), `"as_int": 0`, `"as_int": 1`, 1), "exceeds its storage of 2 elements"},
	} {
		_, err := Parse("m.pt2", zipBytes(t, zip.Store, "m/"+weightsFile, test.config, "m/data/weights/weight_0", "12345678"))
		if err == nil || !fault.IsInput(err) || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, expected %q", name, err, test.want)
		}
	}
}

// A description of weights gives a checkpoint or an input error.
func FuzzExported(f *testing.F) {
	z, err := zip.OpenReader(filepath.Join(shardedFolder, "model.pt2"))
	if err != nil {
		f.Fatal(err)
	}
	defer z.Close()
	text := make([]byte, 1<<12)
	for _, e := range z.File {
		if strings.HasSuffix(e.Name, weightsFile) {
			r, err := e.Open()
			if err != nil {
				f.Fatal(err)
			}
			n, _ := r.Read(text)
			f.Add(text[:n])
		}
	}
	f.Fuzz(func(t *testing.T, config []byte) {
		pairs := []string{"m/" + weightsFile, string(config)}
		for _, n := range []string{"0", "1", "2", "3", "4", "5", "6", "7"} {
			pairs = append(pairs, "m/data/weights/weight_"+n, strings.Repeat("\x00", 240))
		}
		c, err := Parse("m", zipBytes(t, zip.Store, pairs...))
		checkFuzzed(t, c, err)
	})
}
