package vocabulary

import (
	"strings"
	"testing"

	"shaver/internal/base/fault"
)

// However a mapper numbers its values, the values keep their ids.
func TestFits(t *testing.T) {
	const none = -1
	for _, c := range []struct {
		oov, field     string
		want           int // size of the model's field; 0 without a model
		size, reserved int
		ids            map[string]int32
	}{
		{"", `{"x": 0, "y": 1}`, 0, 3, 0, map[string]int32{"x": 0, "y": 1, "?": 2}},
		{"last", `["x", "y"]`, 3, 3, 0, map[string]int32{"x": 0, "y": 1, "?": 2}},
		{"last", `{"x": 3, "y": 1}`, 5, 5, 2, map[string]int32{"x": 3, "y": 1, "?": 4}}, // 0 is for padding
		{"id=0", `{"x": 2, "y": 1}`, 0, 3, 0, map[string]int32{"x": 2, "y": 1, "?": 0}},
		{"id=1", `{"x": 2, "y": 3}`, 4, 4, 1, map[string]int32{"x": 2, "y": 3, "?": 1}}, // 0 is for padding, 1 for unseen
		{"id=2", `{"x": 0, "y": 1}`, 0, 3, 0, map[string]int32{"x": 0, "y": 1, "?": 2}},
		{"id=2", `{"x": 0, "y": 1}`, 6, 6, 3, map[string]int32{"x": 0, "y": 1, "?": 2}}, // 3 to 5 are reserved
		{"id=0", `{}`, 0, 1, 0, map[string]int32{"?": 0}},
		{"value=<unk>", `{"x": 2, "<unk>": 1, "y": 0}`, 3, 3, 0, map[string]int32{"x": 2, "y": 0, "?": 1, "<unk>": 1}},
		{"value=<unk>", `["<unk>", "x"]`, 0, 2, 0, map[string]int32{"x": 1, "?": 0, "<unk>": 0}},
		{"value=", `{"x": 2, "": 3}`, 6, 6, 4, map[string]int32{"x": 2, "?": 3, "": 3}},
		{"", `{"__PAD__": 0, "x": 1, "__OOV__": 2}`, 0, 3, 0, map[string]int32{"x": 1, "?": 2, "__OOV__": 2, "__PAD__": 0}},
		{"", `{"__PAD__": 0, "x": 1, "__OOV__": 2, "y": 3}`, 4, 4, 0, map[string]int32{"x": 1, "y": 3, "?": 2}}, // a vocabulary that fields share
		{"last", `{"__PAD__": 0, "__OOV__": 1}`, 0, 3, 0, map[string]int32{"__OOV__": 1, "?": 2}},
		{"", `{"__PAD__": 1, "__OOV__": 0}`, 0, 3, 0, map[string]int32{"__OOV__": 0, "?": 2}}, // not FuxiCTR's
		{"none", `["x", "y"]`, 0, 2, 0, map[string]int32{"x": 0, "y": 1, "?": none}},
		{"none", `{"y": 1}`, 4, 4, 3, map[string]int32{"y": 1, "?": none}},
	} {
		m, err := Read(mapperFile(t, "m.json", `{"a": `+c.field+`}`), plenty, c.oov)
		if err != nil {
			t.Fatal(err)
		}
		var sizes []int
		if c.want > 0 {
			sizes = []int{c.want}
		}
		fields, err := m.Choose(m.Names, sizes)
		if err != nil {
			t.Errorf("%s %s: %v", c.oov, c.field, err)
			continue
		}
		f := fields[0]
		if f.Size() != c.size || f.Reserved() != c.reserved || f.OOV() != int(c.ids["?"]) {
			t.Errorf("%s %s: size %d, %d reserved, unseen values have %d", c.oov, c.field, f.Size(), f.Reserved(), f.OOV())
		}
		for value, want := range c.ids {
			if got := idOf(f, value); got != want {
				t.Errorf("%s %s: %q has the id %d, want %d", c.oov, c.field, value, got, want)
			}
		}
	}
}

// A mapper is refused if its ids contradict oov or the size of the model's field.
func TestFitsRefused(t *testing.T) {
	for _, c := range []struct {
		oov, field string
		want       int
		text       string
	}{
		{"", `{"x": 1, "y": 2}`, 3, "field 0 (a) has ids up to 3, hence 4 features, but the model has 3: if unseen values do not have the id after the largest one, give their id"},
		{"", `["x", "y"]`, 2, "field 0 (a) has 2 values, hence 3 features, but the model has 2: if unseen values"},
		{"", `["x", "y"]`, 4, "field 0 (a) has 2 values, hence 3 features, but the model has 4: if unseen values"},
		{"", `{"x": 1, "y": 2}`, 0, "field a has the ids from 1 to 2 and no value with the id 0: if 0 stands for unseen values, choose id=0"},
		{"", `{"x": 0, "y": 2147483646}`, 0, "field a has 2 values and the id 2147483646"},
		{"id=0", `["x", "y"]`, 0, `field a: the id 0 cannot be the id of unseen values, because the value "x" has it: if this value stands for them, choose value=TEXT`},
		{"id=0", `{"x": 1, "y": 2}`, 2, "field 0 (a) has 2 values, hence 3 features, but the model has 2"},
		{"id=0", `{"x": 1, "y": 3}`, 0, "field a has 2 values and ids up to 3, so some ids have no value: if that is correct, give"},
		{"id=9", `["x", "y"]`, 0, "field a has 2 values and ids up to 9, so some ids have no value: if that is correct, give"},
		{"id=9", `["x", "y"]`, 9, "field 0 (a) has ids up to 9, hence 10 features, but the model has 9"},
		{"value=<unk>", `["x", "y"]`, 3, `field a has no value "<unk>", which was chosen to stand for unseen values`},
		{"value=<unk>", `{}`, 0, `field a has no value "<unk>"`},
		{"value=x", `["x", "y"]`, 1, "field 0 (a) has 1 values, hence 2 features, but the model has 1"},
		{"value=x", `{"x": 0, "y": 0, "z": 1}`, 4, "field a has two values with the id 0"},
		{"none", `["x", "y"]`, 1, "field 0 (a) has 2 values, hence 2 features, but the model has 1"},
		{"none", `{"x": 1}`, 0, "field a has 1 values and ids up to 1, so some ids have no value: if that is correct, give"},
		{"none", `{"x": 0, "y": 0}`, 5, "field a has two values with the id 0"},
	} {
		path := mapperFile(t, "m.json", `{"a": `+c.field+`}`)
		m, err := Read(path, plenty, c.oov)
		if err != nil {
			t.Fatal(err)
		}
		var sizes []int
		if c.want > 0 {
			sizes = []int{c.want}
		}
		if _, err = m.Choose(m.Names, sizes); !fault.IsInput(err) || !strings.Contains(err.Error(), c.text) || strings.Count(err.Error(), path) != 1 {
			t.Errorf("%s %s: %v", c.oov, c.field, err)
		}
	}
	for _, text := range []string{"first", "id", "id=", "id=-1", "id=x", "id=2147483647", "value", "0", "none=", "last="} {
		if _, err := Read("no.json", plenty, text); !fault.IsUsage(err) || !strings.Contains(err.Error(), "expected last, id=N, value=TEXT or none") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
