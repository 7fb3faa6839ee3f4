//go:build js

// Command browser is package infer for JavaScript, as WebAssembly. A page loads wasm_exec.js and shaver.js before it. A policy of
// the page for scripts must allow 'wasm-unsafe-eval', but need not allow 'unsafe-eval'. The global object shaver is then:
//
//	shaver.open(bytes)         opens the bytes of a safetensors file, a Uint8Array, and returns a model
//	model.fields               names of the fields; empty if the file does not say them
//	model.sizes                number of features of each field
//	model.lengths              number of ids of each field in a row; 1 unless the field is a list
//	model.pads                 id that fills a list, or -1
//	model.dense                names of the dense inputs
//	model.logits(ids, dense)   returns the logits of rows, a Float64Array. ids is an Int32Array of local ids, row by row, and
//	                           dense a Float32Array, or undefined if the model has no dense inputs.
//	shaver.layers(bytes)       returns the layers of a file of which bytes have at least the header: an array of objects with bytes (of
//	                           the file through the layer), sparsity and kept (entries); empty for a file that is not in layers
//	model.layers()             returns the number of layers that the model has; 0 if the file is not in layers
//	model.upgrade(bytes)       replaces the model by that of more layers. bytes are those from the beginning of the file on
//	model.close()              lets the memory be used again; logits then fails
//
// A failure throws an Error. The functions block until they are done, so a page with large batches calls them in a worker.
package main

import (
	"fmt"
	"syscall/js"
	"unsafe"

	"shaver/infer"
)

func main() {
	api := js.Global().Get("shaver")
	throwing := api.Get("throwing")
	api.Set("open", throwing.Invoke(js.FuncOf(func(_ js.Value, args []js.Value) any {
		m, err := open(args, throwing)
		if err != nil {
			return failure(err)
		}
		return m
	})))
	api.Set("layers", throwing.Invoke(js.FuncOf(func(_ js.Value, args []js.Value) any {
		data, err := numbers[byte](args, 0, "Uint8Array")
		if err != nil {
			return failure(err)
		}
		layers, err := infer.Layers("model", data)
		if err != nil {
			return failure(err)
		}
		all := make([]js.Value, len(layers))
		for i, l := range layers {
			all[i] = js.ValueOf(map[string]any{"bytes": l.Bytes, "sparsity": l.Sparsity, "kept": l.Kept})
		}
		return list(all)
	})))
	select {} // the functions work for as long as the program runs
}

// failure returns a JavaScript Error.
func failure(err error) js.Value { return js.Global().Get("Error").New(err.Error()) }

// open implements shaver.open.
func open(args []js.Value, throwing js.Value) (js.Value, error) {
	data, err := numbers[byte](args, 0, "Uint8Array")
	if err != nil {
		return js.Value{}, err
	}
	m, err := infer.OpenBytes("model", data)
	if err != nil {
		return js.Value{}, err
	}
	width := 0
	for _, length := range m.Lengths() {
		width += length
	}
	// These functions are never released, because a call of a released function returns undefined and throws nothing.
	logits := js.FuncOf(func(_ js.Value, args []js.Value) any {
		if m == nil {
			return failure(infer.ErrClosed)
		}
		out, err := score(m, width, args)
		if err != nil {
			return failure(err)
		}
		return out
	})
	upgrade := js.FuncOf(func(_ js.Value, args []js.Value) any {
		data, err := numbers[byte](args, 0, "Uint8Array")
		if err == nil && m == nil {
			err = infer.ErrClosed
		}
		if err == nil {
			err = m.UpgradeBytes(data)
		}
		if err != nil {
			return failure(err)
		}
		return nil
	})
	have := js.FuncOf(func(js.Value, []js.Value) any {
		if m == nil {
			return 0
		}
		n, _ := m.Layers()
		return n
	})
	end := js.FuncOf(func(js.Value, []js.Value) any {
		m = nil
		return nil
	})
	o := js.Global().Get("Object").New()
	o.Set("fields", list(m.Fields()))
	o.Set("sizes", list(m.Sizes()))
	o.Set("lengths", list(m.Lengths()))
	o.Set("pads", list(m.Pads()))
	o.Set("padsFront", list(m.PadsFront()))
	o.Set("dense", list(m.DenseInputs()))
	o.Set("logits", throwing.Invoke(logits))
	o.Set("layers", have)
	o.Set("upgrade", throwing.Invoke(upgrade))
	o.Set("close", end)
	return o, nil
}

// score implements model.logits.
func score(m *infer.Model, width int, args []js.Value) (js.Value, error) {
	ids, err := numbers[int32](args, 0, "Int32Array")
	if err != nil {
		return js.Value{}, err
	}
	var dense []float32
	if len(args) > 1 && !args[1].IsUndefined() {
		if dense, err = numbers[float32](args, 1, "Float32Array"); err != nil {
			return js.Value{}, err
		}
	}
	if len(ids)%width != 0 {
		return js.Value{}, fmt.Errorf("%d ids: expected a multiple of %d, the ids of a row", len(ids), width)
	}
	dst := make([]float64, len(ids)/width)
	if err := m.Logits(dst, ids, dense); err != nil {
		return js.Value{}, err
	}
	out := js.Global().Get("Float64Array").New(len(dst))
	if len(dst) > 0 {
		js.CopyBytesToJS(js.Global().Get("Uint8Array").New(out.Get("buffer")), unsafe.Slice((*byte)(unsafe.Pointer(&dst[0])), 8*len(dst)))
	}
	return out, nil
}

// numbers copies the typed array args[i], which must be of the given class.
func numbers[T byte | int32 | float32](args []js.Value, i int, class string) ([]T, error) {
	if i >= len(args) || !args[i].InstanceOf(js.Global().Get(class)) {
		return nil, fmt.Errorf("argument %d: expected a %s", i+1, class)
	}
	a := args[i]
	out := make([]T, a.Length())
	if len(out) > 0 {
		bytes := js.Global().Get("Uint8Array").New(a.Get("buffer"), a.Get("byteOffset"), a.Get("byteLength"))
		js.CopyBytesToGo(unsafe.Slice((*byte)(unsafe.Pointer(&out[0])), len(out)*int(unsafe.Sizeof(out[0]))), bytes)
	}
	return out, nil
}

// list returns a JavaScript array.
func list[T any](values []T) js.Value {
	array := js.Global().Get("Array").New()
	for i, v := range values {
		array.SetIndex(i, v)
	}
	return array
}
