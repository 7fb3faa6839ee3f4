package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// hostile is text that would change a terminal's colors and title, forge a line, print
// backwards, and hide itself.
const hostile = "a\x1b[31mred\x1b]0;title\x07\nb\rc\td\u009b2J\u202eevil\u2066x\u200b\x7f\x9b\U000e0041\u2028é日本 \\ ok"

const harmless = `a\u001b[31mred\u001b]0;title\u0007\nb\rc\td\u009b2J\u202eevil\u2066x\u200b\u007f\x9b\udb40\udc41\u2028é日本 \ ok`

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "plain text, C:\\path": "plain text, C:\\path", "käse 日本 \u00a0": "käse 日本 \u00a0", hostile: harmless, harmless: harmless,
	} {
		if found := Printable(text); found != want {
			t.Errorf("%q became %q, expected %q", text, found, want)
		}
	}
}

// wantClean fails if the text would do more than print characters and end lines.
func wantClean(t *testing.T, where, text string) {
	t.Helper()
	if i := strings.IndexAny(text, "\x1b\x07\r\x7f\u009b\u202e\u2066\u200b\u2028"); i >= 0 {
		t.Errorf("%s contains %q: %q", where, text[i:min(i+8, len(text))], text)
	}
}

// Errors are one line for each joined error, whatever text they contain.
func TestErrorLines(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want int
	}{
		"hostile": {errors.New(hostile), 1},
		"joined":  {errors.Join(errors.New(hostile), fmt.Errorf("b: %w", errors.New(hostile))), 2},
		"wrapped": {fmt.Errorf("%w: %w", errors.New(hostile), errors.New("b")), 1},
	} {
		t.Run(name, func(t *testing.T) {
			found := lines(test.err)
			if len(found) != test.want {
				t.Errorf("%q", found)
			}
			for _, line := range found {
				wantClean(t, "the line", line)
				if strings.Contains(line, "\n") {
					t.Errorf("%q has a line end", line)
				}
			}
		})
	}
}

// The log, tables, JSON and what commands print to stderr contain no escape sequence that
// comes from outside.
func TestOutputIsPrintable(t *testing.T) {
	for _, console := range []bool{true, false} {
		var out bytes.Buffer
		encoder := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
		core := zapcore.NewCore(printableEncoder{encoder}, zapcore.AddSync(&out), zapcore.DebugLevel)
		if console {
			core = &textCore{LevelEnabler: zapcore.DebugLevel, out: zapcore.AddSync(&out), color: true}
		}
		log := zap.New(core)
		log.With(zap.String("worker", hostile)).Named(hostile).Warn(hostile, zap.Error(errors.New(hostile)), zap.Strings("all", []string{hostile}))
		text := strings.Replace(strings.Replace(out.String(), "\x1b[33m", "", 1), "\x1b[0m", "", 1) // the level's color
		wantClean(t, "the log", text)
		if strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") {
			t.Errorf("the entry has several lines: %q", text)
		}
		if console && !strings.Contains(out.String(), "\x1b[33mWARN \x1b[0m") {
			t.Errorf("the level has no color: %q", out.String())
		}
	}
	var out bytes.Buffer
	o := Output{format: "json"}
	value := strings.ToValidUTF8(hostile, "")
	var back string
	if err := o.Print(&out, value, nil); err != nil {
		t.Fatal(err)
	}
	wantClean(t, "JSON", out.String())
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back != value {
		t.Errorf("%v: JSON changed the value to %q", err, back)
	}
	out.Reset()
	o.format = "table"
	if err := o.Print(&out, nil, func(w io.Writer) { fmt.Fprintf(w, "name\t%s\nb\t%s\n", hostile, Printable(hostile)) }); err != nil {
		t.Fatal(err)
	}
	wantClean(t, "the table", out.String())
	out.Reset()
	c := &cobra.Command{}
	c.SetErr(PrintableWriter(&out))
	fmt.Fprintln(c.ErrOrStderr(), hostile)
	wantClean(t, "stderr", out.String())
}
