package checkpoint

import (
	"strings"

	"gregor/storage/vfs"
)

// ReadPartitionMetadata reads a partition.metadata (KIP-516): the id of the topic that the directory belongs
// to, so that a topic created again under the same name does not inherit the old data.
//
//	version: 0
//	topic_id: 0bOxrPmpT_aYjK8UHoK6ig
func ReadPartitionMetadata(fsys vfs.FS, path string) (topicID [16]byte, err error) {
	return read(fsys, path, parsePartitionMetadata)
}

func parsePartitionMetadata(b []byte) (topicID [16]byte, err error) {
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	version, err := colonField(lines, 0, "version")
	if err != nil {
		return topicID, err
	}
	if version != textVersion {
		return topicID, syntaxErrorf(1, "unrecognized version %q", version)
	}
	text, err := colonField(lines, 1, "topic_id")
	if err != nil {
		return topicID, err
	}
	topicID, ok := parseUUID(text)
	if !ok || topicID == [16]byte{} {
		return [16]byte{}, syntaxErrorf(2, "%q is not a topic id", text)
	}
	return topicID, nil
}

func colonField(lines []string, index int, key string) (string, error) {
	if index >= len(lines) {
		return "", syntaxErrorf(index+1, "%s is missing", key)
	}
	name, value, found := strings.Cut(strings.TrimSuffix(lines[index], "\r"), ":")
	if !found || name != key {
		return "", syntaxErrorf(index+1, "%q is not %s: VALUE", lines[index], key)
	}
	return strings.TrimLeft(value, " \t"), nil
}

// EncodePartitionMetadata is the contents of a partition.metadata.
func EncodePartitionMetadata(topicID [16]byte) []byte {
	return []byte("version: " + textVersion + "\ntopic_id: " + formatUUID(topicID))
}
