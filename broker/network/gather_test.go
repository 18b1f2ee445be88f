package network

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// gathering leaves requests to the end of the round, by the first word of their body, and echoes.
type gathering struct {
	t    *testing.T
	then func(key string) // before a group is answered
	most atomic.Int64     // requests served at once
}

func (g *gathering) Serve(_ context.Context, r *Request) {
	key, _, _ := strings.Cut(string(r.Body), " ")
	if key == "alone" || !r.Gather(g, key, r) {
		r.Reply(BytesResponse(answer(r, r.Body)))
	}
}

func (g *gathering) ServeGathered(items []any) {
	first := ""
	for i, x := range items {
		r, _ := x.(*Request)
		key, _, _ := strings.Cut(string(r.Body), " ")
		if i == 0 {
			first = key
			g.then(key)
		} else if key != first {
			g.t.Errorf("%q is served with %q", key, first)
		}
		r.Reply(BytesResponse(answer(r, r.Body)))
	}
	g.most.Store(max(g.most.Load(), int64(len(items)))) // a lost update only loses a larger number
}

// burst has all clients send at once, each its own body.
func burst(clients []*testClient, id int32, body func(i int) string) {
	for i, c := range clients {
		c.send(request(id, []byte(body(i))))
	}
}

func TestRequestsOfARoundAreServedTogetherByKey(t *testing.T) {
	g := &gathering{t: t, then: func(string) {}}
	s := startServerAs(t, Options{Handler: g}, ListenerOptions{}, true)
	clients := make([]*testClient, 8*minGatherRound)
	for i := range clients {
		clients[i] = s.dial(t)
	}
	body := func(i int) string { return []string{"a 1", "b 22", "alone 333", "c"}[i%4] }
	id := int32(0)
	eventually(t, "several requests are served together", func() bool {
		for range 20 {
			id++
			burst(clients, id, body)
			for i, c := range clients {
				c.expect(id, []byte(body(i)))
			}
		}
		return g.most.Load() > 1
	})
}

func TestWhatIsGatheredBehindAGroupThatDoesNotReturnIsServedByAnotherWorker(t *testing.T) {
	entered, opened := make(chan struct{}, 1), make(chan struct{})
	g := &gathering{t: t, then: func(key string) {
		if key == "stay" {
			entered <- struct{}{}
			<-opened
		}
	}}
	s := startServerAs(t, Options{Handler: g}, ListenerOptions{}, true)
	clients := make([]*testClient, 8*minGatherRound)
	for i := range clients {
		clients[i] = s.dial(t)
	}
	// One stays, and it comes before the others of its round.
	body := func(i int) string {
		if i == 0 {
			return "stay"
		}
		return []string{"a", "b", "c"}[i%3]
	}
	for id := int32(1); ; id++ {
		burst(clients, id, body)
		for i, c := range clients[1:] {
			c.expect(id, []byte(body(i+1)))
		}
		stays := make(chan struct{})
		go func() {
			defer close(stays)
			clients[0].expect(id, []byte("stay"))
		}()
		select {
		case <-stays: // it was served as any other
			continue
		case <-entered:
		}
		// Nothing else of its connection is served meanwhile.
		clients[0].send(request(id+1, []byte("alone later")))
		burst(clients[1:], id+1, func(int) string { return "alone others" })
		for _, c := range clients[1:] {
			c.expect(id+1, []byte("alone others"))
		}
		select {
		case <-stays:
			t.Error("a request was answered before its group was served")
		default:
		}
		close(opened)
		<-stays
		clients[0].expect(id+1, []byte("alone later"))
		return
	}
}

func TestAPanicAmongGatheredRequestsEndsTheirConnectionsOnly(t *testing.T) {
	g := &gathering{t: t, then: func(key string) {
		if key == "panic" {
			panic("on purpose")
		}
	}}
	s := startServerAs(t, Options{Handler: g}, ListenerOptions{}, true)
	eventually(t, "a gathered request panics", func() bool {
		clients := make([]*testClient, 4*minGatherRound)
		for i := range clients {
			clients[i] = s.dial(t)
		}
		body := func(i int) string { return []string{"panic", "go"}[i%2] }
		burst(clients, 1, body)
		panicked := false
		for i, c := range clients {
			if i%2 == 1 {
				c.expect(1, []byte("go"))
			} else if _, _, err := readAnswer(c); err != nil {
				panicked = true
			}
		}
		for i, c := range clients {
			if i%2 == 1 {
				c.send(request(2, []byte("alone")))
				c.expect(2, []byte("alone"))
			}
			c.Close()
		}
		return panicked
	})
	if s.Metrics().Panics.Load() == 0 {
		t.Error("the panic was not counted")
	}
}

// slowGathering gathers and then takes so long that the worker is taken for stuck.
type slowGathering struct {
	t        *testing.T
	gathered atomic.Int64
}

type slowItem struct {
	request  *Request
	returned bool // from Serve; no other synchronization than the network's
}

func (g *slowGathering) Serve(_ context.Context, r *Request) {
	item := &slowItem{request: r}
	if !r.Gather(g, "key", item) {
		r.Reply(BytesResponse(answer(r, r.Body)))
		return
	}
	if g.gathered.Add(1)%4 == 1 {
		<-time.After(3 * alertTime)
	}
	item.returned = true
}

func (g *slowGathering) ServeGathered(items []any) {
	for _, x := range items {
		item, _ := x.(*slowItem)
		if !item.returned {
			g.t.Error("a request is served while its handler still leaves it")
		}
		item.request.Reply(BytesResponse(answer(item.request, item.request.Body)))
	}
}

func TestWhatIsLeftIsNotServedBeforeItsHandlerHasReturned(t *testing.T) {
	g := &slowGathering{t: t}
	s := startServerAs(t, Options{Handler: g}, ListenerOptions{}, true)
	clients := make([]*testClient, 4*minGatherRound)
	for i := range clients {
		clients[i] = s.dial(t)
	}
	id := int32(0)
	eventually(t, "enough is gathered", func() bool {
		id++
		burst(clients, id, func(int) string { return "x" })
		for _, c := range clients {
			c.expect(id, []byte("x"))
		}
		return g.gathered.Load() > 100
	})
}
