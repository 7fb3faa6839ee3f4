package main

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/app/flags"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/data/ingest"
)

// listOptions say which columns are lists.
type listOptions struct {
	lists, pads []string
	separator   string
	long, side  string
	shares      []string
	model       *model.Model // with lists; nil = --model is missing or has none
}

func (o *listOptions) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringSliceVar(&o.lists, "list", nil, "columns that are lists, each `NAME=LENGTH` (default those of --model)")
	f.StringSliceVar(&o.pads, "pad", nil, "local id that fills a list, as `NAME=ID`, or NAME=none (default that of --model, or 0)")
	f.StringVar(&o.separator, "list-separator", string(ingest.ListSeparator), "`character` between the values of a list")
	flags.Choice(c, &o.long, "long-lists", ingest.LongFail, "`action` for lists that are too long: fail, or keep the first or the last values", ingest.LongFail, ingest.LongFirst, ingest.LongLast)
	flags.Choice(c, &o.side, "list-pads", "", "`side` on which lists are filled: front or end (default that of --model or --vocabulary, front for FuxiCTR's, or end)", model.Front, model.End)
	cli.Group(c, rowFlags, "list", "pad", "list-pads", "list-separator", "long-lists")
}

// shareFlag defines the flag for fields that share values.
func (o *listOptions) shareFlag(c *cobra.Command) {
	c.Flags().StringSliceVar(&o.shares, "share", nil, "raw values: fields that have the values and ids of another field, each `NAME=FIELD` (default those that read one table in --model)")
	cli.Group(c, idFlags, "share")
}

// sharing returns what --share says.
func (o *listOptions) sharing() ([]ingest.Sharing, error) {
	var all []ingest.Sharing
	for _, text := range o.shares {
		field, with, ok := cutLast(text)
		if !ok || with == "" {
			return nil, fault.Usagef("--share %s: expected NAME=FIELD", text)
		}
		all = append(all, ingest.Sharing{Field: field, With: with})
	}
	return all, nil
}

// set returns what the flags say.
func (o *listOptions) set() (ingest.Lists, error) {
	l := ingest.Lists{Long: o.long, Pads: o.side}
	if len(o.separator) != 1 {
		return l, fault.Usagef("--list-separator %q: expected one character", o.separator)
	}
	if !slices.Contains([]string{"", model.Front, model.End}, o.side) {
		return l, fault.Usagef("--list-pads %s: expected %s or %s", o.side, model.Front, model.End)
	}
	l.Separator = o.separator[0]
	for _, text := range o.lists {
		name, length, ok := cutLast(text)
		n, err := strconv.Atoi(length)
		if !ok || err != nil || n < 1 || n > model.MaxLength {
			return l, fault.Usagef("--list %s: expected NAME=LENGTH, with a length of 1 to %d", text, model.MaxLength)
		}
		l.Columns = append(l.Columns, ingest.ListColumn{Name: name, Length: n})
	}
	return l, o.setPads(&l)
}

// adopt adds the lists of a model, and the side on which they are filled if its file says it.
func (o *listOptions) adopt(l *ingest.Lists, ck *checkpoint.Checkpoint) error {
	if len(o.lists) > 0 || len(o.pads) > 0 {
		return fault.Usagef("--model has the lists and their pad ids: leave out --list and --pad")
	}
	l.Columns = ingest.ModelLists(&ck.Architecture)
	if len(l.Columns) == 0 {
		return nil
	}
	if k := ck.Known(); k.Fields != nil {
		l.Pads = cmp.Or(l.Pads, k.Fields[l.Columns[0].Field].Pads, model.End)
	}
	var err error
	o.model, err = ck.Model()
	return err
}

// setPads sets the pad ids that the flags give.
func (o *listOptions) setPads(l *ingest.Lists) error {
	for _, text := range o.pads {
		name, id, ok := cutLast(text)
		pad, err := strconv.Atoi(id)
		if id == "none" {
			pad, err = -1, nil
		}
		if !ok || err != nil || pad < -1 || id == "-1" {
			return fault.Usagef("--pad %s: expected NAME=ID or NAME=none", text)
		}
		known := false
		for i := range l.Columns {
			if l.Columns[i].Name == name {
				l.Columns[i].Pad, known = pad, true
			}
		}
		if !known {
			return fault.Usagef("--pad %s: --list does not name %s", text, name)
		}
	}
	return nil
}

// cutLast divides NAME=VALUE at the last equals sign.
func cutLast(text string) (name, value string, ok bool) {
	at := strings.LastIndexByte(text, '=')
	if at < 1 {
		return "", "", false
	}
	return text[:at], text[at+1:], true
}
