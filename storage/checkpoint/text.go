package checkpoint

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gregor/storage/vfs"
)

// The checkpoint text files:
//
//	0             version
//	2             number of entries
//	t1 2 100      entries
//	c1 0 3500
//
// An empty file, which Kafka creates before the first checkpoint, has no entries.
const textVersion = "0"

// maxEntriesHint bounds what a file's claimed number of entries makes us allocate ahead.
const maxEntriesHint = 1 << 16

// parseText goes through the entries of a checkpoint text.
func parseText(b []byte, entry func(line int, fields []string) error) error {
	if len(b) == 0 {
		return nil
	}
	lines := strings.Split(string(b), "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	for i := range lines {
		lines[i] = strings.TrimSuffix(lines[i], "\r")
	}
	if lines[0] != textVersion {
		return syntaxErrorf(1, "unrecognized version %q", lines[0])
	}
	if len(lines) < 2 {
		// Only the version: as Kafka reads it, a file without entries.
		return nil
	}
	expected, ok := parseInt(lines[1], 32)
	if !ok || expected < 0 {
		return syntaxErrorf(2, "%q is not a number of entries", lines[1])
	}
	for i, line := range lines[2:] {
		if err := entry(i+3, strings.Fields(line)); err != nil {
			return err
		}
	}
	if found := len(lines) - 2; int64(found) != expected {
		return syntaxErrorf(len(lines), "%d entries are announced, %d are there", expected, found)
	}
	return nil
}

func textHeader(entries int) *bytes.Buffer {
	var b bytes.Buffer
	b.WriteString(textVersion + "\n" + strconv.Itoa(entries) + "\n")
	return &b
}

// TopicPartition names a partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// String is TOPIC-PARTITION, which is also the name of the partition's directory.
func (p TopicPartition) String() string { return p.Topic + "-" + strconv.Itoa(int(p.Partition)) }

// Compare orders by topic, then partition.
func (p TopicPartition) Compare(o TopicPartition) int {
	return cmp.Or(strings.Compare(p.Topic, o.Topic), cmp.Compare(p.Partition, o.Partition))
}

// ReadOffsets reads one of the four offset checkpoints.
func ReadOffsets(fsys vfs.FS, path string) (map[TopicPartition]int64, error) {
	return read(fsys, path, parseOffsets)
}

func parseOffsets(b []byte) (map[TopicPartition]int64, error) {
	offsets := map[TopicPartition]int64{}
	err := parseText(b, func(line int, fields []string) error {
		if len(fields) != 3 {
			return syntaxErrorf(line, "%d fields instead of topic, partition and offset", len(fields))
		}
		partition, ok := parseInt(fields[1], 32)
		if !ok || partition < 0 {
			return syntaxErrorf(line, "%q is not a partition", fields[1])
		}
		offset, ok := parseInt(fields[2], 64)
		if !ok {
			return syntaxErrorf(line, "%q is not an offset", fields[2])
		}
		offsets[TopicPartition{fields[0], int32(partition)}] = offset
		return nil
	})
	if err != nil {
		return nil, err
	}
	return offsets, nil
}

// WriteOffsets replaces an offset checkpoint.
func WriteOffsets(fsys vfs.FS, path string, offsets map[TopicPartition]int64) error {
	return vfs.WriteFileAtomic(fsys, path, formatOffsets(offsets))
}

func formatOffsets(offsets map[TopicPartition]int64) []byte {
	b := textHeader(len(offsets))
	for _, p := range slices.SortedFunc(maps.Keys(offsets), TopicPartition.Compare) {
		fmt.Fprintf(b, "%s %d %d\n", p.Topic, p.Partition, offsets[p])
	}
	return b.Bytes()
}

// EpochEntry says that a leader epoch starts at an offset.
type EpochEntry struct {
	Epoch       int32
	StartOffset int64
}

// ReadEpochs reads a leader-epoch-checkpoint. The order is that of the file: Kafka writes it ascending, but a
// reader must cope with what it finds.
func ReadEpochs(fsys vfs.FS, path string) ([]EpochEntry, error) { return read(fsys, path, parseEpochs) }

func parseEpochs(b []byte) ([]EpochEntry, error) {
	entries := make([]EpochEntry, 0, min(maxEntriesHint, bytes.Count(b, []byte{'\n'})))
	err := parseText(b, func(line int, fields []string) error {
		if len(fields) != 2 {
			return syntaxErrorf(line, "%d fields instead of epoch and start offset", len(fields))
		}
		epoch, ok := parseInt(fields[0], 32)
		if !ok || epoch < 0 {
			return syntaxErrorf(line, "%q is not a leader epoch", fields[0])
		}
		offset, ok := parseInt(fields[1], 64)
		if !ok || offset < 0 {
			return syntaxErrorf(line, "%q is not a start offset", fields[1])
		}
		entries = append(entries, EpochEntry{int32(epoch), offset})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return entries, nil
}

// EncodeEpochs is the contents of a leader-epoch-checkpoint.
func EncodeEpochs(entries []EpochEntry) []byte {
	b := textHeader(len(entries))
	for _, e := range entries {
		fmt.Fprintf(b, "%d %d\n", e.Epoch, e.StartOffset)
	}
	return b.Bytes()
}
