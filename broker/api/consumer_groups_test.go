package api

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/image"
)

func TestConsumerGroupsAreRefusedWithoutAMessageWhileTheProtocolIsOff(t *testing.T) {
	g := &groups{node: Node{ID: 1, Images: new(image.Cell)}} // the empty image has no group.version
	describe := kmsg.NewPtrConsumerGroupDescribeRequest()
	describe.Groups = []string{"a", "b"}
	got, _ := g.consumerDescribe(context.Background(), &Call{Request: describe}).(*kmsg.ConsumerGroupDescribeResponse)
	if got == nil || len(got.Groups) != 2 || got.Groups[1].Group != "b" {
		t.Fatalf("%+v", got)
	}
	for _, x := range got.Groups {
		if x.ErrorCode != kerr.UnsupportedVersion.Code || x.ErrorMessage != nil {
			t.Errorf("%s: code %d, message %v", x.Group, x.ErrorCode, x.ErrorMessage)
		}
	}
	var hb *kmsg.ConsumerGroupHeartbeatResponse
	g.consumerHeartbeat(&Call{Request: kmsg.NewPtrConsumerGroupHeartbeatRequest()}, func(resp kmsg.Response) {
		hb, _ = resp.(*kmsg.ConsumerGroupHeartbeatResponse)
	})
	if hb == nil || hb.ErrorCode != kerr.UnsupportedVersion.Code || hb.ErrorMessage != nil {
		t.Errorf("heartbeat: %+v", hb)
	}
}
