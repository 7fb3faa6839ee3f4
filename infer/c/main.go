//go:build cgo

// Command c is package infer with a C interface. It is built as a library, with -buildmode=c-shared or c-archive.
// shaver.h says what each function does.
package main

// #include <stdlib.h>
// #include "shaver.h"
import "C"

import (
	"math"
	"sync"
	"unsafe"

	"shaver/infer"
	"shaver/internal/base/fault"
)

// opened is a model that a caller has open.
type opened struct {
	*infer.Model
	sizes, lengths, pads []int
	fields, dense        []string
	width                int // number of ids of a row
}

// models has the open models by their numbers.
var models struct {
	sync.RWMutex
	last uint64
	open map[uint64]*opened
}

func main() {} // a library needs it, and never calls it

// add returns the number of a model that was opened, or reports err.
func add(m *infer.Model, err error, message **C.char) C.shaver_model {
	report(err, message)
	if err != nil {
		return 0
	}
	o := &opened{Model: m, sizes: m.Sizes(), lengths: m.Lengths(), pads: m.Pads(), fields: m.Fields(), dense: m.DenseInputs()}
	for _, length := range o.lengths {
		o.width += length
	}
	models.Lock()
	defer models.Unlock()
	if models.open == nil {
		models.open = map[uint64]*opened{}
	}
	models.last++
	models.open[models.last] = o
	return C.shaver_model(models.last)
}

// find returns an open model, or nil.
func find(model C.shaver_model) *opened {
	models.RLock()
	defer models.RUnlock()
	return models.open[uint64(model)]
}

// report sets *message to the text of err, or to NULL.
func report(err error, message **C.char) {
	if message == nil {
		return
	}
	*message = nil
	if err != nil {
		*message = C.CString(err.Error())
	}
}

// set sets *to unless it is NULL.
func set(to *C.int32_t, value int) {
	if to != nil {
		*to = C.int32_t(value)
	}
}

//export shaver_open
func shaver_open(path *C.shaver_text, message **C.char) C.shaver_model {
	if path == nil {
		return add(nil, fault.Inputf("path is NULL: expected a file"), message)
	}
	m, err := infer.Open(C.GoString(path))
	return add(m, err, message)
}

//export shaver_open_bytes
func shaver_open_bytes(name *C.shaver_text, data *C.shaver_byte, size C.size_t, message **C.char) C.shaver_model {
	if name == nil || data == nil || uint64(size) > math.MaxInt {
		return add(nil, fault.Inputf("a model of %d bytes, or its name, is NULL or too large: expected the bytes of a safetensors file", uint64(size)), message)
	}
	m, err := infer.OpenBytes(C.GoString(name), unsafe.Slice((*byte)(unsafe.Pointer(data)), int(size)))
	return add(m, err, message)
}

//export shaver_close
func shaver_close(model C.shaver_model) {
	models.Lock()
	o := models.open[uint64(model)]
	delete(models.open, uint64(model))
	models.Unlock()
	if o != nil {
		_ = o.Close() // munmap fails only for memory that is not mapped
	}
}

//export shaver_shape
func shaver_shape(model C.shaver_model, ids, dense *C.int32_t) C.int32_t {
	o := find(model)
	if o == nil {
		return -1
	}
	set(ids, o.width)
	set(dense, len(o.dense))
	return C.int32_t(len(o.sizes))
}

//export shaver_field
func shaver_field(model C.shaver_model, field C.int32_t, size, length, pad *C.int32_t) C.int32_t {
	o := find(model)
	if o == nil || field < 0 || int(field) >= len(o.sizes) {
		return -1
	}
	set(size, o.sizes[field])
	set(length, o.lengths[field])
	set(pad, o.pads[field])
	return 0
}

//export shaver_pads_front
func shaver_pads_front(model C.shaver_model, field C.int32_t) C.int32_t {
	o := find(model)
	switch {
	case o == nil || field < 0 || int(field) >= len(o.sizes):
		return -1
	case o.PadsFront()[field]:
		return 1
	}
	return 0
}

//export shaver_field_name
func shaver_field_name(model C.shaver_model, field C.int32_t) *C.char {
	return name(find(model), field, func(o *opened) []string { return o.fields })
}

//export shaver_dense_name
func shaver_dense_name(model C.shaver_model, input C.int32_t) *C.char {
	return name(find(model), input, func(o *opened) []string { return o.dense })
}

// name returns a name from a list of the model, or NULL.
func name(o *opened, i C.int32_t, list func(o *opened) []string) *C.char {
	if o == nil || i < 0 || int(i) >= len(list(o)) {
		return nil
	}
	return C.CString(list(o)[i])
}

//export shaver_logits
func shaver_logits(model C.shaver_model, logits *C.double, rows C.int64_t, ids *C.shaver_id, dense *C.shaver_value, message **C.char) C.int32_t {
	err := score(model, (*float64)(logits), int64(rows), (*int32)(unsafe.Pointer(ids)), (*float32)(unsafe.Pointer(dense)))
	report(err, message)
	if err != nil {
		return -1
	}
	return 0
}

// score implements shaver_logits.
func score(model C.shaver_model, logits *float64, rows int64, ids *int32, dense *float32) error {
	o := find(model)
	if o == nil {
		return fault.Inputf("model %d: %w", uint64(model), infer.ErrClosed)
	}
	most := int64(math.MaxInt32) / int64(max(2, o.width, len(o.dense))) / 4 // no array exceeds the memory of 32 bits
	switch {
	case rows < 0 || rows > most:
		return fault.Inputf("%d rows: expected 0 to %d in a call", rows, most)
	case rows == 0:
		return nil
	case logits == nil || ids == nil && o.width > 0 || dense == nil && len(o.dense) > 0:
		return fault.Inputf("logits, ids or dense is NULL: expected %d rows of a logit, %d ids and %d dense values", rows, o.width, len(o.dense))
	}
	var values []float32
	if len(o.dense) > 0 {
		values = unsafe.Slice(dense, int(rows)*len(o.dense))
	}
	return o.Logits(unsafe.Slice(logits, int(rows)), unsafe.Slice(ids, int(rows)*o.width), values)
}

//export shaver_probability
func shaver_probability(logit C.double) C.double { return C.double(infer.Probability(float64(logit))) }

//export shaver_free
func shaver_free(text *C.char) { C.free(unsafe.Pointer(text)) }
