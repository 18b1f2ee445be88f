package main

import (
	"errors"
	"fmt"
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
		Use:   "doctor [server.properties] [DIRECTORY...]",
		Short: "Say what a start would make of a configuration and of log directories",
		Long: `Examines a server.properties file and the log directories that it names, or the
directories that are given, and changes nothing: formats, metadata.version and
features, partitions, keys that have no effect or would be refused, whether the last
stop was clean and what would be recovered, files that are damaged or do not belong there.

With --deep every batch of every segment is read and checked against its CRC and the
indexes; without, no more than a start reads.

The exit status is 0 when a start would serve everything, 1 with warnings, 2 when
something would not be served or could not be read.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := f.sort(args)
			if err != nil {
				return err
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

// sort tells log directories from the file of the configuration, "" for none.
func (f *doctorFlags) sort(args []string) (file string, err error) {
	for _, a := range args {
		info, err := os.Stat(a)
		switch {
		case err == nil && info.IsDir():
			f.dirs = append(f.dirs, a)
		case file != "":
			return "", fmt.Errorf("%s and %s: only one of them can be the configuration, and neither is a directory", file, a)
		default:
			file = a
		}
	}
	return file, nil
}

func (f *doctorFlags) run(out io.Writer, file string) error {
	if file == "" && len(f.dirs) == 0 {
		return errors.New("nothing to examine: name a server.properties file or log directories")
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
