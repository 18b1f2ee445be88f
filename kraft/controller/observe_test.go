package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/metadata"
	"gregor/protocol"
)

// operations are the names in "deny" of what a caller may not do.
var operations = map[string]int8{
	"create": opCreate, "delete": opDelete, "alter": opAlter, "describe": opDescribe, "cluster-action": opClusterAction,
	"describe-configs": opDescribeConfigs, "alter-configs": opAlterConfigs,
}

// observe runs the commands that change the caller or only look: deny (operation@resource, all for "*"), mutations (the
// caller's quota of them), listener, describe-cluster, list-reassignments.
func (s *script) observe(d *datadriven.TestData, a args) (string, bool) {
	switch d.Cmd {
	case "deny":
		s.w.req.Authorize = denying(a.list("ops"))
	case "mutations":
		left := int(a.num("n", 0))
		s.w.req.ChargeMutations = func(n int) error {
			if n > left {
				return errors.New("out of mutations")
			}
			left -= n
			return nil
		}
	case "listener":
		s.w.req.Listener = a.text("name")
	case "describe-cluster":
		req := kmsg.NewPtrDescribeClusterRequest()
		req.Version, req.EndpointType = int16(a.num("v", 2)), int8(a.num("endpoint", 2))
		req.IncludeClusterAuthorizedOperations = a.has("operations")
		return responseText(s.w.decider().DescribeCluster(req, 9).Response), true
	case "list-reassignments":
		req := kmsg.NewPtrListPartitionReassignmentsRequest()
		for _, topic := range a.list("topics") {
			t := kmsg.NewListPartitionReassignmentsRequestTopic()
			t.Topic, t.Partitions = topic, []int32{0, 1, 99}
			req.Topics = append(req.Topics, t)
		}
		return responseText(s.w.decider().ListPartitionReassignments(req).Response), true
	case "controller":
		s.w.apply(controllerRecord(a))
	case "activation":
		return s.activation(a), true
	default:
		return "", false
	}
	return "", true
}

func denying(ops []string) func(operation, resourceType int8, name string) bool {
	if len(ops) == 0 {
		return nil
	}
	return func(operation, resourceType int8, name string) bool {
		what := "cluster"
		if resourceType != resourceCluster {
			what = name
		}
		for _, o := range ops {
			op, on, _ := strings.Cut(o, "@")
			if operations[op] == operation && (on == "*" || on == what) {
				return false
			}
		}
		return true
	}
}

func controllerRecord(a args) *metadata.RegisterControllerRecord {
	rec := metadata.NewRegisterControllerRecord()
	rec.ControllerID = int32(a.num("id", 9))
	rec.IncarnationID = protocol.UUID{0: 0xb0, 15: byte(a.num("incarnation", 1))}
	for _, name := range a.list("listeners") {
		e := metadata.ControllerEndpoint{Name: name, Host: "host9", Port: 9093}
		rec.EndPoints = append(rec.EndPoints, e)
	}
	for _, f := range metadata.SupportedFeatures() {
		if f.Name == metadata.FeatureGroup && a.has("group") {
			f.Max = int16(a.num("group", 0))
		}
		rec.Features = append(rec.Features, metadata.ControllerFeature{
			Name: f.Name, MinSupportedVersion: f.Min, MaxSupportedVersion: f.Max,
		})
	}
	return rec
}

// activation prints what a new active controller writes.
func (s *script) activation(a args) string {
	var bootstrap []metadata.Record
	if a.has("level") {
		bootstrap = defaultLevels(metadata.MetadataVersion(a.num("level", 0)))
		bootstrap = slices.DeleteFunc(bootstrap, func(r metadata.Record) bool {
			_, isConfig := r.(*metadata.ConfigRecord)
			return isConfig
		})
	}
	out, err := s.w.decider().Activation(a.has("level"), a.has("open"), bootstrap)
	if err != nil {
		return fmt.Sprintf("error: %v\n", err)
	}
	return text(out)
}
