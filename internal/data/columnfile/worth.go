package columnfile

import (
	"encoding/binary"
	"errors"
	"io"
	"math"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/schema"
)

// WorthMark is the key in the metadata of a Parquet file of the worth of ids. Its value says what the worth is.
const WorthMark = "shaver.worth"

// WorthID is what an id of a table is worth.
type WorthID struct {
	Table string // or the name of the field, if all fields share one table or have one each
	Field string // that reads the row first
	ID    int64  // number of the row in the table, or in the field
	Count int64  // number of rows of data
	Worth float64
	Score int64 // position in the order of worth, from 1
	Bytes int64 // of the row as float32
	Pad   bool  // whether the row fills empty positions of a list
	Key   int64 // by which a store finds the row; it has the bits of a uint64
}

// IsWorthParquet reports whether r is a file of WriteWorth.
func IsWorthParquet(r io.ReaderAt, size int64) bool { return footerHas(r, size, WorthMark) }

// WriteWorth writes a line for each id, with the columns table, field, id, count, worth, score and key. kind is
// what the worth is, and job the id of the job. None of our programs reads the file. The same arguments give
// the same bytes.
func WriteWorth(w io.Writer, ids []WorthID, kind, job string) error {
	once := parquet.Repetitions.Required
	table, err := textNode("table")
	if err != nil {
		return err
	}
	field, err := textNode("field")
	if err != nil {
		return err
	}
	root, err := schema.NewGroupNode("schema", once, schema.FieldList{table, field, schema.NewInt64Node("id", once, -1), schema.NewInt64Node("count", once, -1), schema.NewFloat64Node("worth", once, -1), schema.NewInt64Node("score", once, -1), schema.NewInt64Node("key", once, -1)}, -1)
	if err != nil {
		return err
	}
	out := parquetWriter(w, root, "table", "field")
	if err := errors.Join(out.AppendKeyValueMetadata(WorthMark, kind), out.AppendKeyValueMetadata("shaver.job", job)); err != nil {
		return err
	}
	for len(ids) > 0 {
		part := ids[:min(parquetGroup, len(ids))]
		ids = ids[len(part):]
		tables, fields := make([]parquet.ByteArray, len(part)), make([]parquet.ByteArray, len(part))
		numbers, counts, scores, keys, worth := make([]int64, len(part)), make([]int64, len(part)), make([]int64, len(part)), make([]int64, len(part)), make([]float64, len(part))
		for i, p := range part {
			tables[i], fields[i] = parquet.ByteArray(p.Table), parquet.ByteArray(p.Field)
			numbers[i], counts[i], worth[i], scores[i] = p.ID, p.Count, p.Worth, p.Score
			keys[i] = p.Key
		}
		group := out.AppendRowGroup()
		if err := errors.Join(writeColumn(group, tables), writeColumn(group, fields), writeColumn(group, numbers), writeColumn(group, counts), writeColumn(group, worth), writeColumn(group, scores), writeColumn(group, keys), group.Close()); err != nil {
			return errors.Join(err, out.Close())
		}
	}
	return out.Close()
}

// WriteKeys writes the keys of the ids as int64, in little-endian bytes. A uint64 has the same bytes.
func WriteKeys(w io.Writer, ids []WorthID) error {
	return writeEight(w, ids, func(p *WorthID) int64 { return p.Key })
}

// WriteScores64 writes the scores of the ids as int64, in little-endian bytes. A uint64 has the same bytes.
func WriteScores64(w io.Writer, ids []WorthID) error {
	return writeEight(w, ids, func(p *WorthID) int64 { return p.Score })
}

func writeEight(w io.Writer, ids []WorthID, number func(*WorthID) int64) error {
	text := make([]byte, 0, 8*len(ids))
	for i := range ids {
		text = binary.LittleEndian.AppendUint64(text, uint64(number(&ids[i])))
	}
	_, err := w.Write(text)
	return err
}

// WriteScores32 writes the scores divided by the number of all ids, above 0 and at most 1, as float32 in little-endian
// bytes. Rounding keeps the order, but may make neighbours equal.
func WriteScores32(w io.Writer, ids []WorthID, all int) error {
	text := make([]byte, 0, 4*len(ids))
	for i := range ids {
		text = binary.LittleEndian.AppendUint32(text, math.Float32bits(float32(float64(ids[i].Score)/float64(all))))
	}
	_, err := w.Write(text)
	return err
}
