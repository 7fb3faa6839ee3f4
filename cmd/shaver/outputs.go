package main

import (
	"bytes"

	"shaver/internal/app/cli"
	"shaver/internal/base/files"
	"shaver/internal/click/checkpoint"
	"shaver/internal/data/arrowio"
	"shaver/internal/data/measure"
	"shaver/internal/prune/picture"
	"shaver/internal/prune/report"
	"shaver/internal/prune/sweep"
)

// What the commands of this program may replace, besides scores; see cli.Outputs.
var (
	models      = cli.Unless(checkpoint.Written, "a model")
	pages       = cli.Unless(func(path string) bool { return report.Written(files.Beginning(path, report.MarkWithin)) }, "a page")
	pictures    = cli.Unless(picture.Written, "a picture")
	sweeps      = cli.Unless(sweep.Written, "the result of a sweep")
	checks      = cli.Unless(isCheck, "the result of a check")
	exports     = cli.Unless(isExport, "exported scores")
	predictions = cli.Unless(measure.IsPredictions, "a file of predictions")
)

// isCheck reports whether the file at path was written by check --out.
func isCheck(path string) bool {
	return bytes.HasPrefix(files.Beginning(path, 64), []byte("{\n  \"version\": \"shaver.check/"))
}

// isExport reports whether the file at path was written by scores export.
func isExport(path string) bool {
	text := files.Beginning(path, 64)
	return bytes.HasPrefix(text, []byte("field,id,count,t,t_population,phi_0,")) || bytes.HasPrefix(text, []byte("field,id,count,rank_0")) || files.Is(path, arrowio.IsScoresParquet)
}
