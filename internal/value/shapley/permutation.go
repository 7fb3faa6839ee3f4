package shapley

// permutation is the estimator that takes one walk in each pass.
type permutation struct{ walks }

func newPermutation(s *setup) evaluator { return &permutation{newWalks(s)} }

func (p *permutation) values(sum, within []int64, r int) error {
	p.begin(sum)
	for pass := range p.options.Passes {
		p.draw(r, pass)
		if err := p.walk(p.batch.Label[r]); err != nil {
			return err
		}
		for k, player := range p.order {
			p.add(sum, player, p.losses[k]-p.losses[k+1])
		}
	}
	return p.variances(sum, within)
}
