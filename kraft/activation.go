package kraft

import (
	"context"
	"maps"
	"math/rand/v2"
	"time"

	"gregor/kraft/controller"
	"gregor/kraft/metadata"
)

// periodicTask is something the active controller does from time to time.
type periodicTask struct {
	every time.Duration
	due   time.Time
	// run does it and says whether there is more to do at once.
	run func(now time.Time) (more bool)
}

// activate takes over as active controller. The quorum has delivered all that was committed before.
func (s *server) activate() {
	now := time.Now()
	a := &activeState{
		epoch: s.leader.Epoch, newest: s.committed.image, next: s.q.LogEndOffset(),
		sessions:   controller.NewSessions(s.o.SessionTimeout),
		registered: maps.Clone(s.committed.registered),
		rand:       rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
	}
	s.active = a
	for b := range a.newest.Cluster.Brokers() {
		a.sessions.Register(b.ID, b.Epoch, b.Fenced, now)
	}
	s.logger.Info("controller: active", "epoch", a.epoch, "offset", s.committed.next)
	if err := s.writeActivation(now); err != nil {
		s.logger.Error("controller: could not take over", "epoch", a.epoch, "error", err)
		s.giveUp()
		return
	}
	s.gaveUp = false
	a.periodic = s.periodicTasks(now)
}

// giveUpBackoff is the pause before leadership is given up once more: the only voter leads again at once, and would
// fill the log with the beginnings of epochs.
const giveUpBackoff = time.Second

// giveUp resigns leadership: another controller may be able to do what this one cannot.
func (s *server) giveUp() {
	epoch := s.active.epoch
	s.resign()
	again := s.gaveUp
	s.gaveUp = true
	go func() {
		if again {
			select {
			case <-time.After(giveUpBackoff):
			case <-s.stop:
				return
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), s.o.SessionTimeout)
		defer cancel()
		if err := s.q.Resign(ctx, epoch); err != nil {
			s.logger.Warn("controller: could not resign", "epoch", epoch, "error", err)
		}
	}()
}

// writeActivation writes what a new active controller writes first.
func (s *server) writeActivation(now time.Time) error {
	a := s.active
	empty := a.newest.MetadataVersion() == 0
	var bootstrap []metadata.Record
	if empty {
		records, ok, err := s.q.Bootstrap()
		if err != nil {
			return err
		}
		if !ok {
			records = defaultBootstrap()
		}
		bootstrap = records
	}
	d := controller.New(s.cfg, s.view(now), &controller.Request{})
	records, err := d.Activation(empty, s.committed.txns.Open(), bootstrap)
	if err != nil || len(records) == 0 {
		return err
	}
	_, err = s.propose(records)
	return err
}

// defaultBootstrap is what Kafka uses when the metadata directory holds no bootstrap records: the newest features.
func defaultBootstrap() []metadata.Record {
	out := []metadata.Record{&metadata.FeatureLevelRecord{
		Name: metadata.FeatureMetadataVersion, FeatureLevel: int16(metadata.LatestMetadataVersion),
	}}
	for _, f := range metadata.Features() {
		level := f.DefaultLevel(metadata.LatestMetadataVersion)
		if f.Name != metadata.FeatureKRaftVersion && level > 0 {
			out = append(out, &metadata.FeatureLevelRecord{Name: f.Name, FeatureLevel: level})
		}
	}
	return out
}

// fenceChecks is how often per session timeout expired sessions are looked for, at least.
const fenceChecks = 8

func (s *server) periodicTasks(now time.Time) []*periodicTask {
	tasks := []*periodicTask{
		{every: s.o.MaxIdle, run: s.writeNoOp},
		{every: s.o.SessionTimeout / fenceChecks, run: s.fenceExpired},
		{every: s.o.LeaderBalance, run: s.balanceLeaders},
		{every: s.o.UncleanElection, run: s.electUnclean},
	}
	var out []*periodicTask
	for _, t := range tasks {
		if t.every > 0 {
			t.due = now.Add(t.every)
			out = append(out, t)
		}
	}
	return out
}

// arm sets the timer to the next task.
func (s *server) arm() {
	if s.active == nil {
		s.timer.Stop()
		return
	}
	var next time.Time
	for _, t := range s.active.periodic {
		if next.IsZero() || t.due.Before(next) {
			next = t.due
		}
	}
	if next.IsZero() {
		s.timer.Stop()
		return
	}
	s.timer.Reset(time.Until(next))
}

func (s *server) runPeriodic(now time.Time) {
	if s.active == nil {
		return
	}
	s.drainContacts()
	for _, t := range s.active.periodic {
		if now.Before(t.due) {
			continue
		}
		t.due = now.Add(t.every)
		if t.run(now) {
			t.due = now
		}
		if s.active == nil {
			return
		}
	}
}

// apply0 applies a decision that nobody waits for.
func (s *server) apply0(res controller.Result, what string) bool {
	if _, err := s.apply(res, what); err != nil {
		if s.active != nil {
			s.logger.Warn("controller: periodic task not carried out", "task", what, "error", err)
		}
		return false
	}
	return true
}

func (s *server) decider(now time.Time) *controller.Decider {
	return controller.New(s.cfg, s.view(now), &controller.Request{})
}

func (s *server) writeNoOp(time.Time) bool {
	s.apply0(controller.Result{Records: []metadata.Record{metadata.NewNoOpRecord()}}, "NoOp")
	return false
}

func (s *server) fenceExpired(now time.Time) bool {
	res, broker, more := s.decider(now).FenceExpired()
	if broker >= 0 {
		s.logger.Warn("controller: fencing a broker whose session has timed out", "broker", broker)
	}
	return s.apply0(res, "FenceExpired") && more
}

func (s *server) balanceLeaders(now time.Time) bool {
	res, more := s.decider(now).BalanceLeaders()
	return s.apply0(res, "BalanceLeaders") && more
}

func (s *server) electUnclean(now time.Time) bool {
	res, more := s.decider(now).ElectUnclean()
	return s.apply0(res, "ElectUnclean") && more
}
