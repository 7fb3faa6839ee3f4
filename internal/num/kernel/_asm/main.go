// Command asm generates the assembly of package kernel: one file of functions for each
// instruction set, and their Go declarations. It also generates the assembly of package vector.
// The doc comments of these packages define what each function computes. This program defines how.
//
//	go run . -level avx512 -out ../avx512_amd64.s -stubs ../avx512_amd64.go -pkg kernel
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/buildtags"
)

func main() {
	level := flag.String("level", "", "amx, avx512, avx2, neon or vector")
	build.Constraint(buildtags.Term("!purego").ToConstraint())
	var g generator
	flag.Parse()
	switch *level {
	case "neon":
		neon()
		return
	case "amx":
		amx()
		build.Generate()
		return
	case "vector":
		vector()
		build.Generate()
		return
	case "avx512":
		g = avx512()
	case "avx2":
		g = avx2()
	default:
		fmt.Fprintln(os.Stderr, "asm: -level must be amx, avx512, avx2, neon or vector")
		os.Exit(2)
	}
	for _, shape := range g.layers {
		g.layer(shape)
	}
	g.steps()
	g.dot()
	g.prefetch()
	g.product(g.units)
	g.cross()
	g.tanh()
	g.transpose()
	g.set()
	g.apply()
	g.combine()
	g.triples()
	g.reduce()
	g.softmax()
	for _, t := range g.tiles {
		g.pairs(t[0], t[1])
	}
	g.dots(g.sums)
	g.linear()
	g.kinks()
	g.gate()
	g.update()
	if *level == "avx512" {
		g.list()
		g.expand()
		g.unpack()
		g.reached()
	}
	g.fma()
	build.Generate()
}

// neon generates the files of level neon. avo has read its flags, but cannot write them.
func neon() {
	a := arm{suffix: "NEON"}
	neonAll(&a)
	command := "go run main.go " + strings.Join(os.Args[1:], " ")
	assembly, stubs := a.files(command, flag.Lookup("pkg").Value.String())
	for name, text := range map[string]string{"out": assembly, "stubs": stubs} {
		if err := os.WriteFile(flag.Lookup(name).Value.String(), []byte(text), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "asm:", err)
			os.Exit(1)
		}
	}
}
