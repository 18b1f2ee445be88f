package quorum

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gregor/protocol/record"
	"gregor/storage/vfs"
)

// maxUnsyncedBytes bounds what is written between two syncs, by this program and by Kafka (whose batches end at 8 MiB),
// and so what a crash can tear. More than that after a bad byte was synced, and may have been acknowledged.
const maxUnsyncedBytes = 16 << 20

// VerifyLog reads the end of the metadata log in a directory as a voter's start does, and gives the error that it would be
// refused with: an ErrCorrupt for damage that no crash explains. newest is the newest snapshot beside it, the zero value
// without one. Nothing is changed.
func VerifyLog(fsys vfs.FS, dir string, newest SnapshotID) error {
	return verifyTail(fsys, dir, newest, maxUnsyncedBytes)
}

// verifyTail looks for damage that is not the work of a crash, before the log is opened: opening cuts the log at the
// first bad byte, and a voter that lost what it had acknowledged may elect a leader that lacks it. Such a replica must
// not start; the others go on without it. Only the segments that opening would cut are read.
func verifyTail(fsys vfs.FS, dir string, newest SnapshotID, maxTornBytes int64) error {
	bases, err := segmentBases(fsys, dir)
	if err != nil {
		return err
	}
	i, found := slices.BinarySearch(bases, newest.Offset)
	if !found {
		i--
	}
	for n, base := range bases[min(max(i-1, 0), len(bases)):] {
		name := filepath.Join(dir, fmt.Sprintf("%020d.log", base))
		d, err := findDamage(fsys, name, base)
		if err != nil {
			return fmt.Errorf("metadata log: %w", err)
		}
		if d == nil {
			continue
		}
		later := bases[slices.Index(bases, base)+1:]
		if len(later) > 0 && d.offset == later[0] {
			continue // what lies behind the last batch of a segment belongs to nothing
		}
		if d.leftBytes, err = addSizes(fsys, dir, d.leftBytes, later); err != nil {
			return err
		}
		if d.offset < newest.Offset || d.leftBytes > maxTornBytes || len(later) > 0 && n > 0 {
			return fmt.Errorf("%w: %s at byte %d (offset %d): %w; the newest snapshot ends at %d and %d bytes follow, so this is no torn write: "+
				"this replica must be emptied and fetched again", ErrCorrupt, name, d.position, d.offset, d.cause, newest.Offset, d.leftBytes)
		}
		return nil
	}
	return nil
}

// addSizes adds the sizes of segments, which go with the bad byte before them.
func addSizes(fsys vfs.FS, dir string, bytes int64, bases []int64) (int64, error) {
	for _, base := range bases {
		info, err := fsys.Stat(filepath.Join(dir, fmt.Sprintf("%020d.log", base)))
		if err != nil {
			return 0, fmt.Errorf("metadata log: %w", err)
		}
		bytes += info.Size()
	}
	return bytes, nil
}

// segmentBases lists the base offsets of the log's segments.
func segmentBases(fsys vfs.FS, dir string) ([]int64, error) {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("metadata log directory: %w", err)
	}
	var bases []int64
	for _, e := range entries {
		stem, ok := strings.CutSuffix(e.Name(), ".log")
		if !ok || len(stem) != 20 {
			continue
		}
		base, err := strconv.ParseInt(stem, 10, 64)
		if err == nil && base >= 0 {
			bases = append(bases, base)
		}
	}
	slices.Sort(bases)
	return bases, nil
}

// damage is the first bad byte of a segment.
type damage struct {
	offset    int64 // that was expected there
	position  int64
	leftBytes int64 // in the file from there on
	cause     error
}

// findDamage reads a segment's batches; nil when all of them are good.
func findDamage(fsys vfs.FS, name string, base int64) (*damage, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	next, position := base, int64(0)
	buf := make([]byte, 0, scanBytes)
	for position < size {
		buf = buf[:min(int64(cap(buf)), size-position)]
		if err := readFull(f, buf, position); err != nil {
			return nil, err
		}
		more := position+int64(len(buf)) < size
		used, after, err := goodBatches(buf, next)
		next, position = after, position+int64(used)
		cut := more && errors.Is(err, record.ErrTruncated)
		switch {
		case err == nil || cut && used > 0:
		case cut && cap(buf) < maxRecordBytes:
			buf = make([]byte, 0, 2*cap(buf)) // a batch larger than the buffer
		default:
			return &damage{offset: next, position: position, leftBytes: size - position, cause: err}, nil
		}
	}
	return nil, nil
}

// goodBatches is how many bytes of buf are good batches that go on from the offset, and the offset after them; the
// error is about what comes next, nil at the end of buf.
func goodBatches(buf []byte, offset int64) (used int, next int64, err error) {
	for {
		b, _, err := record.Next(buf[used:])
		if errors.Is(err, io.EOF) {
			return used, offset, nil
		}
		if err == nil {
			err = checkPlace(b, offset)
		}
		if err != nil {
			return used, offset, err
		}
		used += len(b)
		offset = b.NextOffset()
	}
}

// checkPlace says whether a batch is good and goes on at the offset.
func checkPlace(b record.Batch, offset int64) error {
	switch {
	case b.BaseOffset() < offset:
		return fmt.Errorf("batch at offset %d where %d belongs", b.BaseOffset(), offset)
	case !b.CRCValid():
		return errBadCRC
	default:
		return nil
	}
}
