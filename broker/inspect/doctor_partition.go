package inspect

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"gregor/protocol/record"
	"gregor/storage"
	"gregor/storage/checkpoint"
	"gregor/storage/producer"
	"gregor/storage/segment"
	"gregor/storage/vfs"
)

var errCRC = errors.New("CRC mismatch")

// partitionCheck is the examination of one partition's directory.
type partitionCheck struct {
	d     *doctor
	r     *DirReport
	dir   string
	sizes map[string]int64
	bases []int64 // of the segments, ascending
	// swapped are the bases of files that a finished cleaning left to be swapped in.
	swapped []int64
	// recoverFrom is the first segment that recovery reads after an unclean stop; below recoveryPoint it cuts nothing.
	recoverFrom   int
	recoveryPoint int64
}

// partition examines the directory of a replica.
func (d *doctor) partition(r *DirReport, dir string, p storage.TopicPartition, points offsets) {
	c := &partitionCheck{d: d, r: r, dir: dir, sizes: map[string]int64{}}
	if !c.list() {
		return
	}
	c.small(p)
	c.recoverFrom, c.recoveryPoint = len(c.bases), points.recoveryPoint[p]
	if !r.Clean {
		c.recoverFrom = c.firstToRecover(c.recoveryPoint)
	}
	if n := len(c.bases); n > 0 && points.logStart[p] > 0 && points.logStart[p] < c.bases[0] {
		d.add(Note, dir, "the log start offset %d of the checkpoint lies below the first segment, %d", points.logStart[p], c.bases[0])
	}
	for i, base := range c.bases {
		if !c.segment(i, base) {
			c.cutOff(i)
			break
		}
	}
}

func (c *partitionCheck) path(name string) string { return filepath.Join(c.dir, name) }

// list reads the directory and sorts its files by what they are.
func (c *partitionCheck) list() bool {
	entries, err := c.d.FS.ReadDir(c.dir)
	if err != nil {
		c.d.add(Broken, c.dir, "cannot be read: %v", err)
		return false
	}
	swaps, leftovers := 0, 0
	for _, e := range entries {
		name := e.Name()
		info, err := e.Info()
		if err != nil || e.IsDir() {
			c.d.add(Note, c.path(name), "is no file of a log and is left alone")
			continue
		}
		c.sizes[name] = info.Size()
		base, suffix, ok := segment.ParseFileName(name)
		switch {
		case ok && strings.HasSuffix(suffix, segment.DeletedSuffix), ok && strings.HasSuffix(suffix, segment.CleanedSuffix):
			leftovers++
		case ok && strings.HasSuffix(suffix, segment.SwapSuffix):
			swaps++
			c.swapped = append(c.swapped, base)
		case !c.known(name, base, suffix, ok):
			c.d.add(Suspicious, c.path(name), "is not named as a file of a log and is left alone")
		case suffix == segment.LogSuffix:
			c.bases = append(c.bases, base)
		}
	}
	if leftovers > 0 {
		c.d.add(Note, c.dir, "%s of deletions or cleanings would be removed", plural(leftovers, "leftover file"))
	}
	if swaps > 0 {
		c.d.add(Note, c.dir, "a finished cleaning would be swapped in (%s)", plural(swaps, "file"))
	}
	slices.Sort(c.bases)
	c.orphans()
	return true
}

// known tells whether a name is one that a partition's directory has.
func (c *partitionCheck) known(name string, base int64, suffix string, numbered bool) bool {
	if numbered && name == segment.FileName(base, suffix) {
		return slices.Contains([]string{segment.LogSuffix, segment.IndexSuffix, segment.TimeIndexSuffix, segment.TxnIndexSuffix, segment.SnapshotSuffix}, suffix)
	}
	name = strings.TrimSuffix(name, ".tmp")
	return name == checkpoint.LeaderEpochFile || name == checkpoint.PartitionMetadataFile
}

// orphans reports indexes without a segment.
func (c *partitionCheck) orphans() {
	for _, name := range sortedKeys(c.sizes) {
		base, suffix, ok := segment.ParseFileName(name)
		if !ok || slices.Contains(c.bases, base) || slices.Contains(c.swapped, base) {
			continue
		}
		if suffix == segment.IndexSuffix || suffix == segment.TimeIndexSuffix || suffix == segment.TxnIndexSuffix {
			c.d.add(Suspicious, c.path(name), "an index without a segment would be removed")
		}
	}
}

