package network

import (
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// The poller's bounds.
const (
	// minEvents is how many connections a worker takes at once. What it takes waits
	// for those before it, so it is little. As long as it always gets so many and no
	// other worker is free, there is more than the workers can do, and it takes twice
	// as many, up to maxEvents, to serve together what can be (see gather.go).
	minEvents = 8
	maxEvents = 64
	// yieldInterval is how often a worker lets other goroutines have its processor.
	// It is less than the 10 ms after which Go's scheduler takes that away from a
	// goroutine which is always in a system call, and then looks for others like it
	// every 20 us for a while.
	yieldInterval = 2 * time.Millisecond
	// alertTime is how long a worker waits in the system call before it looks around.
	// It is less than the 10 ms too.
	alertTime = 2 * time.Millisecond
	// maxAlert is how many workers wait there when less than all are needed: one gets
	// the events (the system prefers who came last), the other is there for what
	// comes meanwhile, and is the guard.
	maxAlert = 2
)

// poller waits for the sockets of all connections and serves those that have
// something, on few goroutines, its workers. A worker waits in the system call
// itself: while it does, and when it goes on, no other thread is woken, neither
// Go's network poller nor its scheduler has a part in it. That halves what a
// request costs when there are few at a time.
//
// There are as many workers as processors but one, which is left for what else
// runs. When little happens they rest (see rest.go). Handlers are expected to
// return soon. One that does not (a slow disk) holds up nobody but its own
// connection for longer than a few milliseconds (see guard.go).
//
// Sockets are watched edge-triggered: an event is a hint that something came
// since the last one, for a connection that takes turns (Conn.turn).
type poller struct {
	epfd   int
	stopfd int // an eventfd that all workers see
	taskfd int // one that wakes a worker for a task
	log    *slog.Logger
	ended  atomic.Bool // set under mu
	done   sync.WaitGroup

	sockets struct {
		sync.RWMutex

		byFD []*socket
	}

	// waiting is the number of workers that wait for events, serving that of those
	// that are at work. Who goes from one to the other is in both for a moment, who
	// rests is in neither. alert is the number of those that will soon look around.
	waiting, serving, alert atomic.Int32
	rest                    rest

	tasks struct {
		sync.Mutex

		queue  []*Task
		queued atomic.Int32 // len(queue)
		ended  bool
	}

	guard guard

	mu      sync.Mutex
	workers map[*worker]struct{} // guarded by mu
}

// worker is a goroutine that serves connections.
type worker struct {
	poller *poller
	// rescuer is one that was started for a stuck one; it ends when it is not needed.
	rescuer bool
	// serial changes with each connection that is served; it is odd while one is.
	serial atomic.Uint64
	// seen is the serial when somebody last looked. Guarded by poller.mu.
	seen uint64
	// served is what the worker saw when it last looked around, spare that it has
	// nothing to do and there is another one that is not stuck.
	served uint64
	spare  bool

	mu sync.Mutex
	// ready are the connections whose turn this worker has and that it has to look
	// at, gathered what they left to the end of the round. Guarded by mu, because who
	// finds the worker stuck takes them.
	ready    []*Conn
	gathered []gathered

	// leaving is what the connection that is served has left.
	leaving gathered
	// round is how many connections were ready when this round began.
	round int
	// together is what is served together, items what the handlers call it.
	together []gathered
	items    []any

	events    [maxEvents]unix.EpollEvent
	take      int // how many events at once, from minEvents to maxEvents
	yieldedAt time.Time
}

func newPoller(log *slog.Logger) (*poller, error) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	p := &poller{epfd: epfd, stopfd: -1, taskfd: -1, log: log, workers: map[*worker]struct{}{}}
	if p.stopfd, err = p.eventfd(unix.EPOLLIN); err == nil {
		p.taskfd, err = p.eventfd(unix.EPOLLIN | unix.EPOLLET)
	}
	if err == nil {
		err = p.rest.open(p.epfd)
	}
	if err != nil {
		p.closeAll()
		return nil, err
	}
	p.guard.timer = time.AfterFunc(time.Hour, p.look)
	p.guard.timer.Stop()
	for range max(runtime.GOMAXPROCS(0)-1, 1) {
		p.start(&worker{poller: p})
	}
	return p, nil
}

