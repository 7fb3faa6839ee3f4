package picture

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/fault"
	"shaver/internal/sweep"
)

// document has two repeats, a method at one point, and one whose AUC is not defined.
func document() *sweep.Document {
	d := &sweep.Document{Kind: "deepfm", Split: "test", Unpruned: sweep.Measure{LogLoss: .44}, Sources: []sweep.Source{{Seed: 1}, {Seed: 2}}}
	value := func(v float64) *float64 { return &v }
	d.Unpruned.AUC = value(.8)
	for i, auc := range []float64{.79, .78, .6, .59} {
		source := i % 2
		d.Points = append(d.Points, sweep.Point{Method: "shapley", Source: &source, Sparsity: []float64{.5, .99}[i/2], Measure: sweep.Measure{AUC: value(auc), LogLoss: 1 - auc}})
	}
	return &sweep.Document{Kind: d.Kind, Split: d.Split, Unpruned: d.Unpruned, Sources: d.Sources, Points: append(d.Points,
		sweep.Point{Method: "ptq8", Sparsity: .75, Measure: sweep.Measure{AUC: value(.8), LogLoss: .45}},
		sweep.Point{Method: "none <&>", Sparsity: 1, Measure: sweep.Measure{LogLoss: .7}})}
}

func TestPictures(t *testing.T) {
	dir := t.TempDir()
	draw := func(name string) []byte {
		path := filepath.Join(dir, name)
		if err := Check(path); err != nil {
			t.Fatal(err)
		}
		if err := Sweep(document()).Write(path); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	svg := draw("a.svg")
	if !bytes.Equal(svg, draw("b.svg")) {
		t.Error("the same document gives other bytes")
	}
	// It is XML, and its words are those of the document.
	var words strings.Builder
	decoder := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if text, ok := token.(xml.CharData); ok {
			fmt.Fprintln(&words, strings.TrimSpace(string(text)))
		}
	}
	for _, want := range []string{"deepfm, test split", "sparsity: portion of the entries dropped", "AUC", "LogLoss, nat", "unpruned", "shapley", "ptq8", "none <&>", "0.99"} {
		if !strings.Contains(words.String(), "\n"+want+"\n") {
			t.Errorf("the picture does not say %q", want)
		}
	}
	image, err := png.Decode(bytes.NewReader(draw("a.png")))
	if err != nil {
		t.Fatal(err)
	}
	inked := map[[4]uint32]int{}
	for y := range image.Bounds().Dy() {
		for x := range image.Bounds().Dx() {
			r, g, b, a := image.At(x, y).RGBA()
			inked[[4]uint32{r >> 8, g >> 8, b >> 8, a >> 8}]++
		}
	}
	for _, ink := range inks[:2] {
		if n := inked[[4]uint32{uint32(ink.R), uint32(ink.G), uint32(ink.B), 255}]; n < 5 {
			t.Errorf("%d pixels in %v", n, ink)
		}
	}
	if err := Check("a.gif"); !fault.IsUsage(err) {
		t.Error(err)
	}
}
