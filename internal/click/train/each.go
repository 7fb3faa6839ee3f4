package train

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// each calls f for 0 ... n-1 on all cores and waits for the calls. The results must not
// depend on the order of the calls.
func each(n int, f func(i int)) {
	cores := min(runtime.GOMAXPROCS(0), n)
	if cores <= 1 {
		for i := range n {
			f(i)
		}
		return
	}
	var next atomic.Int64
	var group sync.WaitGroup
	for range cores {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	group.Wait()
}

// parts calls f for consecutive parts of [0, n), each of the given size except the last.
func parts(n, size int, f func(from, to int)) {
	each((n+size-1)/size, func(i int) { f(i*size, min((i+1)*size, n)) })
}

// The sizes of parts. They decide where sums are cut, so they must not depend on the number
// of cores.
const (
	layerRows  = 96      // rows of a product, a multiple of the 12 rows that kernel.Matrix.Layer may overwrite
	chunkRows  = 64      // rows that one float32 sum adds up
	columns    = 64      // columns that are packed or transposed at once
	adamValues = 1 << 14 // values of a large tensor that Adam moves at once
)
