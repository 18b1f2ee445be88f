package main

import (
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"gregor/broker/inspect"
	"gregor/storage/vfs"
)

type doctorFlags struct {
	dirs, overrides []string
	deep, json      bool
}

func newDoctor() *cobra.Command {
	var f doctorFlags
	c := &cobra.Command{
		Use:   "doctor [server.properties]",
		Short: "Say what a start would make of a configuration and of log directories",
		Long: `Examines a server.properties file and the log directories that it names, or the
directories of --log-dirs, and changes nothing: formats, metadata.version and
features, partitions, keys that have no effect or would be refused, whether the last
stop was clean and what would be recovered, files that are damaged or do not belong there.

With --deep every batch of every segment is read and checked against its CRC and the
indexes; without, no more than a start reads.

The exit status is 0 when a start would serve everything, 1 with warnings, 2 when
something would not be served or could not be read.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file := ""
			if len(args) == 1 {
				file = args[0]
			}
			return f.run(cmd.OutOrStdout(), file)
		},
	}
	c.Flags().StringSliceVar(&f.dirs, "log-dirs", nil, "log `directories` to examine, beside those of the file")
	c.Flags().StringArrayVar(&f.overrides, "override", nil, "`key=value` that wins over file and environment (repeatable)")
	c.Flags().BoolVar(&f.deep, "deep", false, "read and check every batch of every segment")
	c.Flags().BoolVar(&f.json, "json", false, "print one JSON object")
	return c
}

func (f *doctorFlags) run(out io.Writer, file string) error {
	if file == "" && len(f.dirs) == 0 {
		return errors.New("nothing to examine: name a server.properties file, or use --log-dirs")
	}
	o := inspect.DoctorOptions{FS: vfs.Real(), Dirs: f.dirs, Deep: f.deep, Errs: os.Stderr}
	if file != "" {
		o.Config, o.Warnings, o.ConfigError = loadConfig(file, f.overrides, false)
	}
	report := inspect.Examine(o)
	write := report.WriteText
	if f.json {
		write = report.WriteJSON
	}
	if err := write(out); err != nil {
		return err
	}
	if report.Status > 0 {
		return errStatus(report.Status)
	}
	return nil
}
