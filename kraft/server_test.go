package kraft

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/image"
	"gregor/kraft/metadata"
	"gregor/kraft/quorum"
	"gregor/protocol"
)

// silentQuorum takes proposals and commits nothing: the test does.
type silentQuorum struct {
	broken error // of Bootstrap
	failed error // by Fail

	mu       sync.Mutex
	stopping bool // takes no proposals
	end      int64
	proposed []metadata.Record
	resigns  int
}

func (q *silentQuorum) Propose(_ int32, recs []quorum.VersionedRecord) (base, last int64, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopping {
		return 0, 0, quorum.ErrNotLeader
	}
	base = q.end
	for _, r := range recs {
		q.proposed = append(q.proposed, r.Record)
	}
	q.end += int64(len(recs))
	return base, q.end - 1, nil
}

func (q *silentQuorum) Bootstrap() ([]metadata.Record, bool, error) { return nil, false, q.broken }
func (q *silentQuorum) Fail(err error)                              { q.failed = err }
func (q *silentQuorum) KRaftVersion() int16                         { return 1 }

func (q *silentQuorum) LogEndOffset() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.end
}

func (q *silentQuorum) UpgradeKRaftVersion(context.Context, int16) error { return nil }

func (q *silentQuorum) Resign(context.Context, int32) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.resigns++
	return nil
}

func (q *silentQuorum) resigned() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.resigns
}

func (q *silentQuorum) records() []metadata.Record {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.proposed)
}

// fenced counts the records that fence a broker.
func (q *silentQuorum) fenced() (n int) {
	for _, r := range q.records() {
		if c, ok := r.(*metadata.BrokerRegistrationChangeRecord); ok && c.Fenced > 0 {
			n++
		}
	}
	return n
}

// withServer runs a test on a controller beside a silentQuorum. Broker 1 is registered at offset 1 and not fenced.
func withServer(t *testing.T, test func(t *testing.T, s *server, q *silentQuorum)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(t, formatDisk(t, 9, nil), 9, 1)
		if err := o.setDefaults(); err != nil {
			t.Fatal(err)
		}
		q := &silentQuorum{}
		s := newServer(o.Controller, o.deciderConfig(func() []int32 { return []int32{9} }), q, slog.New(slog.DiscardHandler))
		go s.run()
		defer s.close()
		register := metadata.NewRegisterBrokerRecord()
		register.BrokerID, register.BrokerEpoch, register.IncarnationID, register.Fenced = 1, 1, protocol.RandomUUID(), false
		level := &metadata.FeatureLevelRecord{Name: metadata.FeatureMetadataVersion, FeatureLevel: int16(metadata.LatestMetadataVersion)}
		s.commit(q, level, register)
		test(t, s, q)
	})
}

// commit lets the server follow committed records.
func (s *server) commit(q *silentQuorum, recs ...metadata.Record) {
	q.mu.Lock()
	base := q.end
	q.end += int64(len(recs))
	q.mu.Unlock()
	s.Commit(quorum.CommittedBatch{BaseOffset: base, LastOffset: base + int64(len(recs)) - 1, Epoch: 1, Records: recs})
}

func heartbeatOf(broker int32, epoch int64) *kmsg.BrokerHeartbeatRequest {
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.BrokerID, req.BrokerEpoch, req.CurrentMetadataOffset = broker, epoch, 1
	return req
}

// A broker that looks for the controller asks those that are none too. When such a node becomes the active one much
// later, that old heartbeat must not be taken for the broker's last sign of life.
func TestHeartbeatToAnInactiveControllerDoesNotFenceTheBrokerLater(t *testing.T) {
	withServer(t, func(t *testing.T, s *server, q *silentQuorum) {
		resp := s.handle(t.Context(), anonymous(), heartbeatOf(1, 1)).(*kmsg.BrokerHeartbeatResponse)
		if got := protocol.ErrorName(resp.ErrorCode); got != "NOT_CONTROLLER" {
			t.Fatalf("an inactive controller answers %s", got)
		}
		pause(time.Hour)
		s.LeaderChange(quorum.LeaderAndEpoch{LeaderID: 9, Epoch: 2})
		pause(defaultSessionTimeout - time.Second)
		synctest.Wait()
		if q.fenced() > 0 {
			t.Error("the broker is fenced before its session is over")
		}
		pause(3 * time.Second)
		synctest.Wait()
		if q.fenced() != 1 {
			t.Errorf("the broker is fenced %d times after its session is over", q.fenced())
		}
	})
}

