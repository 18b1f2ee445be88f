package controller

import (
	"testing"
	"time"
)

var epoch0 = time.UnixMilli(1_000_000)

func TestSessionExpiresAfterItsTimeout(t *testing.T) {
	s := NewSessions(9 * time.Second)
	s.Register(1, 5, true, epoch0)
	s.Register(1, 5, false, epoch0)
	if _, ok := s.expired(epoch0.Add(9 * time.Second)); ok {
		t.Error("expired at its timeout")
	}
	if b, ok := s.expired(epoch0.Add(9*time.Second + 1)); !ok || b != 1 {
		t.Errorf("got %d, %v", b, ok)
	}
	s.Contact(1, 5, epoch0.Add(9*time.Second))
	if _, ok := s.expired(epoch0.Add(10 * time.Second)); ok {
		t.Error("expired although it was heard of")
	}
}

func TestContactUnderAnOldEpochDoesNotCount(t *testing.T) {
	s := NewSessions(time.Second)
	s.Register(1, 5, false, epoch0)
	s.Contact(1, 4, epoch0.Add(time.Hour))
	if _, ok := s.expired(epoch0.Add(2 * time.Second)); !ok {
		t.Error("a heartbeat of an earlier incarnation kept the session alive")
	}
}

func TestFencedBrokersDoNotExpire(t *testing.T) {
	s := NewSessions(time.Second)
	s.Register(1, 5, true, epoch0)
	if _, ok := s.expired(epoch0.Add(time.Hour)); ok {
		t.Error("a fenced broker expired")
	}
	if _, ok := s.NextExpiry(); ok {
		t.Error("a fenced broker is waited for")
	}
}

func TestLongestSilentBrokerExpiresFirst(t *testing.T) {
	s := NewSessions(time.Second)
	s.Register(1, 1, false, epoch0.Add(2*time.Millisecond))
	s.Register(2, 2, false, epoch0)
	s.Register(3, 3, false, epoch0.Add(time.Millisecond))
	if b, _ := s.expired(epoch0.Add(time.Hour)); b != 2 {
		t.Errorf("got %d", b)
	}
	if at, ok := s.NextExpiry(); !ok || !at.Equal(epoch0.Add(time.Second)) {
		t.Errorf("next expiry at %v, %v", at, ok)
	}
}

func TestNewIncarnationStartsWithoutASession(t *testing.T) {
	s := NewSessions(time.Second)
	s.Register(1, 1, false, epoch0)
	s.Register(1, 2, true, epoch0)
	if s.valid(1, 2, epoch0) || s.valid(1, 1, epoch0) {
		t.Error("a registration alone makes a session")
	}
	s.Contact(1, 2, epoch0)
	if !s.valid(1, 2, epoch0.Add(time.Second)) || s.valid(1, 2, epoch0.Add(time.Second+1)) {
		t.Error("the session does not last exactly its timeout")
	}
}

func TestShutdownWaitsForTheSlowestActiveBroker(t *testing.T) {
	s := NewSessions(time.Second)
	for b := int32(1); b <= 3; b++ {
		s.Register(b, int64(b), false, epoch0)
	}
	s.heartbeat(1, false, 100)
	s.heartbeat(2, false, 50)
	s.heartbeat(3, false, 10)
	s.enterShutdown(3, 60)
	s.enterShutdown(3, 70)
	if got := s.lowestActiveOffset(); got != 50 {
		t.Errorf("lowest active offset %d, want 50: a broker that shuts down is not waited for", got)
	}
	if s.brokers[3].shutdownOffset != 60 {
		t.Errorf("shutdown offset moved to %d", s.brokers[3].shutdownOffset)
	}
	s.heartbeat(2, true, 50)
	if got := s.lowestActiveOffset(); got != 100 {
		t.Errorf("lowest active offset %d, want 100: a fenced broker is not waited for", got)
	}
}

func TestOldContactDoesNotShortenASession(t *testing.T) {
	s := NewSessions(9 * time.Second)
	s.Register(1, 5, false, epoch0)
	s.Contact(1, 5, epoch0.Add(-time.Hour))
	if at, ok := s.NextExpiry(); !ok || !at.Equal(epoch0.Add(9*time.Second)) {
		t.Errorf("the session ends at %v", at)
	}
}
