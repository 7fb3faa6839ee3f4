package cli

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"
	"golang.org/x/term"

	"shaver/internal/base/fault"
)

// timeLayout is that of logs and of progress lines: date, time and zone.
const timeLayout = time.RFC3339

// LogFlags adds --log and --verbose to c, bound to format and verbose.
func LogFlags(c *cobra.Command, format *string, verbose *bool) {
	c.Flags().StringVar(format, "log", "text", "`format` of the log on stderr: text or json; with json progress and errors are JSON lines too, and -o json prints one line")
	c.Flags().BoolVarP(verbose, "verbose", "v", false, "log more, for troubleshooting")
	Choices(c, "log", "text", "json")
	Group(c, OutputFlags, "log", "verbose")
}

// Logger returns a logger to stderr with the format "text" or "json". On a terminal
// levels have colors, unless NO_COLOR is set or the terminal has none. verbose adds
// messages that are only useful for finding a fault.
func Logger(format string, verbose bool) (*zap.Logger, error) {
	level := zapcore.InfoLevel
	if verbose {
		level = zapcore.DebugLevel
	}
	switch format {
	case "text":
		return textLogger(level), nil
	case JSONLog:
		return jsonLogger(level), nil
	}
	return nil, fault.Usagef("--log %s: the formats are text and json", format)
}

// Log returns the logger of a command without the flag --log. Its format is JSON if SHAVER_LOG is
// json, else text.
func Log() *zap.Logger {
	if os.Getenv(logVariable) == JSONLog {
		return jsonLogger(zapcore.InfoLevel)
	}
	return textLogger(zapcore.InfoLevel)
}

// JSONLog is the format in which every line on stderr is a JSON object.
const JSONLog = "json"

func textLogger(level zapcore.Level) *zap.Logger {
	color := terminal(os.Stderr) && os.Getenv("NO_COLOR") == ""
	return zap.New(&textCore{LevelEnabler: level, out: zapcore.Lock(os.Stderr), color: color})
}

func jsonLogger(level zapcore.Level) *zap.Logger {
	encoder := printableEncoder{zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(os.Stderr), level))
}

// terminal reports whether f is a terminal that can move its cursor and show colors.
func terminal(f *os.File) bool {
	return os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

// textCore writes log lines for people: time, level, message, and fields as key=value.
type textCore struct {
	zapcore.LevelEnabler
	out    zapcore.WriteSyncer
	color  bool
	fields []zapcore.Field // fields of the logger
}

func (t *textCore) With(fields []zapcore.Field) zapcore.Core {
	with := *t
	with.fields = append(t.fields[:len(t.fields):len(t.fields)], fields...)
	return &with
}

func (t *textCore) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if t.Enabled(e.Level) {
		return to.AddCore(e, t)
	}
	return to
}

func (t *textCore) Sync() error { return t.out.Sync() }

var logLines = buffer.NewPool()

func (t *textCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	line := logLines.Get()
	defer line.Free()
	line.AppendTime(e.Time, timeLayout)
	level := fmt.Sprintf(" %-5s ", e.Level.CapitalString())
	if t.color {
		level = " " + colors[e.Level] + level[1:6] + "\x1b[0m "
	}
	line.AppendString(level)
	if e.LoggerName != "" {
		line.AppendString(Printable(e.LoggerName) + ": ")
	}
	line.AppendString(Printable(e.Message))
	for _, all := range [][]zapcore.Field{t.fields, fields} {
		for i := range all {
			line.AppendString(fieldText(&all[i]))
		}
	}
	line.AppendString("\n")
	_, err := t.out.Write(line.Bytes())
	return err
}

// colors are the escape sequences of the levels, as zap chooses them.
var colors = map[zapcore.Level]string{
	zapcore.DebugLevel: "\x1b[35m", zapcore.InfoLevel: "\x1b[34m", zapcore.WarnLevel: "\x1b[33m", zapcore.ErrorLevel: "\x1b[31m",
}

// fieldText returns " key=value". A value that has spaces, quotes or unprintable
// characters, or is empty, is quoted.
func fieldText(f *zapcore.Field) string {
	values := zapcore.NewMapObjectEncoder()
	f.AddTo(values)
	value, ok := values.Fields[f.Key]
	if !ok {
		return ""
	}
	var text string
	switch v := value.(type) {
	case time.Duration:
		if v >= time.Second {
			v = v.Round(10 * time.Millisecond)
		}
		text = v.String()
	case time.Time:
		text = v.Format(timeLayout)
	case float64:
		text = strconv.FormatFloat(v, 'g', 6, 64)
	default:
		text = fmt.Sprint(v)
	}
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || r == '"' || r == '=' || !unicode.IsPrint(r) }) {
		text = strconv.Quote(text)
	}
	return " " + f.Key + "=" + Printable(text)
}

// noted says whether this process has logged that a model does not know its fields.
var noted sync.Once

// NoteOnce logs the sentence of a model that does not know its fields (model.Known), or nothing if text
// is empty. A process logs it for one model only, because a night and a comparison read several models
// of one origin.
func NoteOnce(log *zap.Logger, text string) {
	if text != "" && log.Core().Enabled(zap.InfoLevel) {
		noted.Do(func() { log.Info(text) })
	}
}

// Note is NoteOnce for a command without the flag --log.
func Note(text string) { NoteOnce(Log(), text) }

// Warn logs a warning of a command without the flag --log.
func Warn(text string) { Log().Warn(text) }
