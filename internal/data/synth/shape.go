package synth

import (
	"math/bits"
	"strconv"
)

// form is the way in which a column's values are written.
type form uint8

const (
	number form = iota // decimal, counted from the column's base
	hex                // 8 hexadecimal digits, scrambled
	hashed             // 64-bit hash in decimal
)

// column is one categorical or integer column of a raw form. Its values have ranks from
// 1, the most frequent value, to the number of values. Rank 0 is a missing value.
type column struct {
	name     string
	form     form
	values   uint32
	missing  float64 // share of rows without a value
	exponent float64 // s of Zipf's law, in which rank k has the weight k^-s; 0 means the shape's exponent
	base     int64   // number written for rank 1, in form number
	counts   bool    // whether the column is an integer whose effect depends on the binary logarithm of its rank
}

// shape is one raw form. The cardinalities and the shares of missing values are those
// published for the real files, or for MovieLens 100K. The exponents are chosen so that, in a log of the real
// length, as many features occur often enough for an id as the paper reports.
type shape struct {
	rate     float64 // share of rows with a click
	exponent float64 // exponent of columns that have none of their own
	columns  []column
	pairs    [][2]int // pairs of columns that have a joint effect
	factors  int      // number of factors of the values of a pair; 0 means that each pair of values has an effect of its own
	pairSD   float64  // standard deviation of the sum of the pairs' effects; 0 means the constant pairSD
	header   string
	// settle adjusts ranks that depend not only on their own draw but also on the
	// position of the row among all rows, or on other columns. It runs before the effects
	// are computed. It may be nil.
	settle func(ranks []uint32, row, rows int64)
	write  func(to []byte, l *law, r *row) []byte
}

// row is the input of shape.write.
type row struct {
	number int64
	ranks  []uint32
	label  uint8
	spare  uint32 // random bits that affect neither the label nor a feature
}

// shapes holds the raw forms by name.
var shapes = map[string]*shape{"criteo": criteo, "avazu": avazu, "kdd": kdd, "ratings": ratings}

// Shapes returns the names of the raw forms.
func Shapes() []string { return []string{"criteo", "avazu", "kdd", "ratings"} }

// criteo is the Kaggle display advertising challenge: a label, 13 integers and 26
// hexadecimal strings. It is separated by tabs, has no header, and leaves missing values
// empty.
var criteo = &shape{
	rate:     .2562,
	exponent: 1.134,
	columns: []column{
		{name: "I1", values: 5776, missing: .454, counts: true},
		{name: "I2", values: 257678, base: -3, counts: true},
		{name: "I3", values: 65536, missing: .215, counts: true},
		{name: "I4", values: 970, missing: .217, counts: true},
		{name: "I5", values: 23159457, missing: .026, counts: true},
		{name: "I6", values: 431038, missing: .224, counts: true},
		{name: "I7", values: 56312, missing: .043, counts: true},
		{name: "I8", values: 6048, missing: .0005, counts: true},
		{name: "I9", values: 29020, missing: .043, counts: true},
		{name: "I10", values: 12, missing: .454, counts: true},
		{name: "I11", values: 232, missing: .043, counts: true},
		{name: "I12", values: 4009, missing: .765, counts: true},
		{name: "I13", values: 7394, missing: .217, counts: true},
		{name: "C1", form: hex, values: 1460},
		{name: "C2", form: hex, values: 583},
		{name: "C3", form: hex, values: 10131226, missing: .034},
		{name: "C4", form: hex, values: 2202607, missing: .034},
		{name: "C5", form: hex, values: 305},
		{name: "C6", form: hex, values: 23, missing: .12},
		{name: "C7", form: hex, values: 12517},
		{name: "C8", form: hex, values: 633},
		{name: "C9", form: hex, values: 3},
		{name: "C10", form: hex, values: 93145},
		{name: "C11", form: hex, values: 5683},
		{name: "C12", form: hex, values: 8351592, missing: .034},
		{name: "C13", form: hex, values: 3194},
		{name: "C14", form: hex, values: 27},
		{name: "C15", form: hex, values: 14992},
		{name: "C16", form: hex, values: 5461305, missing: .034},
		{name: "C17", form: hex, values: 10},
		{name: "C18", form: hex, values: 5652},
		{name: "C19", form: hex, values: 2172, missing: .44},
		{name: "C20", form: hex, values: 3, missing: .44},
		{name: "C21", form: hex, values: 7046546, missing: .034},
		{name: "C22", form: hex, values: 17, missing: .762},
		{name: "C23", form: hex, values: 15},
		{name: "C24", form: hex, values: 286180, missing: .034},
		{name: "C25", form: hex, values: 104, missing: .44},
		{name: "C26", form: hex, values: 142571, missing: .44},
	},
	pairs: [][2]int{{17, 26}, {26, 29}, {10, 35}, {13, 21}},
	write: func(to []byte, l *law, r *row) []byte {
		to = append(to, '0'+r.label)
		for j, rank := range r.ranks {
			to = append(to, '\t')
			if rank > 0 {
				to = l.columns[j].append(to, rank)
			}
		}
		return append(to, '\n')
	},
}

// hours is the time span of Avazu's file: ten days, from 21 October 2014.
const hours = 240

