package kraft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/controller"
	"gregor/protocol"
	"gregor/protocol/wire"
)

// Error codes of Envelope itself.
const (
	codeUnsupportedVersion       int16 = 35
	codeNotController            int16 = 41
	codePrincipalDeserialization int16 = 97
)

// errEnvelope says that the request in an envelope is not one.
var errEnvelope = errors.New("invalid enveloped request")

// handleEnvelope answers Envelope (58) v0: a request that a broker forwards for a client (KIP-590). The answer holds
// the response with its header, as the client will get it.
func (n *Node) handleEnvelope(ctx context.Context, rc *RequestContext, req kmsg.Request) kmsg.Response {
	r := req.(*kmsg.EnvelopeRequest)
	resp := r.ResponseKind().(*kmsg.EnvelopeResponse)
	if !rc.allowed(opClusterAction) {
		resp.ErrorCode = controller.Unauthorized().Code
		return resp
	}
	hdr, inner, err := openEnvelope(r.RequestData)
	if err != nil {
		n.o.Logger.Warn("controller: envelope refused", "error", err)
		resp.ErrorCode = codeInvalidRequest
		if errors.Is(err, protocol.ErrUnsupportedVersion) {
			resp.ErrorCode = codeUnsupportedVersion
		}
		return resp
	}
	principal, err := parsePrincipal(r.RequestPrincipal)
	if err != nil {
		n.o.Logger.Warn("controller: envelope refused", "error", err)
		resp.ErrorCode = codePrincipalDeserialization
		return resp
	}
	addr, ok := netip.AddrFromSlice(r.ClientHostAddress)
	if !ok {
		resp.ErrorCode = codeInvalidRequest
		return resp
	}
	client := &RequestContext{
		Principal: principal, ClientID: hdr.ClientID, Listener: rc.Listener, ClientAddr: addr, Forwarded: true,
	}
	if o := n.o.Controller; o != nil && o.Access != nil {
		o.Access(client, hdr.Key, hdr.Version)
	}
	h, ok := handlers[hdr.Key]
	if !ok {
		resp.ErrorCode = codeInvalidRequest
		return resp
	}
	answer := h(n, ctx, client, inner)
	if n.server == nil || refusedAsNotController(answer) {
		resp.ErrorCode = codeNotController
		return resp
	}
	const sizePrefixBytes = 4
	resp.ResponseData = protocol.AppendResponse(nil, hdr, answer)[sizePrefixBytes:]
	return resp
}

// openEnvelope reads the forwarded request: header and body as the client sent them.
func openEnvelope(data []byte) (protocol.RequestHeader, kmsg.Request, error) {
	hdr, body, err := protocol.ParseRequest(data)
	if err != nil {
		return hdr, nil, fmt.Errorf("%w: %w", errEnvelope, err)
	}
	if api, ok := protocol.APIByKey(hdr.Key); !ok || !api.Forwardable {
		return hdr, nil, fmt.Errorf("%w: API key %d is not one that is forwarded", errEnvelope, hdr.Key)
	}
	req, err := protocol.DecodeRequest(hdr, body)
	if err != nil {
		return hdr, nil, fmt.Errorf("%w: %w", errEnvelope, err)
	}
	return hdr, req, nil
}

// parsePrincipal reads DefaultPrincipalData (kafka-4.4/records/client-protocols.txt): int16 version 0, type, name,
// whether it was authenticated with a delegation token.
func parsePrincipal(b []byte) (string, error) {
	if len(b) < 2 {
		return "", fmt.Errorf("%w: no principal", errEnvelope)
	}
	if v := int16(binary.BigEndian.Uint16(b)); v != 0 {
		return "", fmt.Errorf("%w: principal of version %d", errEnvelope, v)
	}
	r := wire.NewReader(b[2:])
	kind, name := r.String(true), r.String(true)
	r.Bool()
	if err := r.Err(); err != nil {
		return "", fmt.Errorf("%w: principal: %w", errEnvelope, err)
	}
	return kind + ":" + name, nil
}

// refusedAsNotController says whether a response tells that this is not the active controller: the broker then looks
// for it, the client need not know.
func refusedAsNotController(resp kmsg.Response) bool {
	return slices.Contains(controller.ErrorCodes(resp), codeNotController)
}
