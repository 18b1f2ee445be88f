package controller

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/protocol"
)

// FuzzDecide: whatever request a peer sends, the controller answers it, and what it decides can be carried out.
func FuzzDecide(f *testing.F) {
	add := func(req kmsg.Request) {
		if Decides(req.Key()) {
			f.Add(req.Key(), req.GetVersion(), req.AppendTo(nil))
		}
	}
	for _, req := range refusable() {
		req.SetVersion(req.MaxVersion())
		add(req)
	}
	add(registration(3, 1, 2))
	hb := kmsg.NewPtrBrokerHeartbeatRequest()
	hb.Version, hb.BrokerID, hb.BrokerEpoch, hb.WantShutdown = 2, 1, 7, true
	add(hb)
	isr := kmsg.NewPtrAlterPartitionRequest()
	isr.Version, isr.BrokerID, isr.BrokerEpoch = 3, 1, 7
	isr.Topics = []kmsg.AlterPartitionRequestTopic{{
		TopicID: [16]byte{0: 0xa0, 15: 1}, Partitions: []kmsg.AlterPartitionRequestTopicPartition{{}},
	}}
	add(isr)
	dirs := kmsg.NewPtrAssignReplicasToDirsRequest()
	dirs.BrokerID, dirs.BrokerEpoch = 1, 7
	dirs.Directories = []kmsg.AssignReplicasToDirsRequestDirectory{{ID: dirID(1, 0)}}
	add(dirs)
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		if !Decides(key) {
			return
		}
		req, err := protocol.DecodeRequest(protocol.RequestHeader{Key: key, Version: version}, body)
		if err != nil {
			return
		}
		w := newWorld()
		w.start(2)
		w.assigned("t", []int32{1, 2}, []int32{2, 1})
		res := w.do(req)
		resp := req.ResponseKind()
		if err := resp.ReadFrom(res.Response.AppendTo(nil)); err != nil {
			t.Fatalf("response of %T: %v", req, err)
		}
		checkImage(t, w)
	})
}
