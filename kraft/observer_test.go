package kraft

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/quorum"
)

// epochLog is the log of an observer that knows an epoch and takes over newer ones, as the quorum does.
type epochLog struct {
	known   quorum.LeaderAndEpoch
	fetched atomic.Int32
}

func (l *epochLog) FetchState() quorum.FollowState {
	return quorum.FollowState{Following: true, Leader: l.known}
}

func (l *epochLog) HandleFetched(context.Context, quorum.FetchedFromLeader) error {
	l.fetched.Add(1)
	return nil
}

func (l *epochLog) HandleLeader(_ context.Context, n quorum.LeaderAndEpoch) error {
	if n.Epoch > l.known.Epoch || n.Epoch == l.known.Epoch && l.known.LeaderID == quorum.NoLeader {
		l.known = n
	}
	return nil
}

func (l *epochLog) BeginSnapshot(quorum.SnapshotID) (*quorum.SnapshotDownload, error) {
	return nil, nil
}

func (l *epochLog) Voters() quorum.VoterSet { return quorum.VoterSet{} }
func (l *epochLog) Err() error              { return nil }

// answers is a Client that answers fetches by port.
type answers struct {
	asked map[uint16]int
	by    func(port uint16) (code int16, l quorum.LeaderAndEpoch, err error)
}

func (a *answers) Do(_ context.Context, to Endpoint, req kmsg.Request) (kmsg.Response, error) {
	a.asked[to.Port]++
	code, l, err := a.by(to.Port)
	if err != nil {
		return nil, err
	}
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	p := kmsg.NewFetchResponseTopicPartition()
	p.ErrorCode, p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = code, l.LeaderID, l.Epoch
	resp.Topics = append(resp.Topics, kmsg.FetchResponseTopic{Partitions: []kmsg.FetchResponseTopicPartition{p}})
	return resp, nil
}

func (a *answers) SendPeer(context.Context, Endpoint, []byte) ([]byte, error) { return nil, nil }

// observe runs an observer for a second on answers of the controllers at ports 1 to 3.
func observe(t *testing.T, log *epochLog, by func(port uint16) (int16, quorum.LeaderAndEpoch, error)) map[uint16]int {
	t.Helper()
	client := &answers{asked: map[uint16]int{}, by: by}
	synctest.Test(t, func(t *testing.T) {
		o := observerOptions(t, 50)
		o.Quorum.StaticVoters = nil
		for port := uint16(1); port <= 3; port++ {
			o.Quorum.BootstrapServers = append(o.Quorum.BootstrapServers, Endpoint{NodeID: -1, Host: "localhost", Port: port})
		}
		o.Client = client
		if err := o.setDefaults(); err != nil {
			t.Fatal(err)
		}
		b := newObserver(&o, log)
		go b.run()
		pause(time.Second)
		b.close()
	})
	return client.asked
}

// A controller that is cut off from the others answers, but knows no leader. The one after it in the list does.
func TestObserverAsksAllControllersInTurn(t *testing.T) {
	log := &epochLog{known: quorum.LeaderAndEpoch{LeaderID: quorum.NoLeader, Epoch: 6}}
	asked := observe(t, log, func(port uint16) (int16, quorum.LeaderAndEpoch, error) {
		switch port {
		case 1:
			return 0, quorum.LeaderAndEpoch{}, errUnreachable
		case 2:
			return kerr.NotLeaderForPartition.Code, quorum.LeaderAndEpoch{LeaderID: quorum.NoLeader, Epoch: 6}, nil
		}
		pause(100 * time.Millisecond)
		return 0, quorum.LeaderAndEpoch{LeaderID: 3, Epoch: 6}, nil
	})
	if asked[3] == 0 {
		t.Errorf("the leader was never asked: %v", asked)
	}
}

// A controller of an older epoch names a leader that the observer knows to be gone: that is no progress.
func TestObserverPausesAtTheAnswerOfAnOldLeader(t *testing.T) {
	log := &epochLog{known: quorum.LeaderAndEpoch{LeaderID: quorum.NoLeader, Epoch: 6}}
	rounds := 0
	asked := observe(t, log, func(uint16) (int16, quorum.LeaderAndEpoch, error) {
		if rounds++; rounds > 10_000 {
			pause(time.Second) // or the test would never end
		}
		return kerr.UnknownLeaderEpoch.Code, quorum.LeaderAndEpoch{LeaderID: 2, Epoch: 5}, nil
	})
	if total := asked[1] + asked[2] + asked[3]; total > 2*int(time.Second/defaultRetryBackoff) {
		t.Errorf("%d fetches in a second", total)
	}
	if asked[3] == 0 {
		t.Errorf("not all were asked: %v", asked)
	}
}
