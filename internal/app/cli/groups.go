package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Titles of the groups of flags that several commands have.
const (
	NATSFlags   = "NATS connection"
	OutputFlags = "Output and log"
)

// groupKey is the key of a flag's annotation with the title of its group, and of a
// command's annotation with the titles in their order.
const groupKey = "shaver_group"

// Group puts flags of c into a group of its help. Groups are listed in the order of the
// first calls for them, except that OutputFlags is the last. Flags without a group come
// first.
func Group(c *cobra.Command, title string, flags ...string) {
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	if titles := groupTitles(c); !slices.Contains(titles, title) {
		c.Annotations[groupKey] = strings.Join(append(titles, title), "\n")
	}
	for _, name := range flags {
		if err := c.Flags().SetAnnotation(name, groupKey, []string{title}); err != nil {
			panic(err)
		}
	}
}

func groupTitles(c *cobra.Command) []string {
	return strings.FieldsFunc(c.Annotations[groupKey], func(r rune) bool { return r == '\n' })
}

// FlagHelp returns the help of c's flags by group. A command without any group but
// OutputFlags has few flags, and its help is one list.
func FlagHelp(c *cobra.Command) string {
	titles := slices.DeleteFunc(groupTitles(c), func(t string) bool { return t == OutputFlags })
	sets := map[string]*pflag.FlagSet{}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		title := ""
		if group := f.Annotations[groupKey]; len(group) > 0 && len(titles) > 0 {
			title = group[0]
		} else if f.Name == "help" && len(titles) > 0 {
			title = OutputFlags
		}
		if sets[title] == nil {
			sets[title] = pflag.NewFlagSet(title, pflag.ContinueOnError)
		}
		sets[title].AddFlag(f)
	})
	var b strings.Builder
	for _, title := range slices.Concat([]string{""}, titles, []string{OutputFlags}) {
		if set := sets[title]; set != nil && set.HasAvailableFlags() {
			heading := title
			if heading == "" {
				heading = "Flags"
			}
			fmt.Fprintf(&b, "%s:\n%s\n\n", heading, strings.TrimRight(set.FlagUsagesWrapped(helpWidth), "\n"))
		}
	}
	return strings.TrimRight(b.String(), "\n")
}
