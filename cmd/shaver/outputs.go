package main

import (
	"bytes"
	"io"
	"os"

	"shaver/internal/app/cli"
	"shaver/internal/click/checkpoint"
	"shaver/internal/data/arrowio"
	"shaver/internal/prune/picture"
	"shaver/internal/prune/report"
)

// What the commands of this program may replace, besides scores; see cli.Outputs.
var (
	models      = cli.Unless(checkpoint.Written, "a model")
	pages       = cli.Unless(func(path string) bool { return report.Written(beginning(path, report.MarkWithin)) }, "a page")
	pictures    = cli.Unless(picture.Written, "a picture")
	sweeps      = cli.Unless(isSweep, "the result of a sweep")
	checks      = cli.Unless(isCheck, "the result of a check")
	exports     = cli.Unless(isExport, "exported scores")
	predictions = cli.Unless(isPredictions, "a file of predictions")
)

// beginning returns the first n bytes of the file at path, or fewer if it has fewer or cannot
// be read.
func beginning(path string, n int64) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	data, _ := io.ReadAll(io.LimitReader(f, n)) // what cannot be read is not recognised
	return data
}

// isSweep reports whether the file at path was written by sweep --out.
func isSweep(path string) bool {
	return bytes.HasPrefix(beginning(path, 64), []byte("{\n  \"version\": \"shaver.sweep/"))
}

// isCheck reports whether the file at path was written by check --out.
func isCheck(path string) bool {
	return bytes.HasPrefix(beginning(path, 64), []byte("{\n  \"version\": \"shaver.check/"))
}

// isExport reports whether the file at path was written by scores export.
func isExport(path string) bool {
	text := beginning(path, 64)
	return bytes.HasPrefix(text, []byte("field,id,count,t,t_population,phi_0,")) || bytes.HasPrefix(text, []byte("field,id,count,rank_0")) || isParquet(path, arrowio.IsScoresParquet)
}

// isPredictions reports whether the file at path was written by evaluate --predictions.
func isPredictions(path string) bool {
	head := beginning(path, 64)
	return bytes.HasPrefix(head, []byte(predictionColumns)) || bytes.HasPrefix(head, []byte(numberColumns)) || isParquet(path, arrowio.IsPredictionsParquet)
}

// isParquet reports whether the file at path is one that the function recognises by its
// contents and its size.
func isParquet(path string, recognise func(io.ReaderAt, int64) bool) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	return err == nil && recognise(f, info.Size())
}
