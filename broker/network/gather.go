package network

import "slices"

// minGatherRound is how many connections a worker has to have taken in a round for
// requests to be gathered: among few there is seldom one to share work with, and
// whoever came first would wait for the others all the same.
const minGatherRound = 8

// Gatherer serves requests together: what many connections ask for at the same time
// may cost less at once than one after the other, as appends to one log do.
type Gatherer interface {
	// ServeGathered serves what was gathered with one key, in the order in which it
	// came. It is like Handler.Serve: it should return soon, and has every request
	// answered once.
	ServeGathered(items []any)
}

// gathered is a request that waits for the end of the round.
type gathered struct {
	request *Request
	by      Gatherer
	key     any
	item    any
}

// Gather leaves the request to by.ServeGathered, which gets item together with those
// of other requests that have an equal key, which is of a comparable type. It runs
// once the worker has looked at all connections that it took in this round; until
// then nothing else of the connection is served. It is called in Serve, at most once.
// False: there is not enough to gather, and the request is served as any other.
func (r *Request) Gather(by Gatherer, key, item any) bool {
	c := r.Conn
	w := c.worker
	if w == nil || w.round < minGatherRound || c.in.hasFrame() {
		return false
	}
	w.leaving = gathered{request: r, by: by, key: key, item: item}
	c.gathered = true
	return true
}

// leave puts what Gather was given to the rest. From then on another worker may serve it
// and go on with the connection, so it is the last thing that is done in the turn.
func (w *worker) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gathered = append(w.gathered, w.leaving)
	w.leaving = gathered{}
}

// serveGathered ends a round.
func (w *worker) serveGathered() {
	w.round = 0 // what the connections have next is not gathered
	for w.takeGathered() {
		w.serial.Add(1)
		w.serveTogether()
		w.serial.Add(1)
		for _, g := range w.together {
			w.serial.Add(1)
			g.request.Conn.advance(w)
			w.serial.Add(1)
		}
	}
	clear(w.together)
	clear(w.items)
}

// takeGathered takes the first request and all with the same key; false if there is none,
// or they have been given to another worker.
func (w *worker) takeGathered() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.together, w.items = w.together[:0], w.items[:0]
	if len(w.gathered) == 0 {
		return false
	}
	by, key := w.gathered[0].by, w.gathered[0].key
	w.gathered = slices.DeleteFunc(w.gathered, func(g gathered) bool {
		if g.by != by || g.key != key {
			return false
		}
		w.together, w.items = append(w.together, g), append(w.items, g.item)
		return true
	})
	return true
}

// serveTogether serves what was taken. A panic is handled as one in Serve, for each of
// the requests.
func (w *worker) serveTogether() {
	defer func() {
		if p := recover(); p != nil {
			for _, g := range w.together {
				_ = g.request.Conn.panicked(g.request, p) // it is the cause of the connection's end
			}
		}
	}()
	w.together[0].by.ServeGathered(w.items)
}