// small examines the files beside the segments.
func (c *partitionCheck) small(p storage.TopicPartition) {
	id, err := checkpoint.ReadPartitionMetadata(c.d.FS, c.path(checkpoint.PartitionMetadataFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.d.add(Broken, c.path(checkpoint.PartitionMetadataFile), "%v: the replica would be offline", err)
	} else if why := c.d.isStray(p, id); why != "" {
		c.d.add(Suspicious, c.dir, "would be set aside as a stray replica: %s", why)
	}
	if _, err := checkpoint.ReadEpochs(c.d.FS, c.path(checkpoint.LeaderEpochFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.d.add(Broken, c.path(checkpoint.LeaderEpochFile), "%v: the replica would be offline", err)
	}
	for _, name := range sortedKeys(c.sizes) {
		if _, ok := producer.ParseSnapshotName(name); !ok {
			continue
		}
		if _, err := producer.ReadSnapshot(c.d.FS, c.path(name)); err != nil {
			c.d.add(Suspicious, c.path(name), "%v: it would be dropped and the producer states rebuilt from the log", err)
		}
	}
}

// firstToRecover is the segment that recovery begins with, as package storage decides it.
func (c *partitionCheck) firstToRecover(recoveryPoint int64) int {
	i, found := slices.BinarySearch(c.bases, recoveryPoint)
	if _, sealed := c.sizes[producer.SnapshotName(recoveryPoint)]; !found || !sealed {
		i--
	}
	return max(i, 0)
}

// segment examines one segment; it returns false where recovery would end the log.
func (c *partitionCheck) segment(i int, base int64) bool {
	name := segment.FileName(base, segment.LogSuffix)
	size := c.sizes[name]
	c.r.Segments++
	c.r.SizeBytes += size
	recovering, last := c.recovers(i), c.isLast(i)
	if recovering {
		c.r.RecoveryBytes += size
	}
	c.format(name)
	from := int64(0)
	if !recovering {
		from = c.indexes(base, size)
	}
	if !recovering && !last && !c.d.Deep {
		return true
	}
	if c.d.Deep || recovering {
		from = 0
	}
	positions, bad := c.batches(name, base, from)
	switch {
	case bad != nil:
		return c.damaged(i, bad, size)
	case c.d.Deep && !recovering:
		c.deepIndex(base, positions)
	}
	return true
}

func (c *partitionCheck) recovers(i int) bool { return i >= c.recoverFrom }
func (c *partitionCheck) isLast(i int) bool   { return i == len(c.bases)-1 }

// badBatch is the first bad batch of a segment.
type badBatch struct {
	position int64
	offset   int64 // after the batch before it
	cause    error
}

// batches reads the batches of a segment from a position on, to the first bad one. It returns the last offset of each by
// its position.
func (c *partitionCheck) batches(name string, base, from int64) (positions map[int64]int64, bad *badBatch) {
	positions = map[int64]int64{}
	next, end := base, from
	err := c.d.scan(c.path(name), from, func(b record.Batch, at int64) bool {
		switch {
		case b.LastOffset() < next && at > from:
			bad = &badBatch{at, next, fmt.Errorf("offset %d after %d", b.LastOffset(), next-1)}
		case !b.CRCValid():
			bad = &badBatch{at, next, errCRC}
		}
		if bad != nil {
			return false
		}
		positions[at] = b.LastOffset()
		next, end = b.NextOffset(), at+int64(b.SizeBytes())
		return true
	})
	if bad == nil && err != nil {
		bad = &badBatch{end, next, errors.New(strings.TrimPrefix(err.Error(), fmt.Sprintf("position %d: ", end)))}
	}
	return positions, bad
}

// damaged reports a bad batch of the segment with index i, and tells whether the log goes on after it. What a start
// does is storage's: recovery cuts what a crash may have torn, and reserved blocks of zeros; other damage takes the replica
// offline as soon as it is met.
func (c *partitionCheck) damaged(i int, bad *badBatch, size int64) bool {
	path := c.path(segment.FileName(c.bases[i], segment.LogSuffix))
	if c.recovers(i) && (bad.offset >= c.recoveryPoint || c.d.zeros(path, bad.position, size)) {
		c.d.add(Suspicious, path, "position %d: %v: recovery would cut %d bytes off", bad.position, bad.cause, size-bad.position)
		return !c.isLast(i) && c.bases[i+1] == bad.offset
	}
	var outcome string
	switch {
	case c.recovers(i):
		outcome = "it lies below the recovery point, so no crash tore it: the replica would be offline"
	case c.isLast(i):
		outcome = "the end of a log that was closed cleanly cannot be read: the replica would be offline"
	case errors.Is(bad.cause, errCRC):
		outcome = "it lies below the recovery point, so a start does not see it: consumers refuse the batch, and the cleaner would take the replica offline"
	default:
		outcome = "it lies below the recovery point, so a start does not see it: the replica goes offline when the batch is read"
	}
	c.d.add(Broken, path, "position %d: %v: %s", bad.position, bad.cause, outcome)
	return true
}

// cutOff reports the segments that go when recovery ends the log in an earlier one.
func (c *partitionCheck) cutOff(i int) {
	for _, base := range c.bases[i+1:] {
		name := segment.FileName(base, segment.LogSuffix)
		c.r.Segments++
		c.r.SizeBytes += c.sizes[name]
		c.d.add(Suspicious, c.path(name), "lies beyond the damage: recovery would remove it when the log does not go on there")
	}
}

// format counts the message format of a segment.
func (c *partitionCheck) format(name string) {
	f, err := c.d.FS.Open(c.path(name))
	if err != nil {
		return // the scan tells
	}
	defer func() { _ = f.Close() }() // only read
	head := make([]byte, record.EntrySizeBytes)
	if n, _ := f.ReadAt(head, 0); n == len(head) {
		c.r.Formats[fmt.Sprintf("format %d", head[len(head)-1])]++
	}
}

// indexes checks the index files of a segment without reading it, and returns the position of the last batch that the
// offset index knows.
func (c *partitionCheck) indexes(base, size int64) (lastPosition int64) {
	name := segment.FileName(base, segment.IndexSuffix)
	entries, err := readIndex(c.d.FS, c.path(name), offsetEntryBytes, segment.DecodeOffsetIndex)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if size > 0 {
			c.d.add(Suspicious, c.path(name), "is missing and would be rebuilt")
		}
	case err != nil:
		c.d.add(Suspicious, c.path(name), "%v: it would be rebuilt when it is needed", err)
	}
	for _, e := range entries {
		if int64(e.Position) >= size {
			c.d.add(Suspicious, c.path(name), "an entry points to position %d of a log of %d bytes: it would be rebuilt when it is needed", e.Position, size)
			return 0
		}
		lastPosition = int64(e.Position)
	}
	name = segment.FileName(base, segment.TimeIndexSuffix)
	if _, err := readIndex(c.d.FS, c.path(name), timeEntryBytes, segment.DecodeTimeIndex); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.d.add(Suspicious, c.path(name), "%v: it would be rebuilt when it is needed", err)
	}
	name = segment.FileName(base, segment.TxnIndexSuffix)
	raw, err := vfs.ReadFile(c.d.FS, c.path(name))
	if err == nil {
		_, err = segment.DecodeTxnIndex(raw)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.d.add(Suspicious, c.path(name), "%v: it would be rebuilt from the log", err)
	}
	return lastPosition
}

