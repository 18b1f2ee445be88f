package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/broker/api"
	"gregor/broker/config"
	"gregor/broker/peer"
	"gregor/groupcoord/schema"
	"gregor/protocol"
)

// controllers talks to the active controller on this broker's behalf: Kafka's own RPCs over the controller
// listener, also when the controller is in this process.
type controllers struct {
	pool *peer.Pool
	// active is the controller that the quorum elected; false while there is none.
	active func() (peer.Endpoint, bool)
	// settle, if set, waits until this node has taken over what the controller has committed.
	settle func(ctx context.Context)
	cfg    func() *config.Config
	log    *slog.Logger

	mu       sync.Mutex
	creating map[string]bool // topics whose auto-creation is under way
}

// retryBackoff is the pause before the controller is asked again.
const retryBackoff = 20 * time.Millisecond

var errNoController = errors.New("no controller is active")

// timedOutError is REQUEST_TIMED_OUT with what was the matter.
type timedOutError struct{ last error }

func (e *timedOutError) Error() string {
	return "the controller did not answer in time: " + e.last.Error()
}

func (e *timedOutError) Unwrap() []error { return []error{kerr.RequestTimedOut, e.last} }

// do sends a request to the active controller until it gives an answer other than NOT_CONTROLLER, or ctx ends.
// refused tells whether an answer says that the node is no longer the controller.
func (c *controllers) do(ctx context.Context, req kmsg.Request, refused func(kmsg.Response) bool) (kmsg.Response, error) {
	last := errNoController
	for {
		if to, ok := c.active(); ok {
			resp, err := c.pool.Do(ctx, to, req)
			if err == nil && !refused(resp) {
				return resp, nil
			}
			if err != nil {
				last = err
			}
		}
		select {
		case <-time.After(retryBackoff):
		case <-ctx.Done():
			return nil, &timedOutError{last: last}
		}
	}
}

// Forward implements api.Controllers: the request travels in an Envelope, with who sent it and from where (KIP-590).
func (c *controllers) Forward(ctx context.Context, call *api.Call) kmsg.Response {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(c.cfg().Node.RequestTimeoutMillis)*time.Millisecond)
	defer cancel()
	p := call.Conn.Principal()
	env := kmsg.NewPtrEnvelopeRequest()
	env.RequestData = call.Request.AppendTo(protocol.AppendRequestHeader(nil, call.Header))
	principal, err := principalData(p.Type, p.Name, p.TokenAuthenticated)
	if err != nil {
		return errorAnswer(call.Request, err)
	}
	env.RequestPrincipal = principal
	env.ClientHostAddress = call.Conn.RemoteAddr().Addr().Unmap().AsSlice()
	answer, err := c.do(ctx, env, func(r kmsg.Response) bool {
		e, ok := r.(*kmsg.EnvelopeResponse)
		return ok && e.ErrorCode == kerr.NotController.Code
	})
	if err != nil {
		return errorAnswer(call.Request, err)
	}
	e, _ := answer.(*kmsg.EnvelopeResponse)
	if err := kerr.ErrorForCode(e.ErrorCode); err != nil {
		c.log.Error("controller refused a forwarded request", "api", protocol.APIName(call.Header.Key), "error", err)
		return errorAnswer(call.Request, kerr.UnknownServerError)
	}
	_, body, err := protocol.ParseResponse(call.Header.Key, call.Header.Version, e.ResponseData)
	resp := call.Request.ResponseKind()
	resp.SetVersion(call.Header.Version)
	if err == nil {
		err = resp.ReadFrom(body)
	}
	if err != nil {
		c.log.Error("answer to a forwarded request is malformed", "api", protocol.APIName(call.Header.Key), "error", err)
		return errorAnswer(call.Request, kerr.UnknownServerError)
	}
	if c.settle != nil && changesMetadata(call.Request) {
		c.settle(ctx)
	}
	return resp
}

// principalData encodes who sent a request, with the message's version in front, as Kafka does.
func principalData(kind, name string, token bool) ([]byte, error) {
	d := schema.NewDefaultPrincipalData()
	d.Type, d.Name, d.TokenAuthenticated = kind, name, token
	return d.Append(binary.BigEndian.AppendUint16(nil, 0), 0)
}

// AutoCreate implements api.Controllers.
func (c *controllers) AutoCreate(topics []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var start []string
	for _, t := range topics {
		if !c.creating[t] {
			c.creating[t] = true
			start = append(start, t)
		}
	}
	if len(start) > 0 {
		go c.create(start)
	}
}

// create asks the controller for topics. That one exists by now is no failure; others are logged: the clients ask
// for the topic again and again, and get no other word of it.
func (c *controllers) create(topics []string) {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, t := range topics {
			delete(c.creating, t)
		}
	}()
	cfg := c.cfg()
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(cfg.Node.RequestTimeoutMillis)*time.Millisecond)
	defer cancel()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.SetVersion(7)
	req.TimeoutMillis = cfg.Node.RequestTimeoutMillis
	for _, t := range topics {
		req.Topics = append(req.Topics, newTopic(cfg, t))
	}
	resp, err := c.do(ctx, req, func(r kmsg.Response) bool {
		x, ok := r.(*kmsg.CreateTopicsResponse)
		return ok && len(x.Topics) > 0 && x.Topics[0].ErrorCode == kerr.NotController.Code
	})
	if err != nil {
		c.log.Warn("cannot create topics that clients asked for", "topics", topics, "error", err)
		return
	}
	x, _ := resp.(*kmsg.CreateTopicsResponse)
	for _, t := range x.Topics {
		if t.ErrorCode != 0 && t.ErrorCode != kerr.TopicAlreadyExists.Code {
			why := ""
			if t.ErrorMessage != nil {
				why = *t.ErrorMessage
			}
			if t.ErrorCode == kerr.InvalidReplicationFactor.Code {
				why += " It is set by " + replicationFactorKey(t.Topic) + "."
			}
			c.log.Warn("cannot create a topic that a client asked for", "topic", t.Topic, "error", protocol.ErrorName(t.ErrorCode), "reason", why)
		}
	}
}

// replicationFactorKey is the key of server.properties that newTopic takes a topic's replication factor from.
func replicationFactorKey(topic string) string {
	if topic == consumerOffsets {
		return "offsets.topic.replication.factor"
	}
	return "default.replication.factor"
}

// newTopic is a topic with the defaults that this broker's server.properties has (those that it lacks are the active
// controller's to give), or with those that an internal topic needs.
func newTopic(cfg *config.Config, name string) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, -1, -1
	if _, ok := cfg.Static("num.partitions"); ok {
		t.NumPartitions = cfg.Topics.Partitions
	}
	if _, ok := cfg.Static("default.replication.factor"); ok {
		t.ReplicationFactor = int16(cfg.Topics.ReplicationFactor)
	}
	set := func(partitions int32, factor int16, configs ...string) {
		t.NumPartitions, t.ReplicationFactor = partitions, factor
		for i := 0; i < len(configs); i += 2 {
			x := kmsg.NewCreateTopicsRequestTopicConfig()
			x.Name, x.Value = configs[i], &configs[i+1]
			t.Configs = append(t.Configs, x)
		}
	}
	if name == consumerOffsets {
		set(cfg.Offsets.TopicPartitions, cfg.Offsets.TopicFactor,
			"cleanup.policy", "compact", "compression.type", "producer", "segment.bytes", strconv.Itoa(int(cfg.Offsets.TopicSegmentBytes)))
	}
	return t
}
