package quorum

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"gregor/kraft/metadata"
	"gregor/storage/vfs"
)

// BootstrapOptions are what the format command puts into the checkpoint 0-0.
type BootstrapOptions struct {
	KRaftVersion int16
	// Voters are those of --standalone and --initial-controllers; empty with --no-initial-controllers.
	Voters  VoterSet
	Records []VersionedRecord
	// NowMillis is the timestamp of batches and header.
	NowMillis int64
}

// WriteBootstrap makes the directory of the metadata log with the checkpoint 0-0 in it.
func WriteBootstrap(fsys vfs.FS, dir string, o BootstrapOptions) error {
	named, err := makeDir(fsys, dir)
	if err != nil {
		return err
	}
	err = writeFirstSnapshot(fsys, dir, o)
	if nameErr := <-named; nameErr != nil && err == nil {
		err = fmt.Errorf("metadata log directory: %w", nameErr)
	}
	return err
}

// writeFirstSnapshot writes the checkpoint 0-0 into the directory.
func writeFirstSnapshot(fsys vfs.FS, dir string, o BootstrapOptions) error {
	store, err := openSnapshots(fsys, dir, 0)
	if err != nil {
		return err
	}
	if id, ok := store.latest(); ok {
		return fmt.Errorf("%w: %v", ErrSnapshotExists, id)
	}
	if o.NowMillis == 0 {
		o.NowMillis = time.Now().UnixMilli()
	}
	w, err := store.newSnapshotWriter(snapshotSpec{
		config: config{level: o.KRaftVersion, voters: o.Voters}, lastContainedLogMillis: o.NowMillis, nowMillis: o.NowMillis,
	})
	if err != nil {
		return err
	}
	if err := w.Append(o.Records...); err != nil {
		w.Abort()
		return err
	}
	return w.Close()
}

// bootstrapRecords reads the records of the format command: from the checkpoint 0-0, or from the bootstrap.checkpoint
// that Kafka up to 4.0 writes into the metadata log dir.
func bootstrapRecords(o *Options, snapshots *snapshotStore) ([]metadata.Record, bool, error) {
	for _, path := range []string{
		snapshots.path(SnapshotID{}), filepath.Join(o.Dir, bootstrapFile), filepath.Join(filepath.Dir(o.Dir), bootstrapFile),
	} {
		records, err := readBootstrap(o.FS, path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", filepath.Base(path), err)
		}
		return records, true, nil
	}
	return nil, false, nil
}

func readBootstrap(fsys vfs.FS, path string) ([]metadata.Record, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	r, err := newSnapshotReader(f, size, SnapshotID{})
	if err != nil {
		return nil, err
	}
	var records []metadata.Record
	for b, err := range r.Batches() {
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
		records = append(records, b.Records...)
	}
	return records, r.Close()
}
