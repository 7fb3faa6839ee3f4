package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"
)

// Printable returns text on one line, in which every character is visible. Control
// characters, which begin the escape sequences of terminals, characters that change the
// direction of the text, other invisible ones, and invalid UTF-8 are escaped as in JSON.
// Text of a message, a file or a path passes through Printable before it is printed.
func Printable(text string) string { return escape(text, "") }

// escape is Printable, except for the characters of keep.
func escape(text, keep string) string {
	clean := true
	for i := 0; i < len(text) && clean; i++ {
		clean = text[i] >= ' ' && text[i] <= '~' || strings.IndexByte(keep, text[i]) >= 0
	}
	if clean {
		return text
	}
	var out strings.Builder
	for rest := text; rest != ""; {
		char, size := utf8.DecodeRuneInString(rest)
		switch {
		case char == utf8.RuneError && size == 1:
			fmt.Fprintf(&out, `\x%02x`, rest[0])
		case strconv.IsGraphic(char), strings.ContainsRune(keep, char):
			out.WriteRune(char)
		case char == '\n':
			out.WriteString(`\n`)
		case char == '\r':
			out.WriteString(`\r`)
		case char == '\t':
			out.WriteString(`\t`)
		default:
			for _, unit := range utf16.AppendRune(nil, char) {
				fmt.Fprintf(&out, `\u%04x`, unit)
			}
		}
		rest = rest[size:]
	}
	return out.String()
}

// lines returns the messages of an error, each printable. Only errors.Join gives several.
func lines(err error) (all []string) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var parts, texts []string
		for _, part := range joined.Unwrap() {
			parts, texts = append(parts, lines(part)...), append(texts, part.Error())
		}
		if err.Error() == strings.Join(texts, "\n") {
			return parts
		}
	}
	return []string{Printable(err.Error())}
}

// PrintableWriter returns a writer to w that escapes invisible characters, except for tabs
// and line ends. Each Write must have whole characters, as those of package fmt have.
func PrintableWriter(w io.Writer) io.Writer { return printableWriter{w} }

type printableWriter struct{ w io.Writer }

func (p printableWriter) Write(text []byte) (int, error) {
	if _, err := io.WriteString(p.w, escape(string(text), "\t\n")); err != nil {
		return 0, err
	}
	return len(text), nil
}

// printableEncoder makes the text of JSON log entries printable.
type printableEncoder struct{ zapcore.Encoder }

func (e printableEncoder) Clone() zapcore.Encoder { return printableEncoder{e.Encoder.Clone()} }

func (e printableEncoder) EncodeEntry(entry zapcore.Entry, fields []zapcore.Field) (*buffer.Buffer, error) {
	entry.Message, entry.LoggerName = Printable(entry.Message), Printable(entry.LoggerName)
	line, err := e.Encoder.EncodeEntry(entry, fields)
	if err != nil {
		return nil, err
	}
	// The encoder has already escaped the line ends in the entry. The only one that is left
	// ends the line.
	text := line.String()
	if clean := escape(text, "\n"); clean != text {
		line.Reset()
		line.AppendString(clean)
	}
	return line, nil
}
