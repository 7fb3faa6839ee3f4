package family

import (
	"strings"

	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
)

// TowerTable is the name of the table of a NeuMF. A NeuMF has four tables: one for each field in
// each of its two towers, the MLP and GMF. They are joined to one table, [n, d], whose key has a
// * for the tower and the field. A row has the columns of the MLP and then those of GMF.
const TowerTable = "*_emb_table._emb_module.weight"

// towers are what the * of TowerTable stands for, by field, with the MLP first.
var towers = [2][2]string{{"_mlp.user", "_gmf.user"}, {"_mlp.item", "_gmf.item"}}

// hasTowers reports whether the tensors are those of a NeuMF.
func (s *seeker) hasTowers() bool {
	return !s.has(s.embeddingName()) && (s.has(TowerTable) || s.hasGroup("_gmf."))
}

// recogniseTowers is Recognise for the tensors of a NeuMF, whose tables give the sizes of the
// fields.
func (st *State) recogniseTowers(s *seeker, said []Statement, config Configuration, sidecar Lookup) error {
	found, err := sidecar("")
	if err != nil {
		return err
	}
	if found != nil {
		said = append(said, *found)
	}
	var dims []int
	if s.has(TowerTable) {
		if !st.Compact {
			return st.inputf("tensor %s has no field in its name", s.keys[TowerTable])
		}
		for i := range said {
			if dims == nil {
				dims = said[i].FieldDims
			}
		}
	} else if dims, err = s.joinTowers(); err != nil {
		return err
	}
	parts := s.parts
	if s, err = st.seek(); err != nil { // the keys have changed
		return err
	}
	s.parts = parts
	return st.settle(s, dims, said, config)
}

// joinTowers replaces the four tables by one and returns the sizes of the fields.
func (s *seeker) joinTowers() (dims []int, err error) {
	c := s.state
	var tables []keyed
	for _, field := range towers {
		rows := tensor.AnySize
		for _, tower := range field {
			name := forField(TowerTable, tower)
			columns := tensor.AnySize
			if len(tables) > 0 {
				columns = tables[0].Shape[1]
			}
			key := s.take(name, rows, columns)
			if s.err != nil {
				return nil, s.err
			}
			t := c.Tensors[key]
			if rows = t.Shape[0]; len(tables) > 0 && t.DType != tables[0].DType {
				return nil, c.inputf("tensor %s has the type %s, and tensor %s has %s: expected one type for all tables", key, t.DType, tables[0].key, tables[0].DType)
			}
			if prefix := strings.TrimSuffix(key, name); len(tables) > 0 && tables[0].key != prefix+forField(TowerTable, towers[0][0]) {
				return nil, c.inputf("tensors %s and %s have different prefixes", tables[0].key, key)
			}
			tables = append(tables, keyed{key, t})
		}
		dims = append(dims, rows)
	}
	if err := c.checkApart(tables); err != nil {
		return nil, err
	}
	s.parts = map[*byte]keyed{}
	first := tables[0]
	var data []byte
	for j, rows := range dims {
		mlp, gmf := tables[2*j].Data, tables[2*j+1].Data
		if len(mlp) == 0 { // only the header of the file is known
			break
		}
		s.parts[&mlp[0]], s.parts[&gmf[0]] = tables[2*j], tables[2*j+1]
		for width := first.Shape[1] * first.DType.Size(); rows > 0; rows-- {
			data = append(append(data, mlp[:width]...), gmf[:width]...)
			mlp, gmf = mlp[width:], gmf[width:]
		}
	}
	joined := strings.TrimSuffix(first.key, forField(TowerTable, towers[0][0])) + TowerTable
	for i, key := range c.Keys {
		if key == first.key {
			c.Keys[i] = joined
		}
	}
	for _, e := range tables {
		delete(c.Tensors, e.key)
	}
	c.Tensors[joined] = tensor.Tensor{DType: first.DType, Shape: []int{dims[0] + dims[1], 2 * first.Shape[1]}, Data: data}
	c.keepKeys()
	return dims, nil
}

// splitTowers adds the four tables of t, the table of a NeuMF, to tensors. key is that of t.
func (st *State) splitTowers(tensors map[string]tensor.Tensor, key string, t tensor.Tensor) {
	half := t.Shape[1] / 2
	width, from := half*t.DType.Size(), 0
	for j, field := range towers {
		rows := st.Architecture.FieldDims[j]
		for k, tower := range field {
			part := tensor.Tensor{DType: t.DType, Shape: []int{rows, half}}
			if t.Data != nil { // a table in compact form may have no data
				part.Data = make([]byte, 0, rows*width)
				for i := from; i < from+rows; i++ {
					part.Data = append(part.Data, t.Data[(2*i+k)*width:][:width]...)
				}
			}
			tensors[forField(key, tower)] = part
		}
		from += rows
	}
}

// neuMF assigns roles to the tensors of a NeuMF, whose tables are joined.
func (s *seeker) neuMF(l *Roles) {
	l.Kind = model.NeuMF
	l.Embedding = s.take(TowerTable, tensor.AnySize, tensor.AnySize)
	if s.err != nil {
		return
	}
	if len(l.FieldDims) != 2 {
		s.fail("field_dims has %d fields: a NeuMF has 2, the user and the item", len(l.FieldDims))
		return
	}
	shape := s.shape(TowerTable)
	l.Dim = shape[1]
	s.checkRows(l.FieldDims, TowerTable, shape[0])
	l.Product = s.take("_gmf.gmf_fc.weight", 1, l.Dim/2)
	l.Bias = s.take("_gmf.gmf_fc.bias", 1)
	s.mlp(l, "_mlp.mlp.", false)
	if s.err == nil && len(l.Hidden) > 0 { // otherwise Validate reports the missing hidden layers
		l.Output = s.linear("_mlp.mlp_fc.", l.Hidden[len(l.Hidden)-1], 1)
	}
}

// inputs returns the number of inputs of the first layer of the MLP.
func (l *Roles) inputs() int {
	if l.Kind == model.NeuMF {
		return l.Dim
	}
	return l.Players()
}
