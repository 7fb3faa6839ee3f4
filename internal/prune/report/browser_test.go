package report

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"image/color"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"shaver/internal/base/long"
)

// browser runs chromium. If chromium is missing, the test is skipped, but fails on CI.
type browser struct {
	path, dir string
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("chromium is required on CI: %v", err)
		}
		t.Skip(err)
	}
	dir, err := os.MkdirTemp("", "shaver-browser-*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) }) // helper processes may still write, so this may leave files in the temporary folder
	return &browser{path, dir}
}

// run loads a page and returns the output of chromium. The test fails if the page writes to
// the console.
func (b *browser) run(t *testing.T, page string, flags ...string) []byte {
	t.Helper()
	file := filepath.Join(b.dir, "page.html")
	if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, b.path, append([]string{
		"--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--no-first-run", "--hide-scrollbars",
		"--enable-logging=stderr", "--user-data-dir=" + filepath.Join(b.dir, "profile"), "--window-size=1200,2400",
	}, append(flags, "file://"+filepath.ToSlash(file))...)...)
	c.WaitDelay = 10 * time.Second
	var out, log bytes.Buffer
	c.Stdout, c.Stderr = &out, &log
	if err := c.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &log)
	}
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "CONSOLE") {
			t.Error(line)
		}
	}
	return out.Bytes()
}

// measured is what the script measure finds in a page.
type measured struct {
	Width, Client, Scroll int      // widths of the window, of its visible part and of its content
	Plots                 int      // number of visible pictures
	Texts                 int      // number of texts in pictures
	Overlaps              []string // pairs of texts that overlap in a picture
	Outside               []string // texts that extend beyond their picture
	Runaway               []string // elements that extend beyond the window and cannot be scrolled
	Short                 []string // sections that leave the right half of a desk empty
	Loose                 []string // scrolled tables whose first column moves, or that do not show that they scroll
	Spilled               []string // lines of values whose name, rows and share overlap or leave the line
}

// measure runs in a copy of the page without its content security policy, which allows no
// scripts.
const measure = `<script>
const root = document.documentElement, found = {Width: innerWidth, Client: root.clientWidth, Scroll: root.scrollWidth, Plots: 0, Texts: 0, Overlaps: [], Outside: [], Runaway: [], Short: [], Loose: [], Spilled: []};
for (const d of document.querySelectorAll("details")) d.open = true;
for (const plot of document.querySelectorAll("svg.plot")) {
  const frame = plot.getBoundingClientRect();
  if (frame.width > 200 && frame.height > 100) found.Plots++;
  const texts = [...plot.querySelectorAll("text")].map(t => [t.textContent, t.getBoundingClientRect()]);
  found.Texts += texts.length;
  texts.forEach(([name, a], i) => {
    if (a.left < frame.left - 1 || a.right > frame.right + 1 || a.top < frame.top - 1 || a.bottom > frame.bottom + 1) found.Outside.push(name);
    // The box of a line of text is a third higher than its letters.
    for (const [other, b] of texts.slice(i + 1)) {
      const width = Math.min(a.right, b.right) - Math.max(a.left, b.left), height = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (width > .5 && height > .34 * Math.min(a.height, b.height)) found.Overlaps.push(name + " | " + other);
    }
  });
}
for (const e of document.querySelectorAll("body *")) {
  if (!e.closest(".wide") && e.getBoundingClientRect().right > root.clientWidth + 1) found.Runaway.push(e.tagName);
}
if (innerWidth > 1000) for (const section of document.querySelectorAll("main > section")) {
  const right = Math.max(...[...section.querySelectorAll("table, figure, dl, .cards")].map(e => e.getBoundingClientRect().right));
  if (right < .8 * root.clientWidth) found.Short.push(section.id);
}
for (const wide of document.querySelectorAll(".wide")) {
  wide.scrollLeft = 1e4;
  const cell = wide.querySelector("tbody th"), hint = getComputedStyle(wide).backgroundImage.includes("gradient");
  if (wide.scrollLeft > 0 && (!hint || Math.abs(cell.getBoundingClientRect().left - wide.getBoundingClientRect().left) > 1)) found.Loose.push(cell.textContent);
  wide.scrollLeft = 0;
}
for (const line of document.querySelectorAll(".values li")) {
  const [name, , rows, share] = [...line.children].map(e => e.getBoundingClientRect()), box = line.getBoundingClientRect();
  if (name.left < box.left - 1 || name.right > rows.left || rows.right > share.left || share.right > box.right + 1 || box.height > 200) found.Spilled.push(line.textContent);
}
found.Scroll = root.scrollWidth;
const out = parent.document.createElement("pre");
out.id = "found";
out.textContent = JSON.stringify(found);
parent.document.body.append(out);
</script></body>`

