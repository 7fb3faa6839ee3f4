// Command prose prints sentences of this repository, sampled at random, so that
// somebody who does not know the code can check that they read well:
//
//	go run ./docs/prose -seed 1 -n 50
//
// It samples equally from help texts, messages (errors and log lines), comments
// and pages.
package main

import (
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	seed := flag.Uint64("seed", 1, "seed of the sample")
	n := flag.Int("n", 50, "number of sentences")
	root := flag.String("root", ".", "folder of the repository")
	flag.Parse()
	texts, err := read(*root)
	if err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(1)
	}
	for i, s := range sample(texts, *n, *seed) {
		fmt.Printf("%d. [%s] %s\n   %s\n", i+1, s.kind, s.place, s.text)
	}
}

// The kinds of text.
const (
	help    = "help"
	message = "message"
	comment = "comment"
	page    = "page"
)

// text is a sentence or a fragment that a person reads.
type text struct {
	kind  string
	place string // file and line
	text  string
}

// read returns the texts of all Go files and pages below root, in the order of
// their places. It leaves out generated files and folders whose name begins with a
// dot.
func read(root string) ([]text, error) {
	var texts []text
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if path != root && strings.HasPrefix(entry.Name(), ".") {
				return fs.SkipDir
			}
			return nil
		}
		place, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		place = filepath.ToSlash(place)
		var found []text
		switch {
		case strings.HasSuffix(path, ".go"):
			found, err = readGo(path, place)
		case strings.HasSuffix(path, ".md") && !strings.HasPrefix(place, "docs/reference/cli/"): // made from help texts
			found, err = readPage(path, place)
		case strings.HasSuffix(path, ".txt") && strings.Contains(place, "/help/"):
			found, err = readHelp(path, place)
		}
		texts = append(texts, found...)
		return err
	})
	return texts, err
}

// sample returns n texts, as many of each kind as there are, in random order.
func sample(texts []text, n int, seed uint64) []text {
	random := rand.New(rand.NewPCG(seed, 0))
	var chosen []text
	kinds := []string{help, message, comment, page}
	for i, kind := range kinds {
		of := slices.DeleteFunc(slices.Clone(texts), func(t text) bool { return t.kind != kind })
		random.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
		share := n/len(kinds) + min(1, max(0, n%len(kinds)-i))
		chosen = append(chosen, of[:min(share, len(of))]...)
	}
	random.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	return chosen
}
