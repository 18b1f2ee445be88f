package storage

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"strings"

	"gregor/storage/checkpoint"
)

// TopicPartition names a partition.
type TopicPartition = checkpoint.TopicPartition

// MetadataTopic is the topic of the metadata log, which the quorum keeps and no Manager.
const MetadataTopic = "__cluster_metadata"

// remoteIndexCacheDir holds cached indexes of tiered segments.
const remoteIndexCacheDir = "remote-log-index-cache"

// DirKind says what the directory of a partition is for.
type DirKind int8

// The kinds of partition directories.
const (
	DirCurrent DirKind = iota // TOPIC-PARTITION
	DirFuture                 // TOPIC-PARTITION.HEX32-future: a replica moving into this log directory
	DirDelete                 // TOPIC-PARTITION.HEX32-delete: removed after file.delete.delay.ms
	DirStray                  // TOPIC-PARTITION.HEX32-stray: unknown to the metadata, set aside
)

var dirSuffixes = [...]string{DirCurrent: "", DirFuture: "-future", DirDelete: "-delete", DirStray: "-stray"}

// Limits of names. A name that does not hold them cannot be Kafka's.
const (
	maxTopicNameBytes = 249
	maxDirNameBytes   = 255
	hexIDBytes        = 32
)

// ParseDirName tells what a directory is; ok is false for one that belongs to no partition.
func ParseDirName(name string) (p TopicPartition, kind DirKind, ok bool) {
	for _, k := range []DirKind{DirFuture, DirDelete, DirStray} {
		rest, found := strings.CutSuffix(name, dirSuffixes[k])
		if !found {
			continue
		}
		dot := strings.LastIndexByte(rest, '.')
		if dot < 0 || len(rest)-dot-1 != hexIDBytes || strings.Trim(rest[dot+1:], "0123456789abcdef") != "" {
			continue
		}
		kind, name = k, rest[:dot]
		break
	}
	dash := strings.LastIndexByte(name, '-')
	if dash <= 0 || dash == len(name)-1 {
		return p, kind, false
	}
	topic, digits := name[:dash], name[dash+1:]
	partition, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || partition < 0 || digits[0] == '+' || !validTopicName(topic) {
		return p, kind, false
	}
	return TopicPartition{Topic: topic, Partition: int32(partition)}, kind, true
}

func validTopicName(topic string) bool {
	if len(topic) > maxTopicNameBytes || topic == "." || topic == ".." {
		return false
	}
	return strings.IndexFunc(topic, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-'
	}) < 0
}

// dirName makes a directory name of a kind; those but of the current replica are unique. For deleted and stray
// replicas the topic is cut so that the name fits into a directory entry.
func dirName(p TopicPartition, kind DirKind) string {
	if kind == DirCurrent {
		return p.String()
	}
	var id [hexIDBytes / 2]byte
	_, _ = rand.Read(id[:]) // never fails
	suffix := "-" + strconv.Itoa(int(p.Partition)) + "." + hex.EncodeToString(id[:]) + dirSuffixes[kind]
	topic := p.Topic
	if kind != DirFuture {
		topic = topic[:min(len(topic), maxDirNameBytes-len(suffix))]
	}
	return topic + suffix
}
