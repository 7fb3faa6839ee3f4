package tensor

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// AnySize means a dimension of any size in an expected shape.
const AnySize = math.MinInt

// ShapeText returns a shape for an error. AnySize is a star.
func ShapeText(shape []int) string {
	sizes := make([]string, len(shape))
	for i, size := range shape {
		sizes[i] = fmt.Sprint(size)
		if size == AnySize {
			sizes[i] = "*"
		}
	}
	return "[" + strings.Join(sizes, ", ") + "]"
}

// Quote quotes text from a file for a one-line error.
func Quote(text string) string {
	const most = 120
	if len(text) > most {
		text = text[:most] + "..."
	}
	return strconv.Quote(text)
}

// MetadataKey is the key of the metadata in a safetensors file, which no tensor has.
const MetadataKey = "__metadata__"

// CheckKey refuses a key that a safetensors file cannot store unchanged, or that would
// break the lines of our errors.
func CheckKey(key string) error {
	if key == "" || key == MetadataKey || len(key) > 1<<10 || strconv.Quote(key) != `"`+key+`"` {
		return fmt.Errorf("tensor key %s: expected printable text of at most 1024 bytes", Quote(key))
	}
	return nil
}
