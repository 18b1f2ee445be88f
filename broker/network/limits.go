package network

import (
	"math"
	"net/netip"
	"sync"
	"time"
)

// Limits bounds the connections of all listeners together. Zero means none,
// except where it is said otherwise.
type Limits struct {
	// MaxConnections is max.connections: more of them wait to be accepted.
	MaxConnections int
	// MaxConnectionsPerIP is max.connections.per.ip: more are closed at once.
	// Zero is a bound of zero when there are overrides, else none.
	MaxConnectionsPerIP int
	// MaxConnectionsPerIPOverrides is max.connections.per.ip.overrides.
	MaxConnectionsPerIPOverrides map[netip.Addr]int
	// MaxConnectionsPerSecond is max.connection.creation.rate.
	MaxConnectionsPerSecond int
}

// ListenerLimits are the same for one listener.
type ListenerLimits struct {
	MaxConnections          int
	MaxConnectionsPerSecond int
}

func (l *Limits) perIP(addr netip.Addr) int {
	if n, ok := l.MaxConnectionsPerIPOverrides[addr]; ok {
		return n
	}
	if l.MaxConnectionsPerIP > 0 || len(l.MaxConnectionsPerIPOverrides) > 0 {
		return l.MaxConnectionsPerIP
	}
	return math.MaxInt
}

// quotas counts connections. The counts include those that are accepted and
// wait for their slot.
type quotas struct {
	mu      sync.Mutex
	changed sync.Cond
	limits  Limits
	rate    tokenBucket
	stopped bool
	total   int
	perIP   map[netip.Addr]int
}

// listenerQuota is the part of one listener, guarded by quotas.mu.
type listenerQuota struct {
	limits    ListenerLimits
	protected bool
	rate      tokenBucket
	open      int
}

func newQuotas(limits Limits) *quotas {
	q := &quotas{limits: limits, perIP: map[netip.Addr]int{}}
	q.changed.L = &q.mu
	return q
}

// admission is what quotas says to a new connection.
type admission int

const (
	admitted admission = iota
	admittedOverLimit
	refusedPerIP
	refusedStopped
)

// enter counts a new connection. It blocks while its listener or the server is
// full. A protected listener (the one between brokers) is not held up by the
// connections of the others: admittedOverLimit asks to close one of those.
func (q *quotas) enter(l *listenerQuota, addr netip.Addr, waits func()) admission {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.perIP[addr] >= q.limits.perIP(addr) {
		return refusedPerIP
	}
	for waited := false; !q.stopped && (q.full(l) || over(l.open, l.limits.MaxConnections)); {
		if !waited {
			waits()
			waited = true
		}
		q.changed.Wait()
	}
	if q.stopped {
		return refusedStopped
	}
	q.total++
	q.perIP[addr]++
	l.open++
	if q.limits.MaxConnections > 0 && q.total > q.limits.MaxConnections {
		return admittedOverLimit
	}
	return admitted
}

func (q *quotas) full(l *listenerQuota) bool {
	return !l.protected && over(q.total, q.limits.MaxConnections)
}

// over reports whether one more than n is too many.
func over(n, limit int) bool { return limit > 0 && n >= limit }

func (q *quotas) leave(l *listenerQuota, addr netip.Addr) {
	q.mu.Lock()
	q.total--
	l.open--
	if q.perIP[addr]--; q.perIP[addr] == 0 {
		delete(q.perIP, addr)
	}
	q.mu.Unlock()
	q.changed.Broadcast()
}

// delay takes a connection from the rates and returns how long it has to wait.
func (q *quotas) delay(l *listenerQuota, now time.Time) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return max(
		q.rate.take(now, q.limits.MaxConnectionsPerSecond),
		l.rate.take(now, l.limits.MaxConnectionsPerSecond),
	)
}

func (q *quotas) stop() {
	q.mu.Lock()
	q.stopped = true
	q.mu.Unlock()
	q.changed.Broadcast()
}

// tokenBucket holds a second's worth of tokens; what is taken beyond is a debt
// that has to be waited for.
type tokenBucket struct {
	tokens float64
	filled time.Time
}

func (t *tokenBucket) take(now time.Time, perSecond int) time.Duration {
	if perSecond <= 0 {
		return 0
	}
	rate := float64(perSecond)
	if t.filled.IsZero() {
		t.tokens = rate
	} else {
		t.tokens = min(rate, t.tokens+now.Sub(t.filled).Seconds()*rate)
	}
	t.filled = now
	t.tokens--
	if t.tokens >= 0 {
		return 0
	}
	return time.Duration(-t.tokens / rate * float64(time.Second))
}
