package random

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// philox reproduces the known answers published with the generator (Random123,
// kat_vectors).
func TestPhiloxKnownAnswers(t *testing.T) {
	const ones = math.MaxUint64
	for _, c := range []struct {
		counter [4]uint64
		key     [2]uint64
		want    [4]uint64
	}{
		{[4]uint64{}, [2]uint64{}, [4]uint64{0x16554d9eca36314c, 0xdb20fe9d672d0fdc, 0xd7e772cee186176b, 0x7e68b68aec7ba23b}},
		{[4]uint64{ones, ones, ones, ones}, [2]uint64{ones, ones}, [4]uint64{0x87b092c3013fe90b, 0x438c3c67be8d0224, 0x9cc7d7c69cd777b6, 0xa09caebf594f0ba0}},
	} {
		if got := philox(c.counter, c.key); got != c.want {
			t.Errorf("philox(%x, %x) = %x, want %x", c.counter, c.key, got, c.want)
		}
	}
}

func TestAddressesAreIndependent(t *testing.T) {
	seen := map[uint64]string{}
	for _, a := range []struct {
		seed    uint64
		purpose Purpose
		i, j    uint64
	}{{1, Order, 0, 0}, {2, Order, 0, 0}, {1, Sample, 0, 0}, {1, Order, 1, 0}, {1, Order, 0, 1}} {
		s := At(a.seed, a.purpose, a.i, a.j)
		again := At(a.seed, a.purpose, a.i, a.j)
		for range 9 {
			x := s.Uint64()
			if x != again.Uint64() {
				t.Fatalf("%+v gives two sequences", a)
			}
			if _, ok := seen[x]; ok {
				t.Fatalf("%+v has the same number as another address", a)
			}
			seen[x] = ""
		}
	}
}

// Every order of four players is equally likely, by a chi-square test over the 24 orders.
func TestPermuteIsUniform(t *testing.T) {
	const draws = 24_000
	count := map[[4]int32]float64{}
	for i := range uint64(draws) {
		s := At(7, Order, i, 0)
		var order [4]int32
		s.Permute(order[:])
		count[order]++
	}
	if len(count) != 24 {
		t.Fatalf("%d of 24 orders seen", len(count))
	}
	chi := 0.0
	for _, n := range count {
		chi += (n - draws/24) * (n - draws/24) / (draws / 24)
	}
	if limit := (distuv.ChiSquared{K: 23}).Quantile(0.9999); chi > limit {
		t.Errorf("chi-square %.1f exceeds %.1f", chi, limit)
	}
}

func TestNormalMoments(t *testing.T) {
	s := At(3, Quickstart, 0, 0)
	x := make([]float64, 100_000)
	for i := range x {
		x[i] = s.Normal()
	}
	if mean, sd := stat.MeanStdDev(x, nil); math.Abs(mean) > 0.015 || math.Abs(sd-1) > 0.01 {
		t.Errorf("mean %.4f, standard deviation %.4f", mean, sd)
	}
}

func BenchmarkPermute624(b *testing.B) {
	order := make([]int32, 624)
	for i := 0; b.Loop(); i++ {
		s := At(1, Order, uint64(i), 0)
		s.Permute(order)
	}
}

// Each coin has its probability, and neighbouring coins are independent.
func TestCoins(t *testing.T) {
	const n, draws = 130, 4000
	for _, q := range []float64{0, 1.0 / 1024, 0.3, 0.5, 0.9375} {
		s := At(7, Coalition, 1, uint64(q*1024))
		words := make([]uint64, 3)
		count, both := make([]float64, n), make([]float64, n)
		for range draws {
			s.Coins(words, n, uint64(q*(1<<53))<<11)
			before := false
			for i := range n {
				one := words[i/64]>>(i%64)&1 == 1
				if one {
					count[i]++
					if before {
						both[i]++
					}
				}
				before = one
			}
		}
		for i := range n {
			if sd := math.Sqrt(q * (1 - q) * draws); math.Abs(count[i]-q*draws) > 5*sd {
				t.Errorf("q = %g: coin %d is 1 in %g of %d draws", q, i, count[i], draws)
			}
			if pair := q * q; i > 0 && math.Abs(both[i]-pair*draws) > 3+5*math.Sqrt(pair*draws) {
				t.Errorf("q = %g: coin %d and the previous coin are both 1 in %g of %d draws", q, i, both[i], draws)
			}
		}
	}
}