// framed returns a document that shows a page in a frame of the given width. The window of
// chromium itself cannot be narrow.
func framed(page string, width int) string {
	return fmt.Sprintf(`<!DOCTYPE html><body><iframe style="width:%dpx;height:2400px;border:0" srcdoc="%s"></iframe></body>`, width, html.EscapeString(page))
}

var (
	policyTag = regexp.MustCompile(`<meta http-equiv="Content-Security-Policy"[^>]*>\n`)
	foundTag  = regexp.MustCompile(`(?s)<pre id="found">(.*?)</pre>`)
)

// The pages have a sound layout on a desktop and on a phone.
func TestBrowser(t *testing.T) {
	long.Test(t)
	b := newBrowser(t)
	r, err := Write(facts())
	if err != nil {
		t.Fatal(err)
	}
	inspected, err := Dataset(inspection(), origin)
	if err != nil {
		t.Fatal(err)
	}
	lines, folders := history(40)
	nights, err := History(lines, folders, "")
	if err != nil {
		t.Fatal(err)
	}
	fields, err := Write(fieldFacts())
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range []struct {
		name         string
		html         []byte
		plots, texts int
	}{{"report", r.HTML, 11, 60}, {"dataset", inspected, 1, 10}, {"history", nights, 8, 60}, {"fields", fields.HTML, 4, 30}} {
		t.Run(page.name, func(t *testing.T) { b.look(t, string(page.html), page.plots, page.texts) })
	}
}

// look checks the layout of a page at two widths, and its colours in the light and the dark
// scheme. The page must have exactly the given number of plots, and at least the given
// number of texts in them.
func (b *browser) look(t *testing.T, page string, plots, texts int) {
	t.Helper()
	open := policyTag.ReplaceAllString(page, "")
	if open == page {
		t.Fatal("the page has no content security policy")
	}
	open = strings.Replace(open, "</body>", measure, 1)
	dark := "--blink-settings=preferredColorScheme=0"
	for _, view := range []struct {
		width int
		flags []string
	}{{1280, nil}, {390, nil}, {1280, []string{dark}}, {390, []string{dark}}} {
		width := view.width
		dom := b.run(t, framed(open, width), append(view.flags, "--dump-dom")...)
		text := foundTag.FindSubmatch(dom)
		if text == nil {
			t.Fatalf("the script left no result:\n%.2000s", dom)
		}
		var found measured
		if err := json.Unmarshal([]byte(html.UnescapeString(string(text[1]))), &found); err != nil {
			t.Fatal(err)
		}
		if found.Width != width || found.Scroll > found.Client || found.Plots != plots || found.Texts < texts || len(found.Runaway) > 0 {
			t.Errorf("at width %d, the page has the layout %+v", width, found)
		}
		if len(found.Overlaps) > 0 || len(found.Outside) > 0 {
			t.Errorf("at width %d texts overlap: %q; texts outside of their picture: %q", width, found.Overlaps, found.Outside)
		}
		if len(found.Short) > 0 || len(found.Loose) > 0 {
			t.Errorf("at width %d the right half is empty in sections %q; tables scroll without a hint or a fixed first column: %q", width, found.Short, found.Loose)
		}
		if len(found.Spilled) > 0 {
			t.Errorf("at width %d lines of values overflow: %q", width, found.Spilled)
		}
	}
	image := filepath.Join(b.dir, "page.png")
	b.run(t, page, "--screenshot="+image)
	checkImage(t, image, false)
	b.run(t, page, "--screenshot="+image, dark)
	checkImage(t, image, true)
}

// checkImage checks that most of a screenshot has the background colour and that some pixels
// have the first colour of the pictures.
func checkImage(t *testing.T, path string, dark bool) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	image, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	pixels := map[color.RGBA]int{}
	for y := range image.Bounds().Dy() {
		for x := range image.Bounds().Dx() {
			r, g, b, a := image.At(x, y).RGBA()
			pixels[color.RGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), uint8(a >> 8)}]++
		}
	}
	paper, ink := color.RGBA{0xff, 0xff, 0xff, 255}, color.RGBA{0x00, 0x72, 0xb2, 255}
	if dark {
		paper, ink = color.RGBA{0x15, 0x18, 0x1b, 255}, color.RGBA{0x56, 0xb4, 0xe9, 255}
	}
	if total := image.Bounds().Dx() * image.Bounds().Dy(); image.Bounds().Dx() != 1200 || pixels[paper] < total/2 || pixels[ink] < 50 {
		t.Errorf("dark scheme %v: image %v has %d pixels of the background and %d of the first colour", dark, image.Bounds(), pixels[paper], pixels[ink])
	}
}
