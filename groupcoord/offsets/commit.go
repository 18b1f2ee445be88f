package offsets

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/groupcoord/schema"
)

// txnNewErrorsVersion is the first of TxnOffsetCommit whose clients know
// STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND.
const txnNewErrorsVersion = 6

// Commit handles an OffsetCommit of a group that exists, or was made for it.
// The topics carry names and, where known, ids, whatever the version.
func (s *Store) Commit(group Group, req *kmsg.OffsetCommitRequest) (*kmsg.OffsetCommitResponse, []schema.Record, error) {
	validate, err := group.ValidateCommit(Commit{
		MemberID: req.MemberID, InstanceID: req.InstanceID, Generation: req.Generation, Version: req.Version,
	})
	if err != nil {
		return nil, nil, err
	}
	now := time.Now().UnixMilli()
	expire := noExpiry
	if req.Version >= 2 && req.Version <= 4 && req.RetentionTimeMillis != -1 {
		expire = now + req.RetentionTimeMillis
	}
	resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	records := make([]schema.Record, 0, n)
	resp.Topics = make([]kmsg.OffsetCommitResponseTopic, 0, len(req.Topics))
	for i := range req.Topics {
		topic := &req.Topics[i]
		out := kmsg.NewOffsetCommitResponseTopic()
		out.Topic, out.TopicID = topic.Topic, topic.TopicID
		out.Partitions = make([]kmsg.OffsetCommitResponseTopicPartition, 0, len(topic.Partitions))
		for _, p := range topic.Partitions {
			answer := kmsg.NewOffsetCommitResponseTopicPartition()
			answer.Partition = p.Partition
			if s.metadataTooLarge(p.Metadata) {
				answer.ErrorCode = kerr.OffsetMetadataTooLarge.Code
				out.Partitions = append(out.Partitions, answer)
				continue
			}
			if validate != nil {
				if err := validate(topic.Topic, topic.TopicID, p.Partition); err != nil {
					return nil, nil, err
				}
			}
			records = append(records, commitRecord(req.Group, topic.Topic, p.Partition, Offset{
				Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: orEmpty(p.Metadata),
				CommitMillis: now, ExpireMillis: expire, TopicID: topic.TopicID,
			}))
			out.Partitions = append(out.Partitions, answer)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp, records, nil
}

// CommitTxn handles a TxnOffsetCommit (KIP-447). The records are pending until
// the transaction ends.
func (s *Store) CommitTxn(group Group, req *kmsg.TxnOffsetCommitRequest) (*kmsg.TxnOffsetCommitResponse, []schema.Record, error) {
	validate, err := group.ValidateCommit(Commit{
		MemberID: req.MemberID, InstanceID: req.InstanceID, Generation: req.Generation, Transactional: true, Version: req.Version,
	})
	if err != nil {
		return nil, nil, txnError(err, req.Version)
	}
	now := time.Now().UnixMilli()
	resp := req.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
	var records []schema.Record
	for i := range req.Topics {
		topic := &req.Topics[i]
		out := kmsg.NewTxnOffsetCommitResponseTopic()
		out.Topic, out.TopicID = topic.Topic, topic.TopicID
		for _, p := range topic.Partitions {
			answer := kmsg.NewTxnOffsetCommitResponseTopicPartition()
			answer.Partition = p.Partition
			if s.metadataTooLarge(p.Metadata) {
				answer.ErrorCode = kerr.OffsetMetadataTooLarge.Code
				out.Partitions = append(out.Partitions, answer)
				continue
			}
			if validate != nil {
				if err := validate(topic.Topic, topic.TopicID, p.Partition); err != nil {
					return nil, nil, txnError(err, req.Version)
				}
			}
			records = append(records, commitRecord(req.Group, topic.Topic, p.Partition, Offset{
				Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: orEmpty(p.Metadata),
				CommitMillis: now, ExpireMillis: noExpiry, TopicID: topic.TopicID,
			}))
			out.Partitions = append(out.Partitions, answer)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp, records, nil
}

// txnError gives older versions the error that they know.
func txnError(err error, version int16) error {
	if version < txnNewErrorsVersion && errors.Is(err, kerr.StaleMemberEpoch) {
		return kerr.IllegalGeneration
	}
	return err
}

func (s *Store) metadataTooLarge(metadata *string) bool {
	return metadata != nil && len(*metadata) > s.cfg.MetadataMaxBytes && utf16Len(*metadata) > s.cfg.MetadataMaxBytes
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
