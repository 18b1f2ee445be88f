package api

import (
	"context"
	"log/slog"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/storage"
)

// LogDirs is what DescribeLogDirs tells of the disks.
type LogDirs interface {
	DescribeDirs() []LogDir
}

// LogDir is one log directory.
type LogDir struct {
	Path string
	// Err is set for a directory that is offline.
	Err                     error
	TotalBytes, UsableBytes int64 // of the volume, -1 when not known
	Cordoned                bool  // gets no new replicas
	Logs, FutureLogs        []*storage.Log
}

// DescribeLogDirs (key 35), versions 1 to 5.
//
//	2 flexible     3 error of the whole request     4 size of the volume (KIP-827)     5 cordoned directories
//
// Null topics ask for all. Every directory is listed, with the partitions asked for that it holds: a topic that
// does not exist gives no entry and no error. An offline directory has KAFKA_STORAGE_ERROR.
type describeLogDirs struct {
	dirs LogDirs
	log  *slog.Logger
}

func (h *describeLogDirs) handle(_ context.Context, c *Call) kmsg.Response {
	req, _ := c.Request.(*kmsg.DescribeLogDirsRequest)
	resp := kmsg.NewPtrDescribeLogDirsResponse()
	resp.SetVersion(req.Version)
	want := requestedPartitions(req)
	for _, d := range h.dirs.DescribeDirs() {
		out := kmsg.NewDescribeLogDirsResponseDir()
		out.Dir, out.TotalBytes, out.UsableBytes, out.IsCordoned = d.Path, d.TotalBytes, d.UsableBytes, d.Cordoned
		out.Topics = []kmsg.DescribeLogDirsResponseDirTopic{}
		if out.ErrorCode = code(h.log, "DescribeLogDirs", d.Err); d.Err == nil {
			out.Topics = dirTopics(d, want)
		}
		resp.Dirs = append(resp.Dirs, out)
	}
	return resp
}

// requestedPartitions maps topics to the partitions asked for; nil asks for all.
func requestedPartitions(req *kmsg.DescribeLogDirsRequest) map[string][]int32 {
	if req.Topics == nil {
		return nil
	}
	want := map[string][]int32{}
	for _, t := range req.Topics {
		want[t.Topic] = append(want[t.Topic], t.Partitions...)
	}
	return want
}

func dirTopics(d LogDir, want map[string][]int32) []kmsg.DescribeLogDirsResponseDirTopic {
	byTopic := map[string][]kmsg.DescribeLogDirsResponseDirTopicPartition{}
	add := func(logs []*storage.Log, future bool) {
		for _, l := range logs {
			if want != nil && !slices.Contains(want[l.Topic()], l.Partition()) {
				continue
			}
			s := l.State()
			p := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
			p.Partition, p.Size, p.IsFuture = l.Partition(), s.SizeBytes, future
			p.OffsetLag = max(s.HighWatermark-s.LogEndOffset, 0)
			byTopic[l.Topic()] = append(byTopic[l.Topic()], p)
		}
	}
	add(d.Logs, false)
	add(d.FutureLogs, true)
	out := []kmsg.DescribeLogDirsResponseDirTopic{}
	for _, name := range slices.Sorted(maps.Keys(byTopic)) {
		partitions := byTopic[name]
		slices.SortFunc(partitions, func(a, b kmsg.DescribeLogDirsResponseDirTopicPartition) int { return int(a.Partition - b.Partition) })
		out = append(out, kmsg.DescribeLogDirsResponseDirTopic{Topic: name, Partitions: partitions})
	}
	return out
}
