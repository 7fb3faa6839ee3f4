package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

const (
	noticesFile = "THIRD_PARTY.txt"
	// certificates is the package whose root certificates are in the image.
	certificates = "golang.org/x/crypto/x509roots/fallback/bundle"
)

// module is a module that a program links, with the texts that must accompany it.
type module struct {
	path, version string // as in the build information of the program
	notices       []notice
}

// notice is a file with a licence or a notice.
type notice struct {
	file string // with slashes, below the folder of the module
	text string
}

var (
	noticeName  = regexp.MustCompile(`(?i)^(un)?(li[cs]en[cs]e|copying|copyright|notice|patents)s?([._-].*)?$`)
	licenceName = regexp.MustCompile(`(?i)^(un)?(li[cs]en[cs]e|copying)`)
	readmeName  = regexp.MustCompile(`(?i)^readme`)
)

// linkedModules returns the modules of the programs for the given platforms and of the root certificates, in the order of
// their paths. Each has the notices in the folders of its linked packages and in those above, up to the module's own. A module
// without a licence is an error.
func linkedModules(ctx context.Context, root string, platforms []string) ([]module, error) {
	folders := map[string]map[string]bool{} // of the linked packages, by path, version and folder of the module
	for _, platform := range platforms {
		list := goCommand(ctx, root, platform, "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Version}}\t{{.Dir}}\t{{$.Dir}}{{end}}{{end}}", "./cmd/...", certificates)
		out, err := list.Output()
		if err != nil {
			return nil, fmt.Errorf("go list for %s: %w", platform, err)
		}
		for line := range strings.Lines(string(out)) {
			i := strings.LastIndexByte(line, '\t')
			if i < 0 {
				continue // a package of the standard library, or our own
			}
			if folders[line[:i]] == nil {
				folders[line[:i]] = map[string]bool{}
			}
			folders[line[:i]][strings.TrimSpace(line[i+1:])] = true
		}
	}
	var modules []module
	for m, linked := range folders {
		fields := strings.Split(m, "\t")
		notices, err := noticesOf(fields[2], linked)
		if err != nil {
			return nil, fmt.Errorf("module %s %s: %w", fields[0], fields[1], err)
		}
		modules = append(modules, module{fields[0], fields[1], notices})
	}
	slices.SortFunc(modules, func(a, b module) int { return cmp.Compare(a.path, b.path) })
	return modules, nil
}

// noticesOf returns the notices of a module in dir, from the folders of the linked packages and those above. If the module has no
// file for its licence, its README must have the text of one.
func noticesOf(dir string, linked map[string]bool) ([]notice, error) {
	all := map[string]bool{dir: true}
	for folder := range linked {
		for ; len(folder) > len(dir); folder = filepath.Dir(folder) {
			all[folder] = true
		}
	}
	var notices []notice
	licensed := false
	for folder := range all {
		found, err := noticesIn(dir, folder, noticeName)
		if err != nil {
			return nil, err
		}
		notices = append(notices, found...)
	}
	for _, n := range notices {
		licensed = licensed || !strings.Contains(n.file, "/") && licenceName.MatchString(n.file)
	}
	if !licensed {
		readmes, err := noticesIn(dir, dir, readmeName)
		if err != nil {
			return nil, err
		}
		readmes = slices.DeleteFunc(readmes, func(n notice) bool { return len(licencesIn(n.text).Match) == 0 })
		if len(readmes) == 0 {
			return nil, fmt.Errorf("%s has no file with a licence, expected one such as LICENSE, or a licence in its README", dir)
		}
		notices = append(notices, readmes...)
	}
	slices.SortFunc(notices, func(a, b notice) int { return cmp.Compare(a.file, b.file) })
	return notices, nil
}

// noticesIn reads the files of a folder whose names match. Their names in notices are those below dir.
func noticesIn(dir, folder string, name *regexp.Regexp) ([]notice, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var notices []notice
	for _, e := range entries {
		if !e.Type().IsRegular() || !name.MatchString(e.Name()) || filepath.Ext(e.Name()) == ".go" {
			continue
		}
		path := filepath.Join(folder, e.Name())
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return nil, err
		}
		text = bytes.TrimSpace(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")))
		notices = append(notices, notice{filepath.ToSlash(rel), string(text)})
	}
	return notices, nil
}

// licencesIn returns the texts of licences in a text, without mere references to them.
func licencesIn(text string) licensecheck.Coverage {
	c := licensecheck.Scan([]byte(text))
	c.Match = slices.DeleteFunc(c.Match, func(m licensecheck.Match) bool { return m.IsURL })
	return c
}

// licence returns the licences of a module as an SPDX expression. It is empty unless each file with a licence consists almost
// entirely of the texts of known licences. A README has other text too.
func (m module) licence() string {
	var ids []string
	for _, n := range m.notices {
		base := n.file[strings.LastIndexByte(n.file, '/')+1:]
		readme := readmeName.MatchString(base)
		if !licenceName.MatchString(base) && !readme {
			continue
		}
		c := licencesIn(n.text)
		if c.Percent < 90 && !readme {
			return ""
		}
		for _, m := range c.Match {
			ids = append(ids, m.ID)
		}
	}
	slices.Sort(ids)
	return strings.Join(slices.Compact(ids), " AND ")
}

// goNotices returns the licence of Go's standard library and run time, which each program links.
func goNotices(ctx context.Context, root string) (module, error) {
	out, err := goCommand(ctx, root, "", "env", "GOROOT").Output()
	if err != nil {
		return module{}, fmt.Errorf("go env GOROOT: %w", err)
	}
	dir := strings.TrimSpace(string(out))
	notices, err := noticesOf(dir, nil)
	return module{path: "Go, the standard library and the run time", notices: notices}, err
}

// noticesText is the content of THIRD_PARTY.txt. A text that several modules have appears once.
func noticesText(modules []module) string {
	var b strings.Builder
	b.WriteString("The programs of shaver contain Go's standard library and packages of the modules below, and the image contains the root\n" +
		"certificates of golang.org/x/crypto/x509roots/fallback. Their licences and notices follow. \"make notices\" writes this file.\n")
	var texts []string
	owners := map[string][]string{} // by text
	for _, m := range modules {
		for _, n := range m.notices {
			if owners[n.text] == nil {
				texts = append(texts, n.text)
			}
			owners[n.text] = append(owners[n.text], strings.TrimSpace(m.path+" "+m.version)+": "+n.file)
		}
	}
	for _, text := range texts {
		fmt.Fprintf(&b, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 100), strings.Join(owners[text], "\n"), text)
	}
	return b.String()
}
