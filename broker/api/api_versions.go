package api

import (
	"context"
	"regexp"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/metadata"
	"gregor/protocol"
)

// ApiVersions (key 18), versions 0 to 5, on every listener and before authentication.
//
//	3 software name and version (KIP-511), features (KIP-584)
//	4 features whose minimum is 0     5 cluster id and node id of the node that the client means (KIP-1242)
//
// An unknown version is answered in version 0 with UNSUPPORTED_VERSION and the one entry for key 18, so that the
// client can ask again; the connection stays. INVALID_REQUEST for a software name that is none, or only one of
// cluster id and node id; REBOOTSTRAP_REQUIRED when they are not this node's (on the broker listener).
type apiVersions struct {
	node  Node
	table func() *Table
}

// software is what a client may call itself (KIP-511).
var software = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?$`)

func (h *apiVersions) onBroker(_ context.Context, c *Call) kmsg.Response { return h.answer(c, false) }

func (h *apiVersions) onController(_ context.Context, c *Call) kmsg.Response {
	return h.answer(c, true)
}

func (h *apiVersions) answer(c *Call, controller bool) kmsg.Response {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.SetVersion(c.Header.Version)
	resp.FinalizedFeaturesEpoch = -1
	if c.Header.UnsupportedApiVersions() {
		resp.SetVersion(0)
		resp.ErrorCode = kerr.UnsupportedVersion.Code
		resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{versionRange(protocol.KeyApiVersions)}
		return resp
	}
	req, _ := c.Request.(*kmsg.ApiVersionsRequest)
	if resp.ErrorCode = h.check(req, controller); resp.ErrorCode != 0 {
		return resp
	}
	if req.Version >= 3 {
		c.Conn.SetClientSoftware(req.ClientSoftwareName, req.ClientSoftwareVersion)
	}
	for _, e := range h.table().Entries() {
		if !e.Private && h.table().Lookup(e.Key, controller) != nil {
			resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: e.Key, MinVersion: e.AdvertisedMin, MaxVersion: e.MaxVersion})
		}
	}
	h.features(resp)
	return resp
}

// versionRange is the entry of one API.
func versionRange(key int16) kmsg.ApiVersionsResponseApiKey {
	a, _ := protocol.APIByKey(key)
	return kmsg.ApiVersionsResponseApiKey{ApiKey: key, MinVersion: a.AdvertisedMin, MaxVersion: a.MaxVersion}
}

// check returns the error code of the request as a whole.
func (h *apiVersions) check(req *kmsg.ApiVersionsRequest, controller bool) int16 {
	if req.Version >= 3 && (!software.MatchString(req.ClientSoftwareName) || !software.MatchString(req.ClientSoftwareVersion)) {
		return kerr.InvalidRequest.Code
	}
	if req.Version < 5 || controller {
		return 0
	}
	switch {
	case (req.ClusterID == nil) != (req.NodeID == -1):
		return kerr.InvalidRequest.Code
	case req.ClusterID != nil && (*req.ClusterID != h.node.ClusterID || req.NodeID != h.node.ID):
		return kerr.RebootstrapRequired.Code
	}
	return 0
}

// features fills the tagged fields of version 3 and above: the levels that this node supports and those that
// the cluster has finalized.
func (h *apiVersions) features(resp *kmsg.ApiVersionsResponse) {
	if resp.Version < 3 {
		return
	}
	for _, f := range metadata.SupportedFeatures() {
		if resp.Version < 4 && f.Min == 0 {
			continue // clients of version 3 take a minimum of 0 for a mistake
		}
		resp.SupportedFeatures = append(resp.SupportedFeatures, kmsg.ApiVersionsResponseSupportedFeature{Name: f.Name, MinVersion: f.Min, MaxVersion: f.Max})
	}
	img := h.node.Images.Image()
	for name, level := range img.Features.All() {
		resp.FinalizedFeatures = append(resp.FinalizedFeatures, kmsg.ApiVersionsResponseFinalizedFeature{Name: name, MinVersionLevel: level, MaxVersionLevel: level})
	}
	if v := h.node.KRaftVersion(); v > 0 {
		resp.FinalizedFeatures = append(resp.FinalizedFeatures, kmsg.ApiVersionsResponseFinalizedFeature{Name: "kraft.version", MinVersionLevel: v, MaxVersionLevel: v})
	}
	slices.SortFunc(resp.FinalizedFeatures, func(a, b kmsg.ApiVersionsResponseFinalizedFeature) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	resp.FinalizedFeaturesEpoch = img.Provenance.Offset
}
