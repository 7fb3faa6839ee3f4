package scores

import "shaver/internal/value/mask"

// Ranking is a setting that has the name of an aggregate, or mask.Signed for the rank of that name and the sum, which alone has a
// sign.
type Ranking struct{ Name, Rank *string }

// Set sets both.
func (a *Ranking) Set(name string) error {
	if *a.Name, *a.Rank = name, mask.Abs; name == mask.Signed {
		*a.Name, *a.Rank = Sum, mask.Signed
	}
	return nil
}

// String returns what Set takes.
func (a *Ranking) String() string {
	switch {
	case a.Name == nil:
		return ""
	case *a.Rank == mask.Signed:
		return mask.Signed
	}
	return *a.Name
}

// Type is that of a flag.
func (a *Ranking) Type() string { return "string" }
