package cli

import (
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// HelpText returns the texts of the files help/NAME.txt; see HelpTextIn.
func HelpText(files fs.FS, names ...string) string { return HelpTextIn(files, "help", names...) }

// HelpTextIn returns the texts of the files NAME.txt in a folder, without the newline at the end of
// each and with an empty line between two. It panics if a file is missing, because the
// names are constants of the program.
func HelpTextIn(files fs.FS, folder string, names ...string) string {
	texts := make([]string, len(names))
	for i, name := range names {
		text, err := fs.ReadFile(files, path.Join(folder, name+".txt"))
		if err != nil {
			panic(fmt.Sprintf("cli: no text of the help: %v", err))
		}
		texts[i] = strings.TrimSuffix(string(text), "\n")
	}
	return strings.Join(texts, "\n\n")
}