// What an answer rests on may have been decided by a periodic task that no request waits for.
func TestAnswerWaitsForWhatAPeriodicTaskProposed(t *testing.T) {
	withServer(t, func(t *testing.T, s *server, q *silentQuorum) {
		s.LeaderChange(quorum.LeaderAndEpoch{LeaderID: 9, Epoch: 2})
		pause(defaultMaxIdle + time.Millisecond) // a NoOpRecord is proposed
		synctest.Wait()
		if len(q.records()) == 0 {
			t.Fatal("nothing was proposed")
		}
		answered := make(chan kmsg.Response, 1)
		go func() { answered <- s.handle(t.Context(), anonymous(), heartbeatOf(1, 1)) }()
		synctest.Wait()
		if len(answered) > 0 {
			t.Error("answered before the record was committed")
		}
		s.Commit(quorum.CommittedBatch{BaseOffset: q.LogEndOffset() - 1, LastOffset: q.LogEndOffset() - 1, Epoch: 2, Records: q.records()})
		resp := (<-answered).(*kmsg.BrokerHeartbeatResponse)
		if resp.ErrorCode != 0 {
			t.Errorf("the answer is %s", protocol.ErrorName(resp.ErrorCode))
		}
	})
}

// A quorum that stops takes no records and tells nobody. Until its machines are stopped too, which lasts while one of them
// publishes to thousands of logs, no task of the controller is due, and no broker is fenced.
func TestControllerIsNotActiveOnceTheQuorumTakesNoRecords(t *testing.T) {
	withServer(t, func(t *testing.T, s *server, q *silentQuorum) {
		var log strings.Builder
		s.logger = slog.New(slog.NewTextHandler(&log, nil))
		s.LeaderChange(quorum.LeaderAndEpoch{LeaderID: 9, Epoch: 2})
		synctest.Wait()
		q.mu.Lock()
		q.stopping = true
		q.mu.Unlock()
		resp := s.handle(t.Context(), anonymous(), heartbeatOf(1, 1)).(*kmsg.BrokerHeartbeatResponse)
		if got := protocol.ErrorName(resp.ErrorCode); got != "NONE" {
			t.Errorf("a heartbeat that changes nothing is answered %s", got)
		}
		pause(time.Minute)
		synctest.Wait()
		resp = s.handle(t.Context(), anonymous(), heartbeatOf(1, 1)).(*kmsg.BrokerHeartbeatResponse)
		if got := protocol.ErrorName(resp.ErrorCode); got != "NOT_CONTROLLER" {
			t.Errorf("then one is answered %s", got)
		}
		if strings.Contains(log.String(), "level=WARN") || strings.Count(log.String(), "not active any more") != 1 {
			t.Errorf("the log of the stop:\n%s", &log)
		}
	})
}

func TestControllerGivesUpOnARecordThatDoesNotFit(t *testing.T) {
	withServer(t, func(t *testing.T, s *server, q *silentQuorum) {
		s.LeaderChange(quorum.LeaderAndEpoch{LeaderID: 9, Epoch: 2})
		s.Commit(misfitAt(q.LogEndOffset()))
		resp := s.handle(t.Context(), anonymous(), heartbeatOf(1, 1)).(*kmsg.BrokerHeartbeatResponse)
		if got := protocol.ErrorName(resp.ErrorCode); got != "NOT_CONTROLLER" || !errors.Is(q.failed, image.ErrInconsistent) {
			t.Errorf("answered %s, the quorum failed with %v", got, q.failed)
		}
	})
}

// A single controller that cannot take over must not burn epochs as fast as its disk allows.
func TestFailingTakeoverIsNotRepeatedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(t, formatDisk(t, 9, nil), 9, 1)
		if err := o.setDefaults(); err != nil {
			t.Fatal(err)
		}
		q := &silentQuorum{broken: quorum.ErrCorrupt}
		s := newServer(o.Controller, o.deciderConfig(func() []int32 { return []int32{9} }), q, slog.New(slog.DiscardHandler))
		go s.run()
		defer s.close()
		s.LeaderChange(quorum.LeaderAndEpoch{LeaderID: 9, Epoch: 1})
		synctest.Wait()
		if q.resigned() != 1 {
			t.Fatalf("resigned %d times", q.resigned())
		}
		s.LeaderChange(quorum.LeaderAndEpoch{LeaderID: 9, Epoch: 2})
		pause(giveUpBackoff / 2)
		synctest.Wait()
		if q.resigned() != 1 {
			t.Error("resigned again at once")
		}
		pause(giveUpBackoff)
		synctest.Wait()
		if q.resigned() != 2 {
			t.Errorf("resigned %d times, want 2", q.resigned())
		}
	})
}
