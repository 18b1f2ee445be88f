package kraft

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"gregor/protocol"
	"gregor/storage/checkpoint"
)

// ErrMetadataDirLost says that other log directories of a node are formatted and its metadata directory is not: its
// disk was replaced or is not mounted. Formatting it anew could let the node vote without what it had acknowledged.
var ErrMetadataDirLost = errors.New("the metadata log directory is not formatted although others are")

// EnsureFormatted prepares a node that starts: when none of its directories is formatted it formats them all, with a
// random cluster id when none is set; when some are, new ones among the others get their meta.properties. It returns
// the cluster id and whether anything was formatted.
func (f *Formatter) EnsureFormatted(out io.Writer) (clusterID string, formatted bool, err error) {
	known, empty, err := f.survey()
	if err != nil {
		return "", false, err
	}
	if len(known) == 0 {
		if f.ClusterID == "" {
			f.ClusterID = protocol.RandomUUID().String()
		}
		return f.ClusterID, true, f.Run(out)
	}
	clusterID = known[0].ClusterID
	if f.ClusterID != "" && f.ClusterID != clusterID {
		return "", false, formatError("Invalid cluster.id: expected %s, but read %s", f.ClusterID, clusterID)
	}
	if len(empty) == 0 {
		return clusterID, false, nil
	}
	if slices.Contains(empty, f.MetadataDir) {
		return "", false, fmt.Errorf("%w: %s", ErrMetadataDirLost, f.MetadataDir)
	}
	f.ClusterID, f.IgnoreFormatted = clusterID, true
	// The bootstrap records play no part any more: only meta.properties files are written.
	f.NoInitialControllers = f.NoInitialControllers || !f.Standalone && f.InitialControllers == ""
	return clusterID, true, f.Run(out)
}

// survey reads the meta.properties of all directories.
func (f *Formatter) survey() (known []checkpoint.MetaProperties, empty []string, err error) {
	dirs := append(slices.Clone(f.LogDirs), f.MetadataDir)
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		if dir == "" {
			continue
		}
		props, err := checkpoint.ReadMetaProperties(f.FS, filepath.Join(dir, checkpoint.MetaPropertiesFile))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			empty = append(empty, dir)
		case err != nil:
			return nil, nil, fmt.Errorf("log directory %s: %w", dir, err)
		default:
			known = append(known, props)
		}
	}
	return known, empty, nil
}
