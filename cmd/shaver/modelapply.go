package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"shaver/cmd/shaver/help"
	"shaver/internal/app/cli"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/data/redisrows"
	"shaver/internal/prune/delta"
	"shaver/internal/prune/delta/toredis"
)

func modelApplyCommand() *cobra.Command {
	var model, out, address, prefix string
	var repair bool
	var outputs cli.Outputs
	var output cli.Output
	c := &cobra.Command{
		Use:   "apply DELTA...",
		Short: "Apply deltas to a pruned model, or to a Redis that has its rows",
		Long:  help.Text("model-apply"),
		Example: `  shaver model apply delta2 --model monday.safetensors --out new.safetensors
  shaver model apply delta2 delta3 --redis localhost:6379`,
		ValidArgsFunction: cli.FileArgs(),
		Args:              cli.Args(cobra.MinimumNArgs(1)),
		RunE: cli.Run(func(c *cobra.Command, args []string) error {
			if address != "" {
				if model != "" || out != "" {
					return fault.Usagef("--redis excludes --model and --out: the store knows its model")
				}
				return applyToRedis(c, args, address, prefix, repair, &output)
			}
			if repair {
				return fault.Usagef("--repair needs --redis")
			}
			if out == "" {
				return fault.Usagef("expected --out FILE, or --redis ADDRESS")
			}
			outputs.Inputs(args...)
			outputs.Inputs(model)
			if err := outputs.Check("--out", out, cli.Unless(checkpoint.Written, "a model"), ".safetensors"); err != nil {
				return err
			}
			result, err := delta.Apply(model, args, out)
			if err != nil {
				return err
			}
			return output.Print(c.OutOrStdout(), result, func(w io.Writer) {
				fmt.Fprintf(w, "model\t%s\t%s\n", result.Out, cli.Size(result.Bytes))
				fmt.Fprintf(w, "generation\t%d\t%d rows of %d deltas\n", result.Generation, result.Rows, result.Deltas)
			})
		}, output.Check),
	}
	c.Flags().StringVar(&model, "model", "", "compact `file` to which the first delta belongs (default none, if it is whole)")
	c.Flags().StringVar(&out, "out", "", "`file` to write, a compact model")
	cli.Files(c, "model", "safetensors")
	cli.Files(c, "out", "safetensors")
	output.Flag(c)
	outputs.Flag(c, "a file at --out that shaver did not write")
	c.Flags().StringVar(&address, "redis", "", "`address` HOST:PORT or redis://USER:PASSWORD@HOST:PORT/DB of a Redis to load in place of a file")
	c.Flags().StringVar(&prefix, "prefix", "shaver", "`beginning` of all keys in Redis")
	c.Flags().BoolVar(&repair, "repair", false, "write what is missing or damaged in Redis; DELTA is a whole one of its generation")
	return c
}

// applyToRedis loads deltas into Redis.
func applyToRedis(c *cobra.Command, folders []string, address, prefix string, repair bool, output *cli.Output) error {
	s, err := redisrows.Open(c.Context(), address, prefix)
	if err != nil {
		return err
	}
	defer s.Close()
	if policy := s.Evicts(c.Context()); policy != "" {
		cli.Warn(fmt.Sprintf("%s evicts rows when its memory is full (maxmemory-policy %s): set noeviction", s, policy))
	}
	for _, folder := range folders {
		began := time.Now()
		loaded, err := toredis.Load(c.Context(), s, folder, repair)
		if err != nil {
			return err
		}
		seconds := time.Since(began).Seconds()
		err = output.Print(c.OutOrStdout(), loaded, func(w io.Writer) {
			if loaded.Already {
				fmt.Fprintf(w, "generation\t%d\tit was there already; --repair looks for lost rows\n", loaded.Generation)
				return
			}
			fmt.Fprintf(w, "generation\t%d\t%d rows written, %d skipped, %d keys removed\n", loaded.Generation, loaded.Written, loaded.Skipped, loaded.Removed)
			fmt.Fprintf(w, "sent\t%s\t%.1f s\n", cli.Size(loaded.Bytes), seconds)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
