package controller

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/protocol"
)

// refusable are requests with one item each, of all APIs that a controller may have to refuse.
func refusable() []kmsg.Request {
	create := createTopic("t", 1, 1)
	del := kmsg.NewPtrDeleteTopicsRequest()
	name := "t"
	del.Version, del.Topics = 6, []kmsg.DeleteTopicsRequestTopic{{Topic: &name}}
	grow := kmsg.NewPtrCreatePartitionsRequest()
	grow.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "t"}}
	alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
	alter.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: 2, ResourceName: "t"}}
	legacy := kmsg.NewPtrAlterConfigsRequest()
	legacy.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: 2, ResourceName: "t"}}
	quotas := kmsg.NewPtrAlterClientQuotasRequest()
	quotas.Entries = []kmsg.AlterClientQuotasRequestEntry{{
		Entity: []kmsg.AlterClientQuotasRequestEntryEntity{{Type: "user", Name: &name}},
	}}
	scram := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	scram.Deletions = []kmsg.AlterUserSCRAMCredentialsRequestDeletion{{Name: "t"}}
	scram.Upsertions = []kmsg.AlterUserSCRAMCredentialsRequestUpsertion{{Name: "t"}}
	elect := kmsg.NewPtrElectLeadersRequest()
	elect.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: "t", Partitions: []int32{0}}}
	reassign := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	reassign.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{{
		Topic: "t", Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{Partition: 0}},
	}}
	return []kmsg.Request{
		create, del, grow, alter, legacy, quotas, scram, elect, reassign,
		kmsg.NewPtrListPartitionReassignmentsRequest(), kmsg.NewPtrUpdateFeaturesRequest(),
		kmsg.NewPtrUnregisterBrokerRequest(), kmsg.NewPtrUnregisterControllerRequest(),
		kmsg.NewPtrAllocateProducerIDsRequest(), kmsg.NewPtrAddRaftVoterRequest(), kmsg.NewPtrRemoveRaftVoterRequest(),
		kmsg.NewPtrDescribeQuorumRequest(),
	}
}

// TestRefusal: every response tells the refusal, in every version in which the API has it, also after the wire.
func TestRefusal(t *testing.T) {
	for _, req := range refusable() {
		api, ok := protocol.APIByKey(req.Key())
		if !ok {
			t.Fatalf("no API %d", req.Key())
		}
		for v := api.MinVersion; v <= api.MaxVersion; v++ {
			t.Run(fmt.Sprintf("%T v%d", req, v), func(t *testing.T) {
				req.SetVersion(v)
				if v < 6 && req.Key() == int16(kmsg.DeleteTopics) {
					req.(*kmsg.DeleteTopicsRequest).TopicNames = []string{"t"}
				}
				resp := Refusal(req, NotController())
				back := req.ResponseKind()
				if err := back.ReadFrom(resp.AppendTo(nil)); err != nil {
					t.Fatal(err)
				}
				if slices.Contains(ErrorCodes(back), codeNotController) {
					return
				}
				if v == 0 && req.Key() == int16(kmsg.ElectLeaders) {
					p := back.(*kmsg.ElectLeadersResponse).Topics[0].Partitions[0]
					mustCode(t, p.ErrorCode, codeNotController)
					return
				}
				t.Fatalf("%+v does not tell the refusal", back)
			})
		}
	}
}

// TestRefusalOfPeers: the same for APIs whose error nobody looks for.
func TestRefusalOfPeers(t *testing.T) {
	for _, req := range []kmsg.Request{
		kmsg.NewPtrAlterPartitionRequest(), kmsg.NewPtrBrokerRegistrationRequest(), kmsg.NewPtrBrokerHeartbeatRequest(),
		kmsg.NewPtrControllerRegistrationRequest(), kmsg.NewPtrAssignReplicasToDirsRequest(),
		kmsg.NewPtrDescribeClusterRequest(), kmsg.NewPtrEnvelopeRequest(), kmsg.NewPtrUpdateRaftVoterRequest(),
		kmsg.NewPtrFetchRequest(), kmsg.NewPtrFetchSnapshotRequest(),
	} {
		api, _ := protocol.APIByKey(req.Key())
		req.SetVersion(api.MaxVersion)
		plain, refused := Refusal(req, &Fault{}).AppendTo(nil), Refusal(req, NotController()).AppendTo(nil)
		if string(plain) == string(refused) {
			t.Errorf("%T does not tell the refusal", req)
		}
	}
}

func TestFaultOf(t *testing.T) {
	if f := FaultOf(NotController()); f.Code != codeNotController {
		t.Errorf("a fault became %v", f)
	}
	if f := FaultOf(fmt.Errorf("deep: %w", TimedOut())); f.Code != 7 {
		t.Errorf("a wrapped fault became %v", f)
	}
	f := FaultOf(errors.New("disk on fire"))
	if f.Code != codeUnknownServer || f.Error() == "" || f.KafkaErrorCode() != codeUnknownServer {
		t.Errorf("an error became %v", f)
	}
	for f, want := range map[*Fault]int16{
		NotLeader(): codeNotLeaderOrFollower, WrongCluster(): codeInconsistentClusterID, Unauthorized(): codeClusterAuthorization,
		Unsupported("no"): codeUnsupportedVersion,
	} {
		mustCode(t, f.Code, want)
	}
}
