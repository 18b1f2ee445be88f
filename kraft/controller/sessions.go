package controller

import "time"

// Sessions track the brokers' heartbeats. They are not in the metadata log: a new active controller starts with the
// registrations and gives every broker a whole session. One goroutine owns them; a method that needs the time gets
// it as an argument.
type Sessions struct {
	timeout time.Duration
	brokers map[int32]*session
}

// session is what is known of one registered broker.
type session struct {
	epoch  int64
	fenced bool
	// contact is the time of the last heartbeat or registration under epoch; zero before the first.
	contact time.Time
	// metadataOffset is the offset that the broker says it has applied; -1 before its first heartbeat.
	metadataOffset int64
	// shutdownOffset is the metadata offset at which the broker entered controlled shutdown; -1 when it is not in it.
	// It may stop when all others have applied that offset, for then nobody takes it for a leader any more.
	shutdownOffset int64
}

// NewSessions makes an empty tracker with broker.session.timeout.ms.
func NewSessions(timeout time.Duration) *Sessions {
	return &Sessions{timeout: timeout, brokers: make(map[int32]*session)}
}

// Register follows a registration record, or a change of one: the broker exists under this epoch, fenced or not.
func (s *Sessions) Register(broker int32, epoch int64, fenced bool, now time.Time) {
	b := s.brokers[broker]
	if b == nil || b.epoch != epoch {
		b = &session{epoch: epoch, fenced: fenced, metadataOffset: -1, shutdownOffset: -1}
		s.brokers[broker] = b
		if !fenced {
			b.contact = now
		}
		return
	}
	b.fenced = fenced
	if fenced {
		b.shutdownOffset = -1
	} else if b.contact.IsZero() {
		b.contact = now
	}
}

// Unregister forgets a broker.
func (s *Sessions) Unregister(broker int32) { delete(s.brokers, broker) }

// Contact notes that a broker was heard of, before its heartbeat is decided: a busy controller must not expire the
// brokers whose heartbeats wait in its queue. One that is older than what is known changes nothing.
func (s *Sessions) Contact(broker int32, epoch int64, at time.Time) {
	if b := s.brokers[broker]; b != nil && b.epoch == epoch && at.After(b.contact) {
		b.contact = at
	}
}

// heartbeat notes the outcome of a decided heartbeat.
func (s *Sessions) heartbeat(broker int32, fenced bool, metadataOffset int64) {
	b := s.brokers[broker]
	if b == nil {
		return
	}
	b.fenced = fenced
	b.metadataOffset = metadataOffset
	if fenced {
		b.shutdownOffset = -1
	}
}

// enterShutdown notes the offset at which a broker entered controlled shutdown; later calls change nothing.
func (s *Sessions) enterShutdown(broker int32, offset int64) {
	if b := s.brokers[broker]; b != nil && !b.fenced && b.shutdownOffset < 0 {
		b.shutdownOffset = offset
	}
}

// end ends the session of a broker that may stop now: when it starts again it need not wait for the timeout, as it
// does with Kafka's controller.
func (s *Sessions) end(broker int32) {
	if b := s.brokers[broker]; b != nil {
		b.contact = time.Time{}
	}
}

// valid says whether a broker has a live session under this epoch.
func (s *Sessions) valid(broker int32, epoch int64, now time.Time) bool {
	b := s.brokers[broker]
	return b != nil && b.epoch == epoch && !b.contact.IsZero() && now.Sub(b.contact) <= s.timeout
}

func (s *Sessions) shuttingDown(broker int32) bool {
	b := s.brokers[broker]
	return b != nil && b.shutdownOffset >= 0
}

// expired gives an unfenced broker whose session has run out, the one longest silent first.
func (s *Sessions) expired(now time.Time) (broker int32, ok bool) {
	var oldest time.Time
	for id, b := range s.brokers {
		if b.fenced || now.Sub(b.contact) <= s.timeout {
			continue
		}
		if !ok || b.contact.Before(oldest) || b.contact.Equal(oldest) && id < broker {
			broker, oldest, ok = id, b.contact, true
		}
	}
	return broker, ok
}

// NextExpiry gives the time at which the next session runs out, if no heartbeat comes.
func (s *Sessions) NextExpiry() (at time.Time, ok bool) {
	for _, b := range s.brokers {
		if b.fenced {
			continue
		}
		if t := b.contact.Add(s.timeout); !ok || t.Before(at) {
			at, ok = t, true
		}
	}
	return at, ok
}

// lowestActiveOffset gives the lowest metadata offset among the brokers that serve clients; the largest number when
// there are none.
func (s *Sessions) lowestActiveOffset() int64 {
	lowest := int64(1<<63 - 1)
	for _, b := range s.brokers {
		if !b.fenced && b.shutdownOffset < 0 {
			lowest = min(lowest, b.metadataOffset)
		}
	}
	return lowest
}
