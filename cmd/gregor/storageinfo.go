package main

import (
	"github.com/spf13/cobra"

	"gregor/kraft"
	"gregor/storage/vfs"
)

func newInfo() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "info",
		Short: "Say how the log directories are formatted, as kafka-storage.sh info does",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := loadConfig(file, nil, false)
			if err != nil {
				return err
			}
			dirs := cfg.Storage.Dirs
			if cfg.Metadata.Dir != "" {
				dirs = append(dirs, cfg.Metadata.Dir)
			}
			ok, err := kraft.StorageInfo(vfs.Real(), dirs, cmd.OutOrStdout())
			if err == nil && !ok {
				err = errSilent
			}
			return err
		},
	}
	c.Flags().StringVarP(&file, "config", "c", "", "the server.properties file; none for the defaults of gregor start")
	return c
}

func newVersionMapping() *cobra.Command {
	var release string
	c := &cobra.Command{
		Use:   "version-mapping",
		Short: "Print the feature levels of a release, as kafka-storage.sh version-mapping does",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return kraft.VersionMapping(release, cmd.OutOrStdout())
		},
	}
	c.Flags().StringVarP(&release, "release-version", "r", "", "the release, such as 4.4 or 4.4-IV2; the newest when missing")
	return c
}

func newFeatureDependencies() *cobra.Command {
	var features []string
	c := &cobra.Command{
		Use:   "feature-dependencies",
		Short: "Print what feature levels depend on, as kafka-storage.sh feature-dependencies does",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return kraft.FeatureDependencies(features, cmd.OutOrStdout())
		},
	}
	c.Flags().StringArrayVarP(&features, "feature", "f", nil, "`NAME=LEVEL` (repeatable)")
	_ = c.MarkFlagRequired("feature") // the flag exists
	return c
}
