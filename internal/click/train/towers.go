package train

import (
	"shaver/internal/click/model"
	"shaver/internal/num/kernel"
)

// towers are the two halves of the columns of a NeuMF. The MLP reads the first half, and the
// products of the user's and the item's entries are those of the second half.
type towers struct {
	half    int
	product *tensor     // [half], weights of the products
	x, dx   kernel.Tile // [rows, 2*half], the MLP's columns, the user's before the item's; their gradient
	sums    *sums
}

// newTowers returns the towers of a model for batches of at most the given number of rows. They
// keep p.Product.
func newTowers(a *model.Architecture, p *model.Parameters, rows int) *towers {
	half := a.Dim / 2
	return &towers{half, newVector("product", p.Product), newTile(rows, a.Dim), newTile(rows, a.Dim), newSums(rows, half)}
}

// products returns the user's and the item's entries that are multiplied. x is the embedding of
// a row.
func (w *towers) products(x []float32) (user, item []float32) {
	return x[w.half : 2*w.half], x[3*w.half : 4*w.half]
}

// read copies the columns of the MLP from x, the embeddings of a batch, to w.x.
func (w *towers) read(x kernel.Tile, rows int) {
	parts(rows, chunkRows, func(from, to int) {
		for i := from; i < to; i++ {
			all, mlp := x.Row(i), w.x.Row(i)
			copy(mlp[:w.half], all)
			copy(mlp[w.half:2*w.half], all[2*w.half:])
		}
	})
}

// term returns the weighted sum of the products of a row with the embedding x.
func (w *towers) term(x []float32) (sum float64) {
	user, item := w.products(x)
	for c, v := range w.product.values {
		sum += float64(float64(v) * float64(float64(user[c])*float64(item[c])))
	}
	return sum
}

// backward computes the gradient of the weights of the products, and sets dx to that of the
// embeddings x. w.dx must have that of the MLP's columns, and dlogit that of the logits.
func (w *towers) backward(dx, x kernel.Tile, dlogit []float32) {
	n, weight := len(dlogit), w.product.values
	round(w.product.gradient, w.sums.add(n, func(sum []float32, from, to int) {
		for i := from; i < to; i++ {
			user, item := w.products(x.Row(i))
			for c := range sum {
				sum[c] += float32(dlogit[i] * float32(user[c]*item[c]))
			}
		}
	}), 1)
	parts(n, chunkRows, func(from, to int) {
		for i := from; i < to; i++ {
			all, mlp := dx.Row(i), w.dx.Row(i)
			copy(all[:w.half], mlp)
			copy(all[2*w.half:3*w.half], mlp[w.half:])
			user, item := w.products(x.Row(i))
			dUser, dItem := w.products(all)
			for c, v := range weight {
				g := float32(dlogit[i] * v)
				dUser[c], dItem[c] = float32(g*item[c]), float32(g*user[c])
			}
		}
	})
}
