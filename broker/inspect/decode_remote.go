package inspect

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"gregor/protocol/record"
	"gregor/storage/remote/schema"
)

// Names of what is noted as a number in __remote_log_metadata.
var (
	segmentStates  = []string{"COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED"}
	deletionStates = []string{"DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED", "DELETE_PARTITION_FINISHED"}
)

// remoteText renders a record of __remote_log_metadata (KIP-405) as Kafka's tool does: in the text form of Java's objects.
func remoteText(r record.Record) string {
	rec, err := schema.Decode(r.Value)
	var text string
	if err == nil {
		text, err = remoteRecordText(rec)
	}
	if err != nil {
		return fmt.Sprintf("Error at offset %d, skipping. %v", r.Offset, err)
	}
	return text
}

func remoteRecordText(rec schema.Record) (string, error) {
	switch m := rec.(type) {
	case *schema.RemoteLogSegmentMetadataRecord:
		state, err := nameOf(m.RemoteLogSegmentState, segmentStates)
		return fmt.Sprintf("RemoteLogSegmentMetadata{remoteLogSegmentId=%s, startOffset=%d, endOffset=%d, brokerId=%d, maxTimestampMs=%d, "+
			"eventTimestampMs=%d, segmentLeaderEpochs=%s, segmentSizeInBytes=%d, customMetadata=%s, state=%s, txnIdxEmpty=%t}",
			segmentIDText(&m.RemoteLogSegmentID), m.StartOffset, m.EndOffset, m.BrokerID, m.MaxTimestampMs, m.EventTimestampMs,
			epochsText(m.SegmentLeaderEpochs), m.SegmentSizeInBytes, customText(m.CustomMetadata), state, m.TxnIndexEmpty), err
	case *schema.RemoteLogSegmentMetadataUpdateRecord:
		state, err := nameOf(m.RemoteLogSegmentState, segmentStates)
		return fmt.Sprintf("RemoteLogSegmentMetadataUpdate{remoteLogSegmentId=%s, customMetadata=%s, state=%s, eventTimestampMs=%d, brokerId=%d}",
			segmentIDText(&m.RemoteLogSegmentID), customText(m.CustomMetadata), state, m.EventTimestampMs, m.BrokerID), err
	case *schema.RemotePartitionDeleteMetadataRecord:
		state, err := nameOf(m.RemotePartitionDeleteState, deletionStates)
		return fmt.Sprintf("RemotePartitionDeleteMetadata{topicPartition=%s, state=%s, eventTimestampMs=%d, brokerId=%d}",
			topicPartitionText(&m.TopicIDPartition), state, m.EventTimestampMs, m.BrokerID), err
	case *schema.RemoteLogSegmentMetadataSnapshotRecord:
		state, err := nameOf(m.RemoteLogSegmentState, segmentStates)
		return fmt.Sprintf("RemoteLogSegmentMetadataSnapshot{segmentId=%s, startOffset=%d, endOffset=%d, maxTimestampMs=%d, segmentLeaderEpochs=%s, "+
			"segmentSizeInBytes=%d, customMetadata=%s, state=%s, txnIdxEmpty=%t}", uuidText(m.SegmentID), m.StartOffset, m.EndOffset, m.MaxTimestampMs,
			epochsText(m.SegmentLeaderEpochs), m.SegmentSizeInBytes, customText(m.CustomMetadata), state, m.TxnIndexEmpty), err
	}
	return "", errors.ErrUnsupported
}

func uuidText(id [16]byte) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

func topicPartitionText(p *schema.TopicIdPartitionEntry) string {
	return fmt.Sprintf("%s:%s-%d", uuidText(p.ID), p.Name, p.Partition)
}

func segmentIDText(id *schema.RemoteLogSegmentIdEntry) string {
	return fmt.Sprintf("RemoteLogSegmentId{topicIdPartition=%s, id=%s}", topicPartitionText(&id.TopicIDPartition), uuidText(id.ID))
}

// epochsText lists the start offsets of leader epochs, each epoch once.
func epochsText(entries []schema.SegmentLeaderEpochEntry) string {
	epochs := map[int32]int64{}
	for _, e := range entries {
		epochs[e.LeaderEpoch] = e.Offset
	}
	var list []string
	for _, epoch := range sortedKeys(epochs) {
		list = append(list, strconv.Itoa(int(epoch))+"="+strconv.FormatInt(epochs[epoch], 10))
	}
	return "{" + strings.Join(list, ", ") + "}"
}

// customText tells of the bytes that a plugin has noted.
func customText(b []byte) string {
	if b == nil {
		return "Optional.empty"
	}
	return fmt.Sprintf("Optional[CustomMetadata{%d bytes}]", len(b))
}

func nameOf(number int8, names []string) (string, error) {
	if int(number) < 0 || int(number) >= len(names) {
		return "", fmt.Errorf("no state has the number %d; there are %s", number, strings.Join(names, ", "))
	}
	return names[number], nil
}