// deepIndex checks that each entry of the offset index is true of the batches.
func (c *partitionCheck) deepIndex(base int64, positions map[int64]int64) {
	path := c.path(segment.FileName(base, segment.IndexSuffix))
	entries, err := readIndex(c.d.FS, path, offsetEntryBytes, segment.DecodeOffsetIndex)
	if err != nil {
		return // told already
	}
	for _, e := range entries {
		if last, ok := positions[int64(e.Position)]; !ok || last != base+int64(e.RelativeOffset) {
			c.d.add(Suspicious, path, "the entry for offset %d points to position %d, where another batch is", base+int64(e.RelativeOffset), e.Position)
			return
		}
	}
}

const (
	offsetEntryBytes = 8
	timeEntryBytes   = 12
	// indexChunkBytes is a multiple of both.
	indexChunkBytes = 24 << 10
)

// readIndex decodes an index file. That of the segment being written is 10 MiB of which most are zeros: reading ends
// with a chunk of zeros.
func readIndex[E any](fsys vfs.FS, path string, entryBytes int, decode func([]byte) ([]E, error)) ([]E, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	var raw []byte
	for at := int64(0); at < size; at += indexChunkBytes {
		chunk := make([]byte, min(indexChunkBytes, size-at))
		if _, err := f.ReadAt(chunk, at); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if !slices.ContainsFunc(chunk, func(b byte) bool { return b != 0 }) {
			break
		}
		raw = append(raw, chunk...)
	}
	if size%int64(entryBytes) != 0 {
		entries, _ := decode(raw)
		return entries, fmt.Errorf("the size %d is no multiple of %d", size, entryBytes)
	}
	return decode(raw)
}