// avazu is the Kaggle click-through rate challenge. It is separated by commas, has a
// header and an id for each row, and is ordered by time.
var avazu = &shape{
	rate:     .1698,
	exponent: 1,
	columns: []column{
		{name: "hour", values: hours},
		{name: "C1", values: 7, base: 1005, exponent: 3},
		{name: "banner_pos", values: 7, base: 0, exponent: 2},
		{name: "site_id", form: hex, values: 4737},
		{name: "site_domain", form: hex, values: 7745},
		{name: "site_category", form: hex, values: 26},
		{name: "app_id", form: hex, values: 8552, exponent: 1.3},
		{name: "app_domain", form: hex, values: 559, exponent: 1.5},
		{name: "app_category", form: hex, values: 36, exponent: 1.3},
		{name: "device_id", form: hex, values: 2686408, exponent: 1.1},
		{name: "device_ip", form: hex, values: 6729486, exponent: .9},
		{name: "device_model", form: hex, values: 8251},
		{name: "device_type", values: 5, base: 1, exponent: 3},
		{name: "device_conn_type", values: 4, base: 0, exponent: 2.5},
		{name: "C14", values: 2626, base: 20596},
		{name: "C15", values: 8, base: 320, exponent: 3},
		{name: "C16", values: 9, base: 50, exponent: 3},
		{name: "C17", values: 435, base: 1722},
		{name: "C18", values: 4, base: 0},
		{name: "C19", values: 68, base: 35},
		{name: "C20", values: 172, base: 99999},
		{name: "C21", values: 60, base: 23},
	},
	pairs:  [][2]int{{3, 17}, {6, 14}, {3, 11}},
	header: "id,click,hour,C1,banner_pos,site_id,site_domain,site_category,app_id,app_domain,app_category,device_id,device_ip,device_model,device_type,device_conn_type,C14,C15,C16,C17,C18,C19,C20,C21\n",
	settle: func(ranks []uint32, row, rows int64) {
		hi, lo := bits.Mul64(uint64(row), hours)
		hour, _ := bits.Div64(hi, lo, uint64(rows))
		ranks[0] = 1 + uint32(hour)
	},
	write: func(to []byte, l *law, r *row) []byte {
		to = strconv.AppendUint(to, mix(uint64(r.number)+l.key), 10)
		to = append(to, ',', '0'+r.label)
		to = append(to, ",1410"...)
		hour := r.ranks[0] - 1
		to = twoDigits(twoDigits(to, 21+hour/24), hour%24)
		for j, rank := range r.ranks[1:] {
			to = l.columns[1+j].append(append(to, ','), rank)
		}
		return append(to, '\n')
	},
}

func twoDigits(to []byte, n uint32) []byte { return append(to, byte('0'+n/10), byte('0'+n%10)) }

// kdd is the training file of KDD Cup 2012 track 2: clicks, impressions and ten
// identifiers. It is separated by tabs and has no header.
var kdd = &shape{
	rate:     .0445,
	exponent: .99,
	columns: []column{
		{name: "display URL", form: hashed, values: 26273},
		{name: "ad", values: 641707, base: 3000001},
		{name: "advertiser", values: 14847, base: 23},
		{name: "depth", values: 3, base: 1},
		{name: "position", values: 3, base: 1},
		{name: "query", values: 24122076},
		{name: "keyword", values: 1188089},
		{name: "title", values: 3735796},
		{name: "description", values: 2934101},
		{name: "user", values: 22023547, missing: .05, base: 1},
	},
	pairs: [][2]int{{2, 6}, {0, 4}, {1, 6}},
	settle: func(ranks []uint32, _, _ int64) {
		ranks[4] = 1 + (ranks[4]-1)%ranks[3] // a position is at most the depth
	},
	write: func(to []byte, l *law, r *row) []byte {
		impressions := 1 + bits.TrailingZeros32(r.spare|1<<14)/2 // 1 in three of four rows
		clicks := 0
		if r.label == 1 {
			clicks = 1 + int(r.spare>>16)*impressions>>18 // occasionally more than one
		}
		to = strconv.AppendInt(to, int64(clicks), 10)
		to = strconv.AppendInt(append(to, '\t'), int64(impressions), 10)
		for j, rank := range r.ranks {
			to = append(to, '\t')
			if rank == 0 { // unknown user
				to = append(to, '0')
				continue
			}
			to = l.columns[j].append(to, rank)
		}
		return append(to, '\n')
	},
}

// ratings is who likes what: a label, a user and an item. It is separated by commas and has a
// header. The numbers of users and of items, and the share of likes, are those of MovieLens
// 100K with ratings of 4 and more as likes. What a user likes depends on latent factors, as in a
// matrix factorisation.
var ratings = &shape{
	rate: .5538,
	columns: []column{
		{name: "user", values: 943, base: 1, exponent: .5},
		{name: "item", values: 1682, base: 1, exponent: .8},
	},
	pairs:   [][2]int{{0, 1}},
	factors: 4,
	pairSD:  1.5,
	header:  "label,user,item\n",
	write: func(to []byte, l *law, r *row) []byte {
		to = append(to, '0'+r.label)
		for j, rank := range r.ranks {
			to = l.columns[j].append(append(to, ','), rank)
		}
		return append(to, '\n')
	},
}
