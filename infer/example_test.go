package infer_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"shaver/infer"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
)

// This example scores two rows with a pruned model.
func Example() {
	path := pruned() // written as by "shaver prune --out"
	defer os.RemoveAll(filepath.Dir(path))

	m, err := infer.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()

	fmt.Println("features of each field:", m.Sizes())
	logits := make([]float64, 2)
	if err := m.Logits(logits, []int32{0, 1, 2 /* the second row: */, 2, 3, 1}, nil); err != nil {
		log.Fatal(err)
	}
	for _, logit := range logits {
		fmt.Printf("logit %.4f, probability %.4f\n", logit, infer.Probability(logit))
	}
	// Output:
	// features of each field: [3 4 3]
	// logit 0.1567, probability 0.5391
	// logit 0.3864, probability 0.5954
}

// pruned writes a golden model from which every second entry is dropped.
func pruned() string {
	c, err := checkpoint.Read(filepath.Join("..", "testdata", "golden", "fm.pth"))
	if err != nil {
		log.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "shaver-infer-*")
	if err != nil {
		log.Fatal(err)
	}
	dropped := make([]bool, c.Architecture.Parameters())
	for i := range dropped {
		dropped[i] = i%2 == 1
	}
	path := filepath.Join(dir, "pruned.safetensors")
	if _, err := checkpoint.WriteCompact(path, c, dropped, c.Architecture.Zero(), compact.Float32); err != nil {
		log.Fatal(err)
	}
	return path
}
