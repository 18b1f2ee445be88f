package api

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/broker/network"
	"gregor/protocol"
)

// begun is a request whose answer a test gives.
type begun struct {
	name  string
	reply func()
}

// startedNode serves Heartbeat, whose answers the test gives, ListGroups, which runs on a goroutine of its own,
// FindCoordinator, which does not wait, and DeleteGroups, whose answer cannot be encoded.
type startedNode struct {
	hotNode
	server *Server
	begun  chan begun
	ran    chan string
}

// unencodable is an answer that panics.
type unencodable struct{ kmsg.DeleteGroupsResponse }

func (*unencodable) AppendTo([]byte) []byte { panic("as asked") }

func newStartedNode(t *testing.T) *startedNode {
	n := &startedNode{begun: make(chan begun, 10), ran: make(chan string, 10)}
	start := func(c *Call, reply Reply) {
		req := c.Request.(*kmsg.HeartbeatRequest)
		resp := req.ResponseKind()
		if strings.HasPrefix(req.Group, "at once") {
			n.ran <- req.Group
			reply(resp)
			return
		}
		n.begun <- begun{req.Group, func() { reply(resp) }}
	}
	handle := func(_ context.Context, c *Call) kmsg.Response {
		n.ran <- kmsg.NameForKey(c.Header.Key)
		return c.Request.ResponseKind()
	}
	table := newTable([]Entry{
		parking(protocol.KeyHeartbeat, start),
		waiting(protocol.KeyListGroups, handle),
		on(protocol.KeyFindCoordinator, handle),
		starting(protocol.KeyDeleteGroups, func(_ *Call, reply Reply) { go reply(&unencodable{}) }),
	})
	log := slog.New(slog.DiscardHandler)
	n.server = NewServer(table, false, log)
	s := network.NewServer(network.Options{Handler: n.server, Logger: log, LingerTimeout: 100 * time.Millisecond})
	listener, err := s.Listen(network.ListenerOptions{Name: "PLAINTEXT", Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	n.addr = listener.Addr().String()
	return n
}

func heartbeatOf(group string) []byte {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group = group
	return hotFrame(req)
}

func (c *hotClient) send(frames ...[]byte) {
	c.tb.Helper()
	var all []byte
	for _, f := range frames {
		all = append(all, f...)
	}
	if _, err := c.Write(all); err != nil {
		c.tb.Fatal(err)
	}
}

// quiet fails when a request runs that should wait.
func (n *startedNode) quiet(t *testing.T) {
	t.Helper()
	select {
	case b := <-n.begun:
		t.Fatalf("%s has begun", b.name)
	case name := <-n.ran:
		t.Fatalf("%s ran", name)
	case <-time.After(20 * time.Millisecond):
	}
}

// idle waits until the server has nothing of any connection under way.
func (n *startedNode) idle(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		left := 0
		n.server.queues.conns.Range(func(any, any) bool { left++; return true })
		if left == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are never idle", left)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestRequestsOfAConnectionRunInTheirOrder(t *testing.T) {
	n := newStartedNode(t)
	c := n.dial(t)
	find, list := kmsg.NewPtrFindCoordinatorRequest(), kmsg.NewPtrListGroupsRequest()
	c.send(heartbeatOf("1"), hotFrame(find), heartbeatOf("at once 3"), heartbeatOf("4"), hotFrame(list), heartbeatOf("6"))
	first := <-n.begun
	n.quiet(t)
	other := n.dial(t) // does not wait for another connection
	other.roundTrip(heartbeatOf("at once"))
	<-n.ran
	first.reply()
	if got := []string{<-n.ran, <-n.ran}; fmt.Sprint(got) != "[FindCoordinator at once 3]" {
		t.Fatalf("after the first answer %v ran", got)
	}
	fourth := <-n.begun
	n.quiet(t)
	fourth.reply()
	if got := <-n.ran; got != "ListGroups" {
		t.Fatalf("then %s ran", got)
	}
	(<-n.begun).reply()
	for range 6 {
		c.receive()
	}
	n.idle(t)
}

func TestRequestsThatAreAnsweredAtOnceLeaveNothingBehind(t *testing.T) {
	n := newStartedNode(t)
	c := n.dial(t)
	var answers sync.WaitGroup
	for i := range 2000 {
		c.send(heartbeatOf(strconv.Itoa(i)))
		b := <-n.begun
		if b.name != strconv.Itoa(i) {
			t.Fatalf("%s has begun as number %d", b.name, i)
		}
		answers.Go(b.reply) // while Serve finds out that it has to wait
		c.receive()
	}
	answers.Wait()
	n.idle(t)
}

func TestARequestEndsWithItsConnection(t *testing.T) {
	n := newStartedNode(t)
	c := n.dial(t)
	c.send(heartbeatOf("1"), heartbeatOf("2"))
	first := <-n.begun
	n.quiet(t)
	reset(t, c)
	second := <-n.begun // as if the first were answered
	n.idle(t)
	first.reply() // nobody wants to know
	second.reply()
	n.idle(t)
}

// reset closes a connection so that the peer cannot write to it any more.
func reset(t *testing.T, c *hotClient) {
	t.Helper()
	if err := c.Conn.(interface{ SetLinger(int) error }).SetLinger(0); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAPanicOfAnAnswerClosesOnlyItsConnection(t *testing.T) {
	n := newStartedNode(t)
	c := n.dial(t)
	c.send(hotFrame(kmsg.NewPtrDeleteGroupsRequest()))
	if _, err := c.in.ReadByte(); err == nil {
		t.Error("an answer that cannot be encoded was sent")
	}
	n.dial(t).roundTrip(heartbeatOf("at once"))
	n.idle(t)
}