// eventfd returns a descriptor of which the workers hear when it is written to.
func (p *poller) eventfd(events uint32) (int, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return -1, err
	}
	return fd, unix.EpollCtl(p.epfd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

func (p *poller) closeAll() {
	p.rest.close()
	for _, fd := range []int{p.stopfd, p.taskfd, p.epfd} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// notify writes to an eventfd.
func (p *poller) notify(fd int) {
	if _, err := unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		p.log.Error("cannot wake the network's workers", slog.Any("error", err))
	}
}

// rouse wakes a worker.
func (p *poller) rouse() { p.notify(p.taskfd) }

// stop ends the workers. The connections have ended before.
func (p *poller) stop() {
	p.mu.Lock()
	again := p.ended.Swap(true)
	p.mu.Unlock()
	if again {
		return
	}
	p.guard.timer.Stop()
	p.notify(p.stopfd)
	close(p.rest.over)
	p.done.Wait()
	p.endTasks()
	p.closeAll()
}

func (p *poller) start(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended.Load() {
		return
	}
	p.workers[w] = struct{}{}
	p.serving.Add(1)
	p.done.Go(w.run)
}

// add begins to watch a socket.
func (p *poller) add(s *socket) error {
	p.sockets.Lock()
	for len(p.sockets.byFD) <= s.fd {
		p.sockets.byFD = append(p.sockets.byFD, nil)
	}
	p.sockets.byFD[s.fd] = s
	p.sockets.Unlock()
	return unix.EpollCtl(p.epfd, unix.EPOLL_CTL_ADD, s.fd, &unix.EpollEvent{
		Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(s.fd),
	})
}

// remove forgets a socket whose descriptor is about to be closed, with which the
// system forgets it too.
func (p *poller) remove(s *socket) {
	p.sockets.Lock()
	if s.fd < len(p.sockets.byFD) && p.sockets.byFD[s.fd] == s {
		p.sockets.byFD[s.fd] = nil
	}
	p.sockets.Unlock()
}

// run is a worker's goroutine.
func (w *worker) run() {
	p := w.poller
	defer func() {
		p.serving.Add(-1)
		p.mu.Lock()
		delete(p.workers, w)
		p.mu.Unlock()
		if p.tasks.queued.Load() > 0 && !p.ended.Load() {
			p.rouse() // it came when we were serving
		}
	}()
	for !p.ended.Load() {
		idle := w.queued() == 0
		if idle && w.rescuer && w.mayLeave() {
			return
		}
		w.round = w.poll(idle)
		if p.alert.Load() == 0 {
			p.watch()
		}
		w.runTasks()
		for range w.round {
			c := w.next()
			if c == nil {
				break
			}
			w.serial.Add(1)
			c.advance(w)
			w.serial.Add(1)
			w.runTasks()
		}
		w.serveGathered()
		w.yield()
	}
}

// poll waits for events, if there is nothing else to do, and returns how many
// connections are ready.
func (w *worker) poll(idle bool) int {
	var n int
	var err error
	if idle {
		n, err = w.await()
	} else {
		n, err = w.wait(0, 0)
	}
	if err != nil && !errors.Is(err, unix.EINTR) {
		w.poller.log.Error("cannot wait for the network", slog.Any("error", err))
		<-time.After(acceptRetryDelay)
	}
	return w.claim(max(n, 0))
}

// await waits for events or tasks.
func (w *worker) await() (n int, err error) {
	p := w.poller
	p.waiting.Add(1)
	p.serving.Add(-1)
	p.alert.Add(1)
	if p.tasks.queued.Load() == 0 { // see schedule
		n, err = w.wait(alertTime, 1)
	}
	p.alert.Add(-1)
	came := n > 0
	if n == 0 && err == nil && p.tasks.queued.Load() == 0 && !w.lookAround() {
		n, err = w.takeRest()
	}
	p.serving.Add(1)
	p.waiting.Add(-1)
	if came && p.waiting.Load() == 0 {
		p.rest.wake() // so that the next event finds a worker
	}
	return n, err
}

// wait is the system call; self is 1 when we are among those that wait. While another
// worker has nothing to do, that one should have what is more than a little.
func (w *worker) wait(atMost time.Duration, self int32) (n int, err error) {
	p := w.poller
	if p.waiting.Load()+p.rest.asleep.Load() > self {
		w.take = minEvents
	}
	w.take = max(w.take, minEvents)
	n, err = unix.EpollWait(p.epfd, w.events[:w.take], int(atMost/time.Millisecond))
	switch {
	case n == w.take:
		w.take = min(2*w.take, maxEvents)
	case n <= w.take/2:
		w.take /= 2
	}
	return n, err
}

// claim takes the turns of the connections of which the events are.
func (w *worker) claim(n int) int {
	p := w.poller
	w.mu.Lock()
	defer w.mu.Unlock()
	p.sockets.RLock()
	defer p.sockets.RUnlock()
	for i := range n {
		e := &w.events[i]
		if int(e.Fd) >= len(p.sockets.byFD) { // an eventfd may be
			continue
		}
		if s := p.sockets.byFD[e.Fd]; s != nil && s.happened(e.Events) {
			w.ready = append(w.ready, s.conn)
		}
	}
	return len(w.ready)
}

// happened tells the socket of an event; true gives the caller the connection's
// turn.
func (s *socket) happened(events uint32) bool {
	const ends = unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
	if events&ends != 0 {
		s.hungUp.Store(true)
	}
	if events&(unix.EPOLLOUT|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		signal(s.writable)
	}
	if events&(unix.EPOLLIN|ends) == 0 {
		return false
	}
	if s.conn.takeTurn() {
		return true
	}
	signal(s.readable)
	return false
}

// queued is how much the worker has to look at or to serve.
func (w *worker) queued() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.ready) + len(w.gathered)
}

// next takes the first connection; nil when they have been given to another worker.
func (w *worker) next() *Conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.ready) == 0 {
		return nil
	}
	c := w.ready[0]
	n := copy(w.ready, w.ready[1:])
	w.ready[n] = nil
	w.ready = w.ready[:n]
	return c
}

// requeue lets the others go first.
func (w *worker) requeue(c *Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ready = append(w.ready, c)
}

func (w *worker) yield() {
	if now := time.Now(); now.Sub(w.yieldedAt) > yieldInterval {
		w.yieldedAt = now
		runtime.Gosched()
	}
}
