package kraft

import (
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/quorum"
)

func TestDescribeQuorumSendsEmptyMessagesWhereNothingFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testOptions(t, formatDisk(t, 1, nil), 1, 1))
		defer stopNode(t, n)
		until(t, "activation", func() bool { return n.Image().MetadataVersion() != 0 })
		req := kmsg.NewPtrDescribeQuorumRequest()
		req.Version = 2
		topic := kmsg.NewDescribeQuorumRequestTopic()
		topic.Topic = quorum.Topic
		topic.Partitions = append(topic.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
		req.Topics = append(req.Topics, topic)
		resp := handle[*kmsg.DescribeQuorumResponse](t, n, req)
		of := resp.Topics[0].Partitions[0].ErrorMessage
		if resp.ErrorMessage == nil || *resp.ErrorMessage != "" || of == nil || *of != "" {
			t.Errorf("messages %v and %v, want two empty strings", resp.ErrorMessage, of)
		}
	})
}
