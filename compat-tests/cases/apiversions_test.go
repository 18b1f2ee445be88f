package cases

import (
	"encoding/binary"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/compat-tests/harness"
	"gregor/compat-tests/wire"
)

func apiVersionsRequest(version int16) *kmsg.ApiVersionsRequest {
	req := wire.At(kmsg.NewPtrApiVersionsRequest(), version)
	req.ClientSoftwareName, req.ClientSoftwareVersion = "compat", "1"
	req.NodeID = -1
	return req
}

func apiVersions(t *testing.T, n *harness.Node, version int16) map[int16]kmsg.ApiVersionsResponseApiKey {
	t.Helper()
	resp := wire.Do[*kmsg.ApiVersionsResponse](t, n.Addr, apiVersionsRequest(version))
	wantCode(t, "ApiVersions", resp.ErrorCode, nil)
	keys := map[int16]kmsg.ApiVersionsResponseApiKey{}
	for _, k := range resp.ApiKeys {
		keys[k.ApiKey] = k
	}
	return keys
}

// patchVersion sets the version in a frame's header.
func patchVersion(frame []byte, version int16) []byte {
	binary.BigEndian.PutUint16(frame[6:], uint16(version))
	return frame
}

func TestNewerApiVersionsThanKnown(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		c := wire.Dial(t, n.Addr)
		c.SendBytes(patchVersion(wire.Frame(apiVersionsRequest(3), 77), 99))
		frame, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		want(t, "correlation id", binary.BigEndian.Uint32(frame), 77)
		resp := kmsg.NewPtrApiVersionsResponse() // version 0, no tags in the header
		if err := resp.ReadFrom(frame[4:]); err != nil {
			t.Fatal(err)
		}
		wantCode(t, "v99", resp.ErrorCode, kerr.UnsupportedVersion)
		again, ok := c.Request(apiVersionsRequest(3)).(*kmsg.ApiVersionsResponse)
		if !ok || len(again.ApiKeys) < 20 {
			t.Errorf("asking again on the same connection: %+v", again)
		}
	})
}

func TestFallbackListsKey18(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		c := wire.Dial(t, n.Addr)
		c.SendBytes(patchVersion(wire.Frame(apiVersionsRequest(3), 5), 6))
		frame, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		// correlation id, error 35, one entry: 18, 0, 5; nothing after it.
		want(t, "the answer", string(frame), "\x00\x00\x00\x05\x00\x23\x00\x00\x00\x01\x00\x12\x00\x00\x00\x05")
	})
}

func TestProduceRangeStartsAtZero(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		for v := range int16(6) {
			produce := apiVersions(t, n, v)[0]
			want(t, "minimum", produce.MinVersion, 0)
			want(t, "maximum", produce.MaxVersion, 13)
		}
	})
}

func TestUnknownKeyOrRemovedVersionCloses(t *testing.T) {
	removed := map[string]kmsg.Request{
		"Produce v0":       wire.At(kmsg.NewPtrProduceRequest(), 0),
		"Produce v2":       wire.At(kmsg.NewPtrProduceRequest(), 2),
		"Fetch v3":         wire.At(kmsg.NewPtrFetchRequest(), 3),
		"OffsetFetch v0":   wire.At(kmsg.NewPtrOffsetFetchRequest(), 0),
		"CreateTopics v1":  wire.At(kmsg.NewPtrCreateTopicsRequest(), 1),
		"LeaderAndIsr v0":  wire.At(kmsg.NewPtrLeaderAndISRRequest(), 0),
		"Vote v0":          wire.At(kmsg.NewPtrVoteRequest(), 0),
		"BrokerHeartbeat0": wire.At(kmsg.NewPtrBrokerHeartbeatRequest(), 0),
	}
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		neighbor := wire.Dial(t, n.Addr)
		for name, req := range removed {
			t.Run(name, func(t *testing.T) {
				c := wire.Dial(t, n.Addr)
				c.Send(req)
				c.ExpectClosed()
			})
		}
		metadata := kmsg.NewPtrMetadataRequest()
		for name, patch := range map[string]func([]byte) []byte{
			"Metadata v14": func(b []byte) []byte { return patchVersion(b, 14) },
			"key 999":      func(b []byte) []byte { binary.BigEndian.PutUint16(b[4:], 999); return b },
			"key -1":       func(b []byte) []byte { binary.BigEndian.PutUint16(b[4:], 0xffff); return b },
		} {
			t.Run(name, func(t *testing.T) {
				c := wire.Dial(t, n.Addr)
				c.SendBytes(patch(wire.Frame(metadata, 1)))
				c.ExpectClosed()
			})
		}
		neighbor.Request(wire.At(kmsg.NewPtrMetadataRequest(), 12))
	})
}

func TestTelemetryNotListed(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		keys := apiVersions(t, n, 4)
		for _, key := range []int16{71, 72} {
			if _, listed := keys[key]; listed {
				t.Errorf("key %d is listed", key)
			}
		}
	})
}

func TestListOffsetsStartsAtOne(t *testing.T) {
	harness.OnBoth(t, func(t *testing.T, n *harness.Node) {
		want(t, "minimum", apiVersions(t, n, 4)[2].MinVersion, 1)
		req := wire.At(kmsg.NewPtrListOffsetsRequest(), 0)
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic = "any"
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Timestamp, rp.MaxNumOffsets = -1, 10
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		c := wire.Dial(t, n.Addr)
		c.Send(req)
		c.ExpectClosed()
	})
}
